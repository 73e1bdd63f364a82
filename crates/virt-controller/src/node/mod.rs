//! The node controller: marks nodes without heartbeats as unschedulable, and triggers their VMIs. It also
//! labels nodes with the frequencies of the time stamp counter that they can offer to guests.
//!
//! The VMI controller decides what happens to a VMI (`vmi/plan.rs`).

mod frequencies;
mod heartbeats;

use std::sync::Arc;
use std::time::Duration;

use cluster_view::Configuration;
use kube::{Api, Client, ResourceExt as _};
use kubevirt_api::labels;
use reasons::Reason;
use reconcile::{
    Fragment, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, Triggers,
    WriteError, apply_reported, merge,
};
use serde_json::json;

use crate::gate::Gate;
use crate::view::{Guest, Host};
use crate::wiring::Wiring;
use crate::{MANAGER, tsc};

pub(crate) use frequencies::guest_frequency;
pub(crate) use heartbeats::Heartbeats;

const NODE: &str = "node";

#[derive(Clone)]
struct Controller {
    client: Client,
    hosts: Store<Host>,
    heartbeats: Heartbeats,
    vmis: Store<Guest>,
    /// The queue of the VMI controller.
    vmi_triggers: Triggers,
    recorder: Recorder,
    clock: reconcile::Clock,
    cluster: Configuration,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let hosts = wiring.caches.hosts.store();
    let heartbeats = wiring.caches.heartbeats.clone();
    let (queue, known, clock) = (gate.clone(), hosts.clone(), wiring.settings.clock);
    wiring.caches.hosts.on_change(move |host| {
        let key = Key::of(host);
        match known.get(&key) {
            Some(host) => heartbeats.note(&host, clock.now()),
            None => heartbeats.forget(&key.name),
        }
        queue.add(key, NODE);
    });
    let controller = Controller {
        client: wiring.settings.client.clone(),
        hosts: hosts.clone(),
        heartbeats: wiring.caches.heartbeats.clone(),
        vmis: wiring.caches.guests.store(),
        vmi_triggers: wiring.vmi_gate.triggers(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
        cluster: wiring.cluster.clone(),
    };
    wiring.controller(&gate, &hosts, move || controller.clone());
}

#[derive(Debug, thiserror::Error)]
enum NodeError {
    #[error("mark the node")]
    Mark(#[source] WriteError),
    #[error("label the node with frequencies of the time stamp counter")]
    Label(#[source] WriteError),
}

impl ReconcileError for NodeError {
    fn reason(&self) -> Reason {
        Reason::FailedUpdate
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Mark(source) | Self::Label(source) => source.retry(),
        }
    }
}

/// The step that follows from the state of a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Wait(Option<Duration>),
    /// The node is gone, or lost and marked: trigger its VMIs.
    TriggerGuests,
    /// The node is lost: mark it, then trigger its VMIs.
    Mark,
}

fn plan(host: Option<&Host>, lost_in: Option<Duration>) -> Step {
    match (host, lost_in) {
        (Some(host), Some(Duration::ZERO)) if host.is_schedulable => Step::Mark,
        (None, _) | (Some(_), Some(Duration::ZERO)) => Step::TriggerGuests,
        (Some(_), wait) => Step::Wait(wait),
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "node";
    type Error = NodeError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, NodeError> {
        let host = self.hosts.get(key);
        let host = match host {
            Some(host) => Some(self.label(key, host).await?),
            None => None,
        };
        let lost_in = self.heartbeats.lost_in(&key.name, self.clock.now());
        match plan(host.as_deref(), lost_in) {
            Step::Wait(wait) => return Ok(wait.map_or(Requeue::OnChange, Requeue::After)),
            Step::TriggerGuests => {}
            Step::Mark => {
                if let Some(host) = host {
                    self.mark(key, &host).await?;
                }
            }
        }
        self.trigger_guests(&key.name);
        Ok(Requeue::OnChange)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.hosts.get(key)?.metadata.uid.clone()
    }
}

impl Controller {
    /// Marks the node as unschedulable. virt-handler marks it schedulable again with its next
    /// heartbeat.
    async fn mark(&self, key: &Key, host: &Arc<Host>) -> Result<(), NodeError> {
        tracing::warn!(node = key.name, "no heartbeat for five minutes");
        let body = json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": key.name,
                "resourceVersion": host.resource_version(),
                "labels": {labels::SCHEDULABLE: "false"},
            },
        });
        let fragment = Fragment::new(MANAGER, key, body);
        let api = Api::<Host>::all(self.client.clone());
        match apply_reported(&api, &fragment, host.as_ref(), &self.recorder).await {
            Ok(marked) => {
                self.hosts.wrote(host, marked);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(NodeError::Mark(error)),
        }
    }

    /// Labels the node with the frequencies that it can offer. Every heartbeat leads here, so that all nodes
    /// follow a change on one of them within a minute.
    async fn label(&self, key: &Key, host: Arc<Host>) -> Result<Arc<Host>, NodeError> {
        let (config, hosts, vmis) = (self.cluster.now(), self.hosts.list(), self.vmis.list());
        let offered = frequencies::offered(&host, &config, &hosts, &vmis);
        if offered == host.tsc_frequencies {
            return Ok(host);
        }
        let body = json!({"metadata": {
            "resourceVersion": host.resource_version(),
            "labels": tsc::label_changes(&host.tsc_frequencies, &offered),
        }});
        let api = Api::<Host>::all(self.client.clone());
        match merge(&api, MANAGER, key, &body).await {
            Ok(labelled) => {
                self.hosts.wrote(&host, labelled.clone());
                Ok(Arc::new(labelled))
            }
            Err(WriteError::NotFound { .. }) => Ok(host),
            Err(error) => Err(NodeError::Label(error)),
        }
    }

    fn trigger_guests(&self, node: &str) {
        for vmi in self.vmis.list() {
            if vmi.status.node_name.as_deref() == Some(node) && !vmi.is_final() {
                self.vmi_triggers.add(Key::of(vmi.as_ref()), NODE);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lost_node_is_marked_once() {
        let schedulable = Host {
            is_schedulable: true,
            ..Host::default()
        };
        let marked = Host::default();
        let minute = Some(Duration::from_mins(1));
        assert_eq!(plan(Some(&schedulable), minute), Step::Wait(minute));
        assert_eq!(plan(Some(&schedulable), None), Step::Wait(None));
        let now = Some(Duration::ZERO);
        assert_eq!(plan(Some(&schedulable), now), Step::Mark);
        assert_eq!(plan(Some(&marked), now), Step::TriggerGuests);
        assert_eq!(plan(None, now), Step::TriggerGuests);
    }
}
