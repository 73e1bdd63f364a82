//! The passt processes of the guest's interfaces. Each outlives this launcher; when one dies it is
//! started again, and QEMU connects to the new one.

use std::io;
use std::time::Duration;

use backoff::Backoff;
use error_chain::error_chain;
use launcher_channel::PasstServer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::device_servers::{self, Helper};
use crate::passt;

/// Why an interface cannot be connected.
#[derive(Debug, thiserror::Error)]
#[error("interface {name}: start passt")]
pub(crate) struct PasstError {
    name: String,
    source: io::Error,
}

#[derive(Debug)]
pub(super) struct PasstServers {
    tasks: TaskTracker,
    running: Option<CancellationToken>,
}

impl PasstServers {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self {
            tasks,
            running: None,
        }
    }

    /// Starts all for a guest that is about to start, in place of those of an earlier try.
    pub(super) async fn start(&mut self, servers: &[PasstServer]) -> Result<(), PasstError> {
        self.stop();
        for server in servers {
            let process = start(server).await.map_err(|source| PasstError {
                name: server.name.clone(),
                source,
            })?;
            self.keep(server, Some(process));
        }
        Ok(())
    }

    /// Keeps those of a guest that an earlier launcher has started.
    pub(super) fn adopt(&mut self, servers: &[PasstServer]) {
        if self.running.is_some() {
            return;
        }
        for server in servers {
            self.keep(server, device_servers::find(passt::PROCESS, &server.name));
        }
        self.running.get_or_insert_default();
    }

    /// Ends all: the guest has ended, or is started anew.
    pub(super) fn stop(&mut self) {
        if let Some(stop) = self.running.take() {
            stop.cancel();
        }
        device_servers::kill_all(passt::PROCESS);
    }

    fn keep(&mut self, server: &PasstServer, process: Option<Helper>) {
        let stop = self.running.get_or_insert_default().clone();
        let server = server.clone();
        self.tasks.spawn(async move {
            tokio::select! {
                () = stop.cancelled() => {}
                () = keep_running(&server, process) => {}
            }
        });
    }
}

async fn keep_running(server: &PasstServer, mut process: Option<Helper>) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    loop {
        if let Some(process) = process.take() {
            process.ended().await;
            tracing::warn!(interface = server.name, "passt has ended: restarting it");
        }
        tokio::time::sleep(backoff.pause()).await;
        match start(server).await {
            Ok(new) => process = Some(new),
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(interface = server.name, error, "failed to restart passt");
            }
        }
    }
}

/// passt listens on its sockets when the command has ended.
async fn start(server: &PasstServer) -> io::Result<Helper> {
    let name = device_servers::process_name(passt::PROCESS, &server.name);
    passt::start(server, &name).await?;
    let found = device_servers::find(passt::PROCESS, &server.name);
    found.ok_or_else(|| io::Error::other("it has ended at once"))
}
