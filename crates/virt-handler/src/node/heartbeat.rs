//! The heartbeat: labels and annotations of the node under virt-handler's own field manager.

use std::fs;

use k8s_openapi::{api::core::v1::Node, apimachinery::pkg::apis::meta::v1::ObjectMeta};
use kubevirt_api::{annotations, labels};
use reconcile::{Fragment, Key, WriteError};
use serde::Deserialize;
use serde_json::{Value, json};

use super::{
    report::{MANAGER, NodeReport},
    requirements,
};

const CPU_MANAGER_STATE: &str = "cpu_manager_state";

/// Whether guests may be scheduled to the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Schedulable {
    Yes,
    No,
}

/// Whether the kubelet assigns exclusive CPUs to containers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum CpuManager {
    Static,
    Other,
}

impl NodeReport {
    pub(super) async fn beat(&self, schedulable: Schedulable) -> Result<Node, WriteError> {
        let state = self.parts.kubelet_dir.join(CPU_MANAGER_STATE);
        let cpu_manager = cpu_manager(&fs::read(state).unwrap_or_default());
        let key = Key::new("", &self.parts.node);
        let fragment = Fragment::new(MANAGER, &key, self.fragment(schedulable, cpu_manager));
        let node = Node {
            metadata: ObjectMeta {
                name: Some(self.parts.node.clone()),
                ..ObjectMeta::default()
            },
            ..Node::default()
        };
        reconcile::apply_reported(&self.api(), &fragment, &node, &self.parts.recorder).await
    }

    fn fragment(&self, schedulable: Schedulable, cpu_manager: CpuManager) -> Value {
        let schedulable = schedulable == Schedulable::Yes;
        let pins_cpus = cpu_manager == CpuManager::Static;
        json!({
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": self.parts.node,
                "labels": {
                    labels::SCHEDULABLE: schedulable.to_string(),
                    labels::CPU_MANAGER: pins_cpus.to_string(),
                    labels::CPU_MANAGER_OLD: pins_cpus.to_string(),
                },
                "annotations": {
                    annotations::HEARTBEAT: self.parts.clock.now().to_string(),
                    annotations::HANDLER_ADDRESS: self.parts.address.to_string(),
                    annotations::MISSING_REQUIREMENTS:
                        requirements::annotation(&self.missing_requirements()),
                },
            },
        })
    }
}

/// Reads the kubelet's state file of its CPU manager.
pub(super) fn cpu_manager(state: &[u8]) -> CpuManager {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct State {
        policy_name: String,
    }
    match serde_json::from_slice::<State>(state) {
        Ok(state) if state.policy_name == "static" => CpuManager::Static,
        // No kubelet, another policy, or an unknown format.
        _ => CpuManager::Other,
    }
}
