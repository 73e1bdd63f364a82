//! How far the last migration of a guest is: whether it is under way, and whether the guest has reached its target.

use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::migration::VirtualMachineInstanceMigrationState as State;

use crate::arrival::has_arrived;
use crate::decentralized::{MigrationEnd, has_come, migration_end};

/// Whether the guest belongs to the target of its last migration. The node of the VMI shows that, or, if the
/// guest does not leave its node, that it has arrived. A VMI whose guest goes to another VMI keeps its pod, and one
/// that gets it from there has it from its arrival on.
pub fn has_moved(vmi: &VirtualMachineInstance) -> bool {
    match migration_end(vmi) {
        Some(MigrationEnd::Source) => return false,
        Some(MigrationEnd::Target) => return has_come(vmi),
        None => {}
    }
    let Some(status) = vmi.status.as_ref() else {
        return false;
    };
    let Some(state) = status.migration_state.as_ref() else {
        return false;
    };
    let is_at_target = state.target_node.is_some() && state.target_node == status.node_name;
    is_at_target && (!is_within_node(state) || has_arrived(state))
}

/// Whether a migration was handed to the nodes, and the VMI shows neither that it has failed nor that the guest has
/// moved: nothing that either pod has changes meanwhile.
pub fn is_under_way(vmi: &VirtualMachineInstance) -> bool {
    let status = vmi.status.as_ref();
    let state = status.and_then(|status| status.migration_state.as_ref());
    state.is_some_and(|state| {
        let is_known = state.migration_uid.is_some();
        is_known && state.failed != Some(true) && !has_moved(vmi)
    })
}

/// Whether this migration moves the guest without leaving its node.
pub fn is_within_node(state: &State) -> bool {
    state.target_node.is_some() && state.source_node == state.target_node
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn migration_is_under_way_until_the_vmi_shows_its_end() {
        let check = |node: &str, change: Value, expected: bool| {
            let mut state = json!({"migrationUid": "m", "sourceNode": "n1", "targetNode": "n2"});
            for (name, value) in change.as_object().expect("is an object") {
                state[name] = value.clone();
            }
            let vmi: VirtualMachineInstance = serde_json::from_value(json!({
                "metadata": {}, "spec": {"domain": {"devices": {}}},
                "status": {"nodeName": node, "migrationState": state},
            }))
            .expect("is a VMI");
            assert_eq!(is_under_way(&vmi), expected, "{node} {change}");
        };
        check("n1", json!({}), true);
        check("n1", json!({"completed": true}), true);
        // The old node may be lost before it reports the end.
        check("n2", json!({}), false);
        check("n2", json!({"completed": true}), false);
        check("n1", json!({"completed": true, "failed": true}), false);
        check("n1", json!({"migrationUid": null}), false);
        assert!(!is_under_way(&VirtualMachineInstance::default()));
    }

    #[test]
    fn guest_has_moved_when_its_node_or_its_arrival_says_so() {
        let check = |[source, target]: [&str; 2], node: &str, change: Value, expected: bool| {
            let mut state = json!({"sourceNode": source, "targetNode": target});
            for (name, value) in change.as_object().expect("is an object") {
                state[name] = value.clone();
            }
            let vmi: VirtualMachineInstance = serde_json::from_value(json!({
                "metadata": {}, "spec": {"domain": {"devices": {}}},
                "status": {"nodeName": node, "migrationState": state},
            }))
            .expect("is a VMI");
            assert_eq!(
                has_moved(&vmi),
                expected,
                "{source} {target} {node} {change}"
            );
        };
        let over = || json!({"completed": true});
        let failed = || json!({"completed": true, "failed": true});
        let ready = || json!({"targetNodeDomainReadyTimestamp": "2026-11-21T12:00:00Z"});
        // Between nodes, virt-controller decides by the node.
        check(["n1", "n2"], "n1", over(), false);
        check(["n1", "n2"], "n2", json!({}), true);
        check(["n1", "n2"], "n2", over(), true);
        // Within a node, virt-handler does by what it reports.
        check(["n1", "n1"], "n1", json!({}), false);
        check(["n1", "n1"], "n1", failed(), false);
        check(["n1", "n1"], "n1", over(), true);
        check(["n1", "n1"], "n1", ready(), true);
        assert!(!has_moved(&VirtualMachineInstance::default()));
    }
}
