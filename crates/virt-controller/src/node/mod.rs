//! The node controller: marks nodes whose agent is silent, and has their VMIs looked at.
//!
//! What becomes of a VMI is decided where VMIs are (`vmi/plan.rs`); here is only known when.

mod heartbeats;

use std::sync::Arc;
use std::time::Duration;

use kube::{Api, Client, ResourceExt as _};
use kubevirt_api::labels;
use reasons::Reason;
use reconcile::{
    Fragment, Key, ReconcileError, Reconciler, Requeue, Retry, Store, Triggers, WriteError, apply,
};
use serde_json::json;

use crate::MANAGER;
use crate::view::{Guest, Host};

pub(crate) use heartbeats::Heartbeats;

pub(crate) struct Controller {
    pub(crate) client: Client,
    pub(crate) hosts: Store<Host>,
    pub(crate) heartbeats: Heartbeats,
    pub(crate) vmis: Store<Guest>,
    /// Of the VMI controller.
    pub(crate) vmi_triggers: Triggers,
    pub(crate) clock: reconcile::Clock,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum NodeError {
    #[error("mark the node")]
    Mark(#[source] WriteError),
}

impl ReconcileError for NodeError {
    fn reason(&self) -> Reason {
        Reason::FailedUpdate
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Mark(source) => source.retry(),
        }
    }
}

/// What a node's state asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    Wait(Option<Duration>),
    /// It is lost, or gone: look at its VMIs; and say so on it.
    Lost {
        mark: bool,
    },
}

fn plan(host: Option<&Host>, lost_in: Option<Duration>) -> Step {
    match (host, lost_in) {
        (None, _) => Step::Lost { mark: false },
        (Some(host), Some(Duration::ZERO)) => Step::Lost {
            mark: host.is_schedulable,
        },
        (Some(_), wait) => Step::Wait(wait),
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "node";
    type Error = NodeError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, NodeError> {
        let host = self.hosts.get(key);
        let lost_in = self.heartbeats.lost_in(&key.name, self.clock.now());
        match plan(host.as_deref(), lost_in) {
            Step::Wait(wait) => Ok(wait.map_or(Requeue::OnChange, Requeue::After)),
            Step::Lost { mark } => {
                if mark && let Some(host) = host {
                    self.mark(key, &host).await?;
                }
                self.wake_guests(&key.name);
                Ok(Requeue::OnChange)
            }
        }
    }
}

impl Controller {
    /// Says that the node takes no more pods. Its agent takes that back when it is heard again.
    async fn mark(&self, key: &Key, host: &Arc<Host>) -> Result<(), NodeError> {
        tracing::warn!(node = key.name, "no heartbeat for five minutes");
        let fragment = Fragment {
            manager: MANAGER,
            key,
            subresource: None,
            body: json!({
                "apiVersion": "v1",
                "kind": "Node",
                "metadata": {
                    "name": key.name,
                    "resourceVersion": host.resource_version(),
                    "labels": {labels::SCHEDULABLE: "false"},
                },
            }),
        };
        let api = Api::<Host>::all(self.client.clone());
        match apply(&api, &fragment).await {
            Ok(marked) => {
                self.hosts.wrote(host, marked);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(NodeError::Mark(error)),
        }
    }

    fn wake_guests(&self, node: &str) {
        for vmi in self.vmis.list() {
            if vmi.status.node_name.as_deref() == Some(node) && !vmi.is_final() {
                self.vmi_triggers.add(Key::of(vmi.as_ref()));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_node_is_marked_once_and_one_that_is_heard_waits() {
        let takes = Host {
            is_schedulable: true,
            ..Host::default()
        };
        let marked = Host::default();
        let minute = Some(Duration::from_mins(1));
        assert_eq!(plan(Some(&takes), minute), Step::Wait(minute));
        assert_eq!(plan(Some(&takes), None), Step::Wait(None));
        let now = Some(Duration::ZERO);
        assert_eq!(plan(Some(&takes), now), Step::Lost { mark: true });
        assert_eq!(plan(Some(&marked), now), Step::Lost { mark: false });
        assert_eq!(plan(None, now), Step::Lost { mark: false });
    }
}
