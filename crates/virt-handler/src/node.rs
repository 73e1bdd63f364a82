//! What this agent says about its node: schedulable, alive, where to be reached, what runs here.

use std::{net::SocketAddr, time::Duration};

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kubevirt_api::{annotations, labels};
use reconcile::{Clock, Fragment, Key, error_chain};
use serde_json::{Map, Value, json};
use tokio_util::sync::CancellationToken;

use crate::{capabilities::NodeFacts, guest::ClientHandle};

/// Prefixes of labels that scheduling looks at; the rest of each key is the model or machine.
const MACHINE_TYPE: &str = "machine-type.node.kubevirt.io/";
const CPU_MODEL: &str = "cpu-model.node.kubevirt.io/";
const HOST_MODEL_CPU: &str = "host-model-cpu.node.kubevirt.io/";

/// Its own manager: the guests' fields and these are never in one fragment.
const MANAGER: &str = "virt-handler-node";
/// Between two heartbeats. A node is given up after five minutes without.
const HEARTBEAT: Duration = Duration::from_mins(1);
/// After a heartbeat that did not get through.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(crate) struct NodeReport {
    pub(crate) client: ClientHandle,
    pub(crate) node: String,
    pub(crate) address: SocketAddr,
    pub(crate) facts: NodeFacts,
    pub(crate) clock: Clock,
}

impl NodeReport {
    /// Reports until stopped.
    pub(crate) async fn run(self, stop: CancellationToken) {
        loop {
            let wait = match self.report().await {
                Ok(()) => HEARTBEAT,
                Err(err) => {
                    tracing::warn!(
                        node = self.node,
                        error = error_chain(&err),
                        "heartbeat failed"
                    );
                    RETRY
                }
            };
            tokio::select! {
                () = stop.cancelled() => return,
                () = tokio::time::sleep(wait) => {}
            }
        }
    }

    async fn report(&self) -> Result<(), reconcile::WriteError> {
        let api: Api<Node> = Api::all(self.client.0.clone());
        let key = Key::new("", &self.node);
        let body = fragment(
            &self.node,
            self.address,
            &self.facts,
            &self.clock.now().to_string(),
        );
        let fragment = Fragment {
            manager: MANAGER,
            key: &key,
            subresource: None,
            body,
        };
        reconcile::apply(&api, &fragment).await.map(drop)
    }
}

fn fragment(node: &str, address: SocketAddr, facts: &NodeFacts, now: &str) -> Value {
    let mut marks = Map::new();
    marks.insert(labels::SCHEDULABLE.to_owned(), "true".into());
    for machine in &facts.machine_types {
        marks.insert(format!("{MACHINE_TYPE}{machine}"), "true".into());
    }
    for model in &facts.cpu_models {
        marks.insert(format!("{CPU_MODEL}{model}"), "true".into());
    }
    if let Some(model) = &facts.host_model {
        marks.insert(format!("{HOST_MODEL_CPU}{model}"), "true".into());
    }
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": node,
            "labels": marks,
            "annotations": {
                annotations::HEARTBEAT: now,
                annotations::HANDLER_ADDRESS: address.to_string(),
            },
        },
    })
}
