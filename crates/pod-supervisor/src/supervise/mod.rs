//! The supervisor's loop: one thread, one poll, every event handled completely before the next.

mod begin;
mod clients;
mod events;
mod requests;
mod stop;

use std::{
    fs::{self, File},
    io::{self, Write as _},
    os::{fd::OwnedFd, unix::net::UnixListener},
    path::Path,
};

use error_chain::error_chain;

use self::{clients::Client, stop::Stopping};
use crate::{
    container::Container,
    error::SupervisorError,
    exit::Exit,
    layout,
    model::Sandbox,
    protocol::{Greeting, Reply},
    report::report,
    status::{self, PodStatus, Process},
};

#[derive(Debug)]
struct Supervisor {
    sandbox: Sandbox,
    process: Process,
    boot_id: String,
    network_namespace: u64,
    containers: Vec<Container>,
    listener: UnixListener,
    signals: OwnedFd,
    clients: Vec<Client>,
    stopping: Option<Stopping>,
    /// Children that were reaped before the helper reported which container they belong to.
    unclaimed: Vec<(i32, Exit)>,
    changed: bool,
    _lock: File,
}

/// Body of `pod-supervisor run <pod directory>`; returns when the pod is over.
///
/// Writes one [`Greeting`] line to standard output as soon as the control socket is ready.
pub fn run(pod_dir: &Path) -> Result<(), SupervisorError> {
    match Supervisor::begin(pod_dir) {
        Ok(mut supervisor) => {
            greet(&Greeting::Ready {
                network_namespace: supervisor.network_namespace,
            });
            supervisor.run()
        }
        Err(error) => {
            greet(&Greeting::Failed {
                message: error_chain(&error),
            });
            Err(error)
        }
    }
}

fn greet(greeting: &Greeting) {
    let mut line = serde_json::to_vec(greeting).expect("a greeting is always JSON");
    line.push(b'\n');
    let mut out = io::stdout();
    if let Err(error) = out.write_all(&line).and_then(|()| out.flush()) {
        report(&format!(
            "failed to greet the node: {}",
            error_chain(&error)
        ));
    }
    // The node reads up to the end of the line or of the pipe, and nothing more.
    if let Ok(null) = File::options().write(true).open("/dev/null")
        && let Err(error) = rustix::stdio::dup2_stdout(&null)
    {
        report(&format!("failed to close standard output: {error}"));
    }
}

impl Supervisor {
    fn run(&mut self) -> Result<(), SupervisorError> {
        while !self.is_over() {
            for source in self.wait()? {
                self.handle(source);
            }
            self.on_deadlines();
            if self.changed {
                self.publish()?;
            }
            self.clients.retain(|client| !client.gone);
        }
        drop(fs::remove_file(layout::CONTROL_SOCKET));
        failpoints::after("pod-supervisor/remove-socket");
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.stopping.is_some() && self.containers.iter().all(Container::has_ended)
    }

    fn status(&self) -> PodStatus {
        PodStatus {
            supervisor: self.process,
            boot_id: self.boot_id.clone(),
            network_namespace: self.network_namespace,
            stopping: self.stopping.is_some(),
            containers: self
                .containers
                .iter()
                .map(|one| one.status.clone())
                .collect(),
        }
    }

    /// Writes the status to its file and sends it to subscribers.
    fn publish(&mut self) -> Result<(), SupervisorError> {
        self.changed = false;
        let status = self.status();
        match status::write(Path::new("."), &status) {
            Ok(()) => failpoints::after("pod-supervisor/publish"),
            // A full disk must not end a running pod; the next change tries again.
            Err(error) if !self.containers.is_empty() => {
                report(&format!(
                    "failed to write the status: {}",
                    error_chain(&error)
                ));
            }
            Err(source) => return Err(SupervisorError::Status { source }),
        }
        let reply = Reply::Status(status);
        for client in self.clients.iter_mut().filter(|client| client.subscribed) {
            client.send(&reply);
        }
        Ok(())
    }
}
