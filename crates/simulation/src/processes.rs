//! Controller processes: the real controllers, each with its own connection to the cluster.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jiff::{SignedDuration, Timestamp};
use launcher_pod::Acceleration;
use reconcile::{Clock, Election, Leadership};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use virt_controller::{AccelerationPolicy, Configuration, CopyRights, Settings, Uploads};

use crate::cluster::{self, Cluster};
use crate::connection::FaultyConnection;
use crate::random::Random;
use crate::record::Record;

pub(crate) const NAMESPACE: &str = "default";

/// The time at which every scenario begins.
pub(crate) fn begin() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap_or_default()
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) connection: Arc<FaultyConnection>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// Starts processes.
#[derive(Debug)]
pub(crate) struct Starter {
    pub(crate) cluster: Cluster,
    pub(crate) record: Record,
    pub(crate) has_faults: Arc<AtomicBool>,
    pub(crate) tasks: TaskTracker,
    pub(crate) random: Random,
    pub(crate) started: u32,
    /// The version of the launcher.
    pub(crate) launcher: u32,
}

impl Starter {
    /// The image of the launcher.
    pub(crate) fn image(&self) -> String {
        format!("launcher:{}", self.launcher)
    }

    pub(crate) fn start(&mut self) -> Process {
        self.started += 1;
        let random = self.random.fork();
        let connection =
            FaultyConnection::new(random, Arc::clone(&self.has_faults), self.record.clone());
        let connection = Arc::new(connection);
        // Clocks differ by up to ten minutes either way.
        let skew = i64::try_from(self.random.below(1200)).unwrap_or(0) - 600;
        let start = begin()
            .checked_add(SignedDuration::from_secs(skew))
            .unwrap_or_default();
        let since = self.cluster.clock().now().duration_since(begin());
        let settings = Settings {
            client: cluster::client(&self.cluster, &connection),
            launcher: launcher_pod::Settings::defaults(&self.image(), Acceleration::Kvm),
            acceleration: AccelerationPolicy::ByNodes,
            uploads: Uploads::Refused,
            copies: CopyRights::OfNamespace,
            exports: None,
            clock: Clock::starting_at(start.checked_add(since).unwrap_or(start)),
            cluster: Configuration::new(NAMESPACE),
            concurrency: 4,
            leadership: Leadership::Elected(Election {
                namespace: NAMESPACE.to_owned(),
                name: "virt-controller".to_owned(),
                identity: format!("process-{}", self.started),
            }),
        };
        let stop = CancellationToken::new();
        let run = virt_controller::run(settings, stop.clone());
        Process {
            connection,
            running: self.tasks.spawn(run),
            stop,
        }
    }
}

impl Process {
    /// Like SIGKILL: nothing it still sends arrives.
    pub(crate) fn kill(self) {
        self.connection.close();
        self.stop.cancel();
        // It may be waiting for a response that never comes.
        self.running.abort();
    }

    /// Like SIGTERM.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.connection.resume();
        // Its own shutdown is bounded; a panic inside shows as a scenario that does not converge.
        let _ended = self.running.await.is_ok();
    }
}
