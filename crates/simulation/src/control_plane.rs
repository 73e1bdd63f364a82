//! The rest of the control plane: the scheduler, the garbage collector, and the eviction of pods
//! from unreachable nodes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use apimachinery::meta;
use kubevirt_api::labels;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::cluster::{Author, Cluster, Deletion, Id, Kind, Patch};
use crate::nodes::Power;
use crate::random::Random;
use crate::watch::Watcher;

/// The defaults of Kubernetes: 40 s until a node counts as unreachable, 5 min of toleration by pods.
const EVICTION_DELAY: Duration = Duration::from_secs(340);
const MANAGER: &str = "scheduler";

pub(crate) struct ControlPlane {
    pub(crate) cluster: Cluster,
    pub(crate) random: Random,
    /// The longest duration of each step.
    pub(crate) step: Duration,
    pub(crate) nodes: BTreeMap<String, Watcher<Power>>,
}

impl ControlPlane {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.cluster.changes();
        let (mut collected, mut scheduled) = (0, 0);
        let mut down: BTreeMap<String, Instant> = BTreeMap::new();
        let mut next_eviction = Instant::now() + EVICTION_DELAY;
        let work = async {
            loop {
                changes.observe();
                scheduled = self.schedule_all(scheduled);
                collected = self.cluster.collect(collected);
                if Instant::now() >= next_eviction {
                    next_eviction = Instant::now() + Duration::from_secs(20);
                    self.evict(&mut down);
                }
                tokio::select! {
                    biased;
                    () = changes.changed() => {}
                    () = sleep_until(next_eviction) => {}
                }
                let pause = self.random.up_to(self.step);
                sleep(pause).await;
            }
        };
        let _stopped = stop.run_until_cancelled(work).await.is_none();
    }

    /// Pending pods are scheduled again when a node changes.
    fn schedule_all(&mut self, since: u64) -> u64 {
        let Some(new) = self.cluster.since(since, usize::MAX) else {
            return self.cluster.revision();
        };
        let Some(last) = new.last() else {
            return since;
        };
        if new.iter().any(|change| change.id.kind == Kind::Node) {
            for pod in self.cluster.list(Kind::Pod) {
                self.schedule(&pod);
            }
        } else {
            for change in new.iter().filter(|change| change.id.kind == Kind::Pod) {
                if let Some(pod) = self.cluster.get(&change.id) {
                    self.schedule(&pod);
                }
            }
        }
        last.revision
    }

    fn schedule(&mut self, pod: &Value) {
        if pod["spec"]["nodeName"].is_string() || meta::is_deleting(pod) {
            return;
        }
        let nodes = self.cluster.list(Kind::Node);
        let takes = |node: &&Arc<Value>| {
            meta::label(node, labels::SCHEDULABLE) == Some("true")
                && node["spec"]["unschedulable"] != true
                && !self.is_kept_off(pod, meta::name(node))
        };
        let names: Vec<&str> = nodes
            .iter()
            .filter(takes)
            .map(|node| meta::name(node))
            .collect();
        let id = Id::new(Kind::Pod, meta::namespace(pod), meta::name(pod));
        let (body, author) = if let Some(node) = self.random.pick(&names) {
            (json!({"spec": {"nodeName": node}}), Author::main(MANAGER))
        } else {
            let condition = json!([{"type": "PodScheduled", "status": "False",
                               "reason": "Unschedulable", "message": "no node"}]);
            (
                json!({"status": {"conditions": condition}}),
                Author::status(MANAGER),
            )
        };
        let _scheduled = self.cluster.patch(&id, &Patch::Merge(body), author).is_ok();
    }

    /// Whether a pod must not be on that node, because another one is there: the new pod of a guest that
    /// moves is not on the node of its old one.
    fn is_kept_off(&self, pod: &Value, node: &str) -> bool {
        let terms = &pod["spec"]["affinity"]["podAntiAffinity"];
        let terms = terms["requiredDuringSchedulingIgnoredDuringExecution"].as_array();
        let Some(terms) = terms else { return false };
        let is_there = |other: &Value| {
            let phase = other["status"]["phase"].as_str();
            other["spec"]["nodeName"] == node && !matches!(phase, Some("Succeeded" | "Failed"))
        };
        let pods = self.cluster.list(Kind::Pod);
        terms.iter().any(|term| {
            let wanted = term["labelSelector"]["matchLabels"].as_object();
            let mut others = pods.iter().filter(|other| is_there(other));
            others.any(|other| {
                let has =
                    |(name, value): (&String, &Value)| meta::label(other, name) == value.as_str();
                wanted.is_some_and(|wanted| wanted.iter().all(has))
            })
        })
    }

    fn evict(&self, down: &mut BTreeMap<String, Instant>) {
        for (name, power) in &self.nodes {
            if power.get() == Power::On {
                down.remove(name);
                continue;
            }
            let since = *down.entry(name.clone()).or_insert_with(Instant::now);
            if since.elapsed() < EVICTION_DELAY {
                continue;
            }
            for pod in self.cluster.list(Kind::Pod) {
                if pod["spec"]["nodeName"] == name.as_str() && !meta::is_deleting(&pod) {
                    let id = Id::new(Kind::Pod, meta::namespace(&pod), meta::name(&pod));
                    let _marked = self.cluster.delete(&id, &Deletion::default()).is_ok();
                }
            }
        }
    }
}
