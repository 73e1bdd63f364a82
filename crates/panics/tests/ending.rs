//! How a process ends, or goes on, after a panic. Each case runs in a process of its own: this test program again,
//! with the name of the case in a variable.

#![cfg(test)]

use std::{
    env,
    os::unix::process::ExitStatusExt as _,
    process::{Command, ExitStatus},
};

use panics::{catch, confined};

const VARIABLE: &str = "PANICS_TEST_CASE";
/// The child reached the end of its case.
const SURVIVED: i32 = 42;
const SIGABRT: i32 = 6;

/// The name of each case, what it does, and whether the process survives it.
const CASES: &[(&str, fn(), bool)] = &[
    ("confined", in_future, true),
    ("closure", || assert!(catch(bug).is_err()), true),
    ("again", again, true),
    ("cleanup", in_section_of_cleanup, true),
    ("logged", logged, true),
    ("main", bug, false),
    ("thread", in_thread, false),
    ("task", in_task, false),
    ("blocking", in_blocking_task, false),
    ("after", after_section, false),
    ("twice", twice, false),
];

fn bug() {
    panic!("the message of the bug");
}

fn on_runtime(work: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_multi_thread().build();
    runtime.unwrap().block_on(work);
}

fn in_future() {
    on_runtime(async {
        let work = async {
            tokio::task::yield_now().await;
            bug();
        };
        let panicked = confined(work).await.unwrap_err();
        let place = panicked.place.unwrap();
        assert!(place.contains("ending.rs:"), "{place}");
    });
}

/// The same section panics many times.
fn again() {
    for _ in 0..100 {
        assert!(catch(bug).is_err());
    }
    assert_eq!(panics::count(), 100);
}

fn logged() {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(false)
        .init();
    assert!(catch(bug).is_err());
}

fn in_thread() {
    let ended = catch(|| std::thread::spawn(bug).join().is_ok());
    assert!(ended.is_ok());
}

#[expect(clippy::disallowed_methods, reason = "the case is about such a task")]
fn in_task() {
    on_runtime(async {
        let work = async { tokio::spawn(async { bug() }).await.is_ok() };
        assert!(confined(work).await.is_ok());
    });
}

fn in_blocking_task() {
    on_runtime(async {
        let work = async { tokio::task::spawn_blocking(bug).await.is_ok() };
        assert!(confined(work).await.is_ok());
    });
}

fn after_section() {
    assert!(catch(bug).is_err());
    bug();
}

/// Does this when it is dropped.
struct OnDrop(fn());

impl Drop for OnDrop {
    fn drop(&mut self) {
        (self.0)();
    }
}

fn twice() {
    let ended = catch(|| {
        let _second = OnDrop(bug);
        bug();
    });
    assert!(ended.is_err());
}

fn in_section_of_cleanup() {
    let ended = catch(|| {
        let _cleanup = OnDrop(|| assert!(catch(bug).is_err()));
        bug();
    });
    assert!(ended.is_err());
}

/// What the child runs; nothing in the process of the tests.
#[test]
#[expect(
    clippy::exit,
    reason = "tells the end of the case from that of the test program"
)]
fn child() {
    let Ok(name) = env::var(VARIABLE) else {
        return;
    };
    let (_, work, _) = CASES.iter().find(|(known, ..)| *known == name).unwrap();
    panics::install();
    work();
    std::process::exit(SURVIVED);
}

fn run(name: &str) -> (ExitStatus, String) {
    let ended = Command::new(env::current_exe().unwrap())
        .args(["--exact", "child", "--nocapture", "--test-threads=1"])
        .env(VARIABLE, name)
        .output()
        .unwrap();
    let text = String::from_utf8_lossy(&ended.stderr).into_owned();
    (ended.status, text)
}

#[test]
fn only_panics_of_confined_sections_leave_the_process_alive() {
    for (name, _, survives) in CASES {
        let (status, text) = run(name);
        let expected = survives.then_some(SURVIVED);
        assert_eq!(status.code(), expected, "{name}: {status}\n{text}");
        let signal = (!survives).then_some(SIGABRT);
        assert_eq!(status.signal(), signal, "{name}: {status}\n{text}");
        assert!(text.contains("the message of the bug"), "{name}: {text}");
        assert!(text.contains("ending.rs:"), "{name}: {text}");
        assert_eq!(
            !survives,
            text.contains("the process ends"),
            "{name}: {text}"
        );
    }
}

#[test]
fn log_of_the_program_has_the_panic() {
    let (_, text) = run("logged");
    let line = text.lines().find(|line| line.contains(" ERROR ")).unwrap();
    let message = "panic error=\"the message of the bug\" place=";
    assert!(line.contains(message), "{text}");
    assert!(text.contains("what panicked ends"), "{text}");
}

#[test]
fn same_place_is_logged_each_time_with_one_backtrace() {
    let (_, text) = run("again");
    let lines = text.matches("the message of the bug").count();
    let traces = text
        .lines()
        .filter(|line| line.trim_start().starts_with("0: "))
        .count();
    assert_eq!((lines, traces), (100, 1), "{text}");
}
