//! The rest of the control plane: a scheduler, the garbage collector, and what removes pods from
//! nodes that are not heard of.

use std::collections::BTreeMap;
use std::time::Duration;

use apimachinery::meta;
use kubevirt_api::labels;
use serde_json::{Value, json};
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::cluster::{By, Cluster, Deletion, Id, Kind, Patch};
use crate::nodes::Power;
use crate::random::Random;
use crate::told::Listener;

/// As usual: 40 s until a node counts as unreachable, 5 min that pods put up with it.
const GIVEN_UP: Duration = Duration::from_secs(340);
const MANAGER: &str = "scheduler";

pub(crate) struct Plane {
    pub(crate) cluster: Cluster,
    pub(crate) random: Random,
    /// Longest time for each step.
    pub(crate) step: Duration,
    pub(crate) nodes: BTreeMap<String, Listener<Power>>,
}

impl Plane {
    pub(crate) async fn run(mut self, stop: CancellationToken) {
        let mut changes = self.cluster.changes();
        let (mut collected, mut placed) = (0, 0);
        let mut down: BTreeMap<String, Instant> = BTreeMap::new();
        let mut look = Instant::now() + GIVEN_UP;
        let work = async {
            loop {
                changes.hear();
                placed = self.place_all(placed);
                collected = self.cluster.collect(collected);
                if Instant::now() >= look {
                    look = Instant::now() + Duration::from_secs(20);
                    self.give_up(&mut down);
                }
                tokio::select! {
                    biased;
                    () = changes.changed() => {}
                    () = sleep_until(look) => {}
                }
                let pause = self.random.up_to(self.step);
                sleep(pause).await;
            }
        };
        let _stopped = stop.run_until_cancelled(work).await.is_none();
    }

    /// Pods that wait for a node are looked at again when a node changes.
    fn place_all(&mut self, since: u64) -> u64 {
        let Some(news) = self.cluster.since(since, usize::MAX) else {
            return self.cluster.revision();
        };
        let Some(last) = news.last() else {
            return since;
        };
        if news.iter().any(|change| change.id.kind == Kind::Node) {
            for pod in self.cluster.list(Kind::Pod) {
                self.place(&pod);
            }
        } else {
            for change in news.iter().filter(|change| change.id.kind == Kind::Pod) {
                if let Some(pod) = self.cluster.get(&change.id) {
                    self.place(&pod);
                }
            }
        }
        last.revision
    }

    fn place(&mut self, pod: &Value) {
        if pod["spec"]["nodeName"].is_string() || meta::is_deleting(pod) {
            return;
        }
        let nodes = self.cluster.list(Kind::Node);
        let takes =
            |node: &&std::sync::Arc<Value>| meta::label(node, labels::SCHEDULABLE) == Some("true");
        let names: Vec<&str> = nodes
            .iter()
            .filter(takes)
            .map(|node| meta::name(node))
            .collect();
        let id = Id::new(Kind::Pod, meta::namespace(pod), meta::name(pod));
        let (body, by) = if let Some(node) = self.random.pick(&names) {
            (json!({"spec": {"nodeName": node}}), By::whole(MANAGER))
        } else {
            let says = json!([{"type": "PodScheduled", "status": "False",
                               "reason": "Unschedulable", "message": "no node"}]);
            (json!({"status": {"conditions": says}}), By::status(MANAGER))
        };
        let _placed = self.cluster.patch(&id, &Patch::Merge(body), by).is_ok();
    }

    fn give_up(&self, down: &mut BTreeMap<String, Instant>) {
        for (name, power) in &self.nodes {
            if power.get() == Power::On {
                down.remove(name);
                continue;
            }
            let since = *down.entry(name.clone()).or_insert_with(Instant::now);
            if since.elapsed() < GIVEN_UP {
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
