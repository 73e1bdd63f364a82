//! Simulated nodes: a kubelet and virt-handler that change pods and VMIs, backed by [`Guests`] only.

mod handler;
mod kubelet;
mod moves;
mod status;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::{annotations, labels};
use serde_json::json;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Author, Cluster, Id, Kind, Patch};
use crate::guests::Guests;
use crate::random::Random;
use crate::record::Record;
use crate::watch::Watcher;

use kubelet::{KUBELET, Kubelet};

const HEARTBEAT: Duration = Duration::from_mins(1);

/// The state of a node, set by the scenario.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Power {
    On,
    /// Cut off from the cluster; its guests keep running.
    Unreachable,
    /// Without power: its guests are gone.
    Off,
}

/// How fast and how reliably nodes work.
#[derive(Debug, Clone)]
pub(crate) struct Behaviour {
    /// The longest duration of each step.
    pub(crate) step: Duration,
    /// Whether image pulls and starts fail at random.
    pub(crate) has_faults: Arc<AtomicBool>,
    /// There is no other node: guests move within this one.
    pub(crate) is_alone: bool,
}

pub(crate) struct Node {
    pub(crate) name: String,
    pub(crate) cluster: Cluster,
    pub(crate) guests: Guests,
    pub(crate) record: Record,
    pub(crate) random: Random,
    pub(crate) behaviour: Behaviour,
    pub(crate) power: Watcher<Power>,
    /// The offset of its clock.
    pub(crate) skew: SignedDuration,
}

impl Node {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.cluster.changes();
        let mut power = self.power.clone();
        let mut news = self.guests.news();
        let mut observed_news = news.get();
        self.register();
        let heartbeat = Instant::now() + self.random.up_to(HEARTBEAT);
        let mut kubelet = Kubelet::new(self, heartbeat);
        while !stop.is_cancelled() {
            let is_on = power.observe() == Power::On;
            if !is_on {
                kubelet.go_down();
                tokio::select! {
                    biased;
                    () = stop.cancelled() => return,
                    () = power.changed() => {}
                }
                continue;
            }
            kubelet.node.guests.connect(&kubelet.node.name);
            changes.observe();
            kubelet.observe();
            if news.observe() != observed_news {
                observed_news = news.get();
                kubelet.on_news();
            }
            kubelet.reconcile_all();
            let next = kubelet.next_at();
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = power.changed() => {}
                () = changes.changed() => {}
                () = news.changed() => {}
                () = sleep_until(next) => {}
            }
        }
    }

    fn register(&self) {
        let node = json!({
            "metadata": {"name": self.name},
            "status": {"nodeInfo": {"kubeletVersion": "v1.36.0", "containerRuntimeVersion": "containerd://2.2.0"}, "allocatable": {"cpu": "64", "devices.kubevirt.io/kvm": "1k"}},
        });
        // It exists already when the node was restarted.
        let _made = self
            .cluster
            .create(Kind::Node, "", node, Author::main(KUBELET))
            .is_ok();
        self.beat();
    }

    /// The time by its own clock.
    fn time(&self) -> Timestamp {
        let now = self.cluster.clock().now();
        now.saturating_add(self.skew).unwrap_or(now)
    }

    fn beat(&self) {
        let body = json!({
            "apiVersion": "v1", "kind": "Node",
            "metadata": {
                "name": self.name,
                "labels": {labels::SCHEDULABLE: "true"},
                "annotations": {annotations::HEARTBEAT: self.time().to_string()},
            },
        });
        let id = Id::new(Kind::Node, "", &self.name);
        let author = Author::main("virt-handler-node");
        let _applied = self.cluster.patch(&id, &Patch::Apply(body), author).is_ok();
    }
}
