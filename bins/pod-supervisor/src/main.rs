//! The program `pod-supervisor`: `run <pod directory>` for the node, `create <container>
//! <attempt>` for itself, `exec <pod directory> <id>` for one more program in a container.

use std::{env, path::Path, process::ExitCode};

fn main() -> ExitCode {
    let args: Vec<String> = env::args().collect();
    let words: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    match words.as_slice() {
        ["run", dir] => match pod_supervisor::supervise::run(Path::new(dir)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
        ["create", container, attempt] => match attempt.parse() {
            Ok(attempt) => {
                pod_supervisor::create::run(container, attempt);
                ExitCode::SUCCESS
            }
            Err(_) => fail("the attempt is a number"),
        },
        ["exec", dir, id] => match pod_supervisor::exec::run(Path::new(dir), id) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
        _ => fail("usage: pod-supervisor run POD-DIRECTORY (started by the node, not by hand)"),
    }
}

#[expect(
    clippy::print_stderr,
    reason = "standard error is the supervisor's log file"
)]
fn fail(message: &str) -> ExitCode {
    eprintln!("{message}");
    ExitCode::FAILURE
}
