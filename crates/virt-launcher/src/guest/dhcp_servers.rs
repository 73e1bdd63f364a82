//! The DHCP servers of the guest, of both versions of IP: started before it, stopped after it.

use std::time::Duration;

use backoff::Backoff;
use error_chain::error_chain;
use launcher_channel::{DhcpServer, Ipv6Server};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::{dhcp, ipv6};

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
    pub(super) fn start(&mut self, servers: &[DhcpServer], of_ipv6: &[Ipv6Server]) {
        if self.running.is_some() {
            return;
        }
        let stop = CancellationToken::new();
        for server in servers {
            let (server, stop) = (server.clone(), stop.clone());
            self.tasks.spawn(async move {
                let serve = || dhcp::serve(server.clone(), stop.clone());
                keep_serving(&server.interface, serve, &stop).await;
            });
        }
        for server in of_ipv6 {
            let (server, stop) = (server.clone(), stop.clone());
            self.tasks.spawn(async move {
                let serve = || ipv6::serve(server.clone(), stop.clone());
                keep_serving(&server.tap, serve, &stop).await;
            });
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
async fn keep_serving<F, E>(interface: &str, serve: impl Fn() -> F, stop: &CancellationToken)
where
    F: Future<Output = Result<(), E>>,
    E: std::error::Error + 'static,
{
    let mut backoff = Backoff::new(Duration::from_millis(100), Duration::from_secs(5));
    backoff.pause();
    loop {
        match serve().await {
            Ok(()) => return,
            Err(error) => {
                let error = error_chain(&error);
                tracing::warn!(interface, error, "DHCP server failed");
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(backoff.pause()) => {}
        }
    }
}
