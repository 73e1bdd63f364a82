//! Controller processes: the real controllers, each with a line to the cluster that may be cut.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use jiff::{SignedDuration, Timestamp};
use launcher_pod::Acceleration;
use reconcile::{Clock, Election};
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use virt_controller::{AccelerationPolicy, Settings};

use crate::cluster::{self, Cluster};
use crate::faults::Line;
use crate::random::Random;
use crate::tally::Tally;

pub(crate) const NAMESPACE: &str = "default";

/// Time of day when every story begins.
pub(crate) fn begin() -> Timestamp {
    "2026-11-21T12:00:00Z".parse().unwrap_or_default()
}

#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) line: Arc<Line>,
    stop: CancellationToken,
    running: JoinHandle<()>,
}

/// Where processes are started.
#[derive(Debug)]
pub(crate) struct Machines {
    pub(crate) cluster: Cluster,
    pub(crate) tally: Tally,
    pub(crate) is_bad: Arc<AtomicBool>,
    pub(crate) tasks: TaskTracker,
    pub(crate) random: Random,
    pub(crate) started: u32,
}

impl Machines {
    pub(crate) fn start(&mut self) -> Process {
        self.started += 1;
        let random = self.random.fork();
        let line = Line::new(random, Arc::clone(&self.is_bad), self.tally.clone());
        let line = Arc::new(line);
        // Clocks are wrong, by up to ten minutes either way.
        let skew = i64::try_from(self.random.below(1200)).unwrap_or(0) - 600;
        let start = begin()
            .checked_add(SignedDuration::from_secs(skew))
            .unwrap_or_default();
        let since = self.cluster.clock().now().duration_since(begin());
        let settings = Settings {
            client: cluster::client(&self.cluster, &line),
            launcher: launcher_pod::Settings::defaults("launcher:1", Acceleration::Kvm),
            acceleration: AccelerationPolicy::ByNodes,
            clock: Clock::starting_at(start.checked_add(since).unwrap_or(start)),
            concurrency: 4,
            election: Election {
                namespace: NAMESPACE.to_owned(),
                name: "virt-controller".to_owned(),
                identity: format!("process-{}", self.started),
            },
        };
        let stop = CancellationToken::new();
        let run = virt_controller::run(settings, stop.clone());
        Process {
            line,
            running: self.tasks.spawn(run),
            stop,
        }
    }
}

impl Process {
    /// As when it is killed: nothing it still says arrives.
    pub(crate) fn kill(self) {
        self.line.cut();
        self.stop.cancel();
        // It may be waiting for an answer that never comes.
        self.running.abort();
    }

    /// As when it is told to end.
    pub(crate) async fn end(self) {
        self.stop.cancel();
        self.line.thaw();
        // Its own end is bounded; a panic inside shows as a story that does not settle.
        let _ended = self.running.await.is_ok();
    }
}
