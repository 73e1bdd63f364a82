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
    running: Vec<(Server, CancellationToken)>,
}

/// A server of one interface of the pod.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Server {
    Ipv4(Box<DhcpServer>),
    Ipv6(Box<Ipv6Server>),
}

impl DhcpServers {
    pub(super) fn new(tasks: TaskTracker) -> Self {
        Self {
            tasks,
            running: Vec::new(),
        }
    }

    /// Starts those that are not running, and stops others: interfaces come and go while the guest lives.
    pub(super) fn start(&mut self, servers: &[DhcpServer], of_ipv6: &[Ipv6Server]) {
        let wanted = servers.iter().cloned().map(Box::new).map(Server::Ipv4);
        let of_ipv6 = of_ipv6.iter().cloned().map(Box::new).map(Server::Ipv6);
        let wanted: Vec<Server> = wanted.chain(of_ipv6).collect();
        self.running.retain(|(server, stop)| {
            let stays = wanted.contains(server);
            if !stays {
                stop.cancel();
            }
            stays
        });
        for server in wanted {
            if self.running.iter().all(|(running, _)| *running != server) {
                let stop = CancellationToken::new();
                self.tasks.spawn(run(server.clone(), stop.clone()));
                self.running.push((server, stop));
            }
        }
    }

    pub(super) fn stop(&mut self) {
        for (_, stop) in self.running.drain(..) {
            stop.cancel();
        }
    }
}

async fn run(server: Server, stop: CancellationToken) {
    match server {
        Server::Ipv4(server) => {
            let serve = || dhcp::serve((*server).clone(), stop.clone());
            keep_serving(&server.interface, serve, &stop).await;
        }
        Server::Ipv6(server) => {
            let serve = || ipv6::serve((*server).clone(), stop.clone());
            keep_serving(&server.tap, serve, &stop).await;
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
