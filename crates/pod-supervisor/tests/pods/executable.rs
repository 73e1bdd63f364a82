//! The program of the helpers cannot be overwritten from a container (CVE-2019-5736).

use std::fs::File;

use pod_supervisor::exec::Outcome;
use rustix::fs::{CWD, FileType, Mode, SealFlags, fcntl_get_seals, mknodat};

use super::{
    joining::{exec, exec_helper, request_exec},
    *,
};

/// A pod whose supervisor and helpers run from a copy, so that a successful attack harms no other test.
/// The image has what the program needs to run in the container, where it waits for its input.
fn pod_with_own_program(name: &str) -> (Pod, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let copy = folder.path().join("pod-supervisor");
    fs::copy(program(), &copy).unwrap();
    let pod = Pod::build(Host::Real, name, copy, None);
    let image = pod.path().join("image");
    let libraries = Command::new("ldd").arg(&pod.program).output().unwrap();
    let libraries = String::from_utf8(libraries.stdout).unwrap();
    for library in libraries
        .split_whitespace()
        .filter(|word| word.starts_with('/'))
    {
        let inside = image.join(library.trim_start_matches('/'));
        fs::create_dir_all(inside.parent().unwrap()).unwrap();
        fs::copy(library, inside).unwrap();
    }
    fs::create_dir(image.join("hold")).unwrap();
    let input = image.join("hold/pod.json");
    mknodat(CWD, &input, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
    (pod, folder)
}

/// The program that a container starts to get hold of the file that the helper runs.
const ATTACK: [&str; 3] = ["/proc/self/exe", "run", "/hold"];

fn of_root(pod: &Pod, script: &str) -> ContainerSpec {
    let mut container = pod.container(script);
    container.user = User {
        uid: 0,
        gid: 0,
        groups: vec![],
    };
    container.security.seccomp = Seccomp::Unconfined;
    container
}

#[test]
fn program_that_joins_a_container_cannot_be_overwritten() {
    let (mut pod, _folder) = pod_with_own_program("overwrites");
    pod.start(of_root(&pod, "sleep 1000"));
    pod.wait_for_running();
    let before = fs::read(&pod.program).unwrap();
    request_exec(&pod, "1", &ATTACK);
    let mut joining = exec_helper(&pod, "1");
    // A file cannot be written to while a process runs it, so the attacker waits for the last one.
    pod.kill_supervisor();
    let script = "until busybox grep -q 'run.h*/hold' /proc/[0-9]*/cmdline; do :; done 2>/dev/null; \
                  for process in /proc/[0-9]*; do \
                  if busybox grep -q '^/proc/self/exe.run' $process/cmdline; then \
                  exec 9< $process/exe; kill -9 ${process#/proc/}; fi; done 2>/dev/null; \
                  until text=$( (echo overwritten > /proc/self/fd/9) 2>&1); do \
                  case $text in *busy*) ;; *) break;; esac; done; echo \"wrote: $text\"";
    let copy = std::mem::replace(&mut pod.program, program());
    let (outcome, text) = exec(&pod, "2", &["sh", "-c", script], "");
    assert_eq!(outcome, Outcome::Exited { code: 0 });
    joining.wait().unwrap();
    assert!(fs::read(copy).unwrap() == before, "overwritten: {text}");
    assert!(text.contains("Operation not permitted"), "{text}");
}

#[test]
fn first_process_of_a_container_runs_from_a_sealed_copy() {
    let (pod, _folder) = pod_with_own_program("sealed");
    let mut container = of_root(&pod, "");
    container.args = ATTACK.map(str::to_owned).into();
    pod.start(container);
    let process = PathBuf::from(format!("/proc/{}", pod.wait_for_running()));
    let deadline = Instant::now() + TIMEOUT;
    while !fs::read_to_string(process.join("cmdline"))
        .unwrap()
        .ends_with("run\0/hold\0")
    {
        assert!(Instant::now() < deadline, "the program does not run");
        std::thread::yield_now();
    }
    let seals = fcntl_get_seals(File::open(process.join("exe")).unwrap()).unwrap();
    assert!(
        seals.contains(SealFlags::WRITE | SealFlags::SEAL),
        "{seals:?}"
    );
}
