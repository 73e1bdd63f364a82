//! The program `pod-supervisor`: the node starts `run <pod directory>` and `exec <pod directory>
//! <id>`; the supervisor itself starts `create <container> <attempt>` and `namespaces`, and the former
//! `terminal <process> <supervisor>`.

use std::{env, path::Path, process::ExitCode};

fn main() -> ExitCode {
    panics::install();
    let args: Vec<String> = env::args().collect();
    let args: Vec<&str> = args.iter().skip(1).map(String::as_str).collect();
    match args.as_slice() {
        ["run", dir] => match pod_supervisor::supervise::run(Path::new(dir)) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
        ["create", container, attempt] => match attempt.parse() {
            Ok(attempt) => {
                pod_supervisor::create::run(container, attempt);
                ExitCode::SUCCESS
            }
            Err(_) => fail("the attempt must be a number"),
        },
        ["exec", dir, id] => match pod_supervisor::exec::run(Path::new(dir), id) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&error.to_string()),
        },
        ["terminal", process, supervisor] => match (process.parse(), supervisor.parse()) {
            (Ok(process), Ok(supervisor)) => {
                match pod_supervisor::terminal::run(process, supervisor) {
                    Ok(()) => ExitCode::SUCCESS,
                    // Its standard error is a socket.
                    Err(_) => ExitCode::FAILURE,
                }
            }
            _ => fail("the processes must be numbers"),
        },
        ["namespaces"] => match pod_supervisor::users::hold_namespaces() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => fail(&format!(
                "make the namespaces of a pod with users of its own: {error}"
            )),
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
