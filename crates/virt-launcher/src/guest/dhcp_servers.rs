//! The DHCP servers of the guest: started before it, stopped after it.

use std::time::Duration;

use backoff::Backoff;
use error_chain::error_chain;
use launcher_channel::DhcpServer;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::dhcp;

/// The running servers.
#[derive(Debug)]
pub(super) struct DhcpServers {
    tasks: TaskTracker,
    running: Option<CancellationToken>,
}

impl DhcpServers {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self {
            tasks,
            running: None,
        }
    }

    /// Starts them unless they are running; a plan's servers do not change while the guest lives.
    pub(super) fn start(&mut self, servers: &[DhcpServer]) {
        if self.running.is_some() {
            return;
        }
        let stop = CancellationToken::new();
        for server in servers {
            self.tasks.spawn(keep_serving(server.clone(), stop.clone()));
        }
        self.running = Some(stop);
    }

    pub(super) fn stop(&mut self) {
        if let Some(stop) = self.running.take() {
            stop.cancel();
        }
    }
}

/// Restarts the server when it fails, for instance because the bridge was replaced.
async fn keep_serving(server: DhcpServer, stop: CancellationToken) {
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    backoff.pause();
    loop {
        match dhcp::serve(server.clone(), stop.clone()).await {
            Ok(()) => return,
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(interface = server.interface, error, "DHCP server failed");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff.pause()) => {}
        }
    }
}
