//! The policy for virt-handlers: what the credentials of one node may change.

use kubevirt_api::{annotations, labels};
use serde_json::{Value, json};

use crate::HANDLER_ACCOUNT;

const AGENTS: &str = "ferrovirt-node-agents";
/// The API server's extra attribute of a token that is bound to a pod.
const NODE: &str = "authentication.kubernetes.io/node-name";

/// Refuses all changes but those of a virt-handler's own labels and annotations of its node, and of the status of
/// the VMIs on it.
pub(super) fn agents() -> Value {
    let rule = |group: &str, version: &str, resources: &[&str]| {
        json!({
            "apiGroups": [group], "apiVersions": [version], "resources": resources,
            "operations": ["CREATE", "UPDATE", "DELETE"], "scope": "*",
        })
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": AGENTS},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [
                rule("", "v1", &["nodes", "nodes/*"]),
                rule("kubevirt.io", "*", &["virtualmachineinstances", "virtualmachineinstances/*"]),
            ]},
            "matchConditions": [{
                "name": "node-agents",
                "expression": format!(
                    "request.userInfo.username.startsWith('system:serviceaccount:') && \
                     request.userInfo.username.endsWith(':{HANDLER_ACCOUNT}')"
                ),
            }],
            "variables": variables(),
            "validations": validations(),
        },
    })
}

fn variables() -> Value {
    json!([
        {
            "name": "node",
            "expression": format!(
                "'{NODE}' in request.userInfo.extra ? request.userInfo.extra['{NODE}'][0] : ''"
            ),
        },
        {
            // The node of the existing object: an update cannot choose another one.
            "name": "objectNode",
            "expression": "request.kind.kind == 'Node' ? request.name : \
                           oldObject != null && has(oldObject.status) && has(oldObject.status.nodeName) ? \
                           oldObject.status.nodeName : ''",
        },
        {
            // A guest that is on the way to another node: that one reports on its arrival.
            "name": "comingNode",
            "expression": "request.kind.kind == 'VirtualMachineInstance' && oldObject != null && has(oldObject.status) && \
                           has(oldObject.status.migrationState) && has(oldObject.status.migrationState.targetNode) && \
                           !(has(oldObject.status.migrationState.completed) && oldObject.status.migrationState.completed) ? \
                           oldObject.status.migrationState.targetNode : ''",
        },
        {"name": "labels", "expression": changed("labels")},
        {"name": "annotations", "expression": changed("annotations")},
        {
            "name": "foreign",
            "expression": format!(
                "variables.labels.filter(key, request.kind.kind != 'Node' || !(key in [{}] || \
                 [{}].exists(prefix, key.startsWith(prefix)))) + \
                 variables.annotations.filter(key, request.kind.kind != 'Node' || !(key in [{}]))",
                quoted(&labels::HANDLER_NODE_LABELS),
                quoted(&labels::HANDLER_NODE_PREFIXES),
                quoted(&annotations::HANDLER_NODE_ANNOTATIONS),
            ),
        },
    ])
}

fn validations() -> Value {
    json!([
        {
            "expression": "request.operation == 'UPDATE'",
            "messageExpression": "'virt-handler of node ' + variables.node + ' may not create or delete ' + request.resource.resource",
            "reason": "Forbidden",
        },
        {
            "expression": "variables.node != '' && (variables.objectNode == variables.node || variables.comingNode == variables.node)",
            "messageExpression": "'virt-handler of node ' + variables.node + ' may change only objects of its node; this one is on ' + \
                                  (variables.objectNode == '' ? 'no node' : variables.objectNode)",
            "reason": "Forbidden",
        },
        {
            "expression": "object == null || oldObject == null || object.?spec == oldObject.?spec",
            "message": "virt-handler may change only the status of an object, not its spec",
            "reason": "Forbidden",
        },
        {
            "expression": "variables.foreign.size() == 0",
            "messageExpression": "'virt-handler may not change ' + variables.foreign.join(', ') + ': of a node it may change \
                                  its own labels and annotations, and of other objects none'",
            "reason": "Forbidden",
        },
        {
            "expression": format!(
                "{} == {} && {} == {}",
                metadata("object", "ownerReferences", "[]"),
                metadata("oldObject", "ownerReferences", "[]"),
                metadata("object", "finalizers", "[]"),
                metadata("oldObject", "finalizers", "[]"),
            ),
            "message": "virt-handler may not change owner references or finalizers",
            "reason": "Forbidden",
        },
    ])
}

/// The keys that an update adds, changes or removes.
fn changed(field: &str) -> String {
    let (new, old) = (
        metadata("object", field, "{}"),
        metadata("oldObject", field, "{}"),
    );
    format!(
        "{new}.filter(key, !(key in {old}) || {old}[key] != {new}[key]) + {old}.filter(key, !(key in {new}))"
    )
}

/// A field of the metadata, or this default. A deletion has no new object, and a creation no old one.
fn metadata(object: &str, field: &str, default: &str) -> String {
    format!(
        "({object} != null && has({object}.metadata.{field}) ? {object}.metadata.{field} : {default})"
    )
}

fn quoted(items: &[&str]) -> String {
    let items: Vec<String> = items.iter().map(|item| format!("'{item}'")).collect();
    items.join(", ")
}

#[cfg(test)]
mod tests {
    use apimachinery::cel;

    use super::*;

    /// The messages of the validations that refuse an update of `old` to `new` by the virt-handler of `n1`. The check
    /// of the spec is left to a real API server: it uses optional fields.
    fn refusals(kind: &str, old: &Value, new: &Value) -> Vec<String> {
        let request = json!({
            "operation": "UPDATE", "name": "n1", "kind": {"kind": kind},
            "resource": {"resource": "any"},
            "userInfo": {"extra": {NODE: ["n1"]}},
        });
        let objects = [("request", &request), ("oldObject", old), ("object", new)];
        let policy = agents();
        let variables = policy["spec"]["variables"].as_array().unwrap();
        let inline = |expression: &Value| {
            // Later variables use earlier ones.
            let all = variables.iter().rev();
            all.fold(text(expression), |expression, variable| {
                let name = format!("variables.{}", text(&variable["name"]));
                expression.replace(&name, &format!("({})", text(&variable["expression"])))
            })
        };
        let validations = policy["spec"]["validations"].as_array().unwrap();
        let all = validations.iter();
        all.filter(|one| !text(&one["expression"]).contains(".?"))
            .filter(|one| !cel::holds(&inline(&one["expression"]), &objects).unwrap())
            .map(|one| text(&one["message"]) + &text(&one["messageExpression"]))
            .collect()
    }

    fn text(value: &Value) -> String {
        value.as_str().unwrap_or_default().to_owned()
    }

    fn node(metadata: &Value) -> Value {
        json!({"metadata": metadata})
    }

    fn vmi(metadata: &Value, on: &str) -> Value {
        json!({"metadata": metadata, "status": {"nodeName": on}})
    }

    fn check(kind: &str, old: &Value, new: &Value, expected: &str) {
        let found = refusals(kind, old, new);
        let is_expected = match found.as_slice() {
            [] => expected.is_empty(),
            [one] => !expected.is_empty() && one.contains(expected),
            _ => false,
        };
        assert!(is_expected, "{old} to {new}: {found:?}");
    }

    #[test]
    fn own_labels_and_annotations_of_the_own_node_may_change() {
        let old = node(
            &json!({"labels": {"a": "b", "cpumanager": "true", "cpu-model.node.kubevirt.io/x": "true"},
                               "annotations": {"c": "d"}}),
        );
        let new = node(
            &json!({"labels": {"a": "b", "kubevirt.io/schedulable": "true",
                                          "hyperv.node.kubevirt.io/vpindex": "true"},
                               "annotations": {"c": "d", "kubevirt.io/heartbeat": "now"}}),
        );
        check("Node", &old, &new, "");
        check("Node", &node(&json!({})), &new, "may not change");
        check("Node", &node(&json!({})), &node(&json!({})), "");
    }

    /// The classes of CVE-2023-26484 and CVE-2024-33394: what a taken-over node could reach with the credentials
    /// of its virt-handler.
    #[test]
    fn taken_over_node_cannot_mark_itself_or_own_anything() {
        let plain = node(&json!({}));
        for key in [
            "node-role.kubernetes.io/control-plane",
            "node-restriction.kubernetes.io/secret",
            "kubernetes.io/hostname",
            "topology.kubernetes.io/zone",
            "kubevirt.io/nodeName",
            "kubevirt.io/schedulable.example.com",
        ] {
            let with = node(&json!({"labels": {key: "x"}}));
            check("Node", &plain, &with, "'virt-handler may not change '");
            check("Node", &with, &plain, "'virt-handler may not change '");
            let with = node(&json!({"annotations": {key: "x"}}));
            check("Node", &plain, &with, "'virt-handler may not change '");
        }
        let owner = json!([{"kind": "Pod", "name": "p"}]);
        let owned = node(&json!({"ownerReferences": owner}));
        check("Node", &plain, &owned, "owner references or finalizers");
        let held = node(&json!({"finalizers": ["example.com/hold"]}));
        check("Node", &plain, &held, "owner references or finalizers");
    }

    #[test]
    fn target_of_a_migration_may_report_on_the_guest_until_it_arrived() {
        let vmi = |state: Value| json!({"metadata": {}, "status": {"nodeName": "n2", "migrationState": state}});
        for (state, expected) in [
            (json!({"targetNode": "n1"}), ""),
            (json!({"targetNode": "n1", "completed": false}), ""),
            (
                json!({"targetNode": "n1", "completed": true}),
                "this one is on",
            ),
            (json!({"targetNode": "n3"}), "this one is on"),
            (json!({}), "this one is on"),
        ] {
            let vmi = vmi(state);
            check("VirtualMachineInstance", &vmi, &vmi, expected);
        }
    }

    #[test]
    fn metadata_of_a_vmi_stays() {
        let plain = vmi(&json!({"labels": {"a": "b"}}), "n1");
        check("VirtualMachineInstance", &plain, &plain, "");
        check(
            "VirtualMachineInstance",
            &vmi(&json!({}), "n2"),
            &vmi(&json!({}), "n2"),
            "this one is on",
        );
        for changed in [
            json!({"labels": {"a": "c"}}),
            json!({}),
            json!({"labels": {"a": "b"}, "annotations": {"kubevirt.io/heartbeat": "x"}}),
        ] {
            check(
                "VirtualMachineInstance",
                &plain,
                &vmi(&changed, "n1"),
                "'virt-handler may not change '",
            );
        }
        let freed = vmi(&json!({"labels": {"a": "b"}, "finalizers": []}), "n1");
        let held = vmi(
            &json!({"labels": {"a": "b"}, "finalizers": ["foregroundDeleteVirtualMachine"]}),
            "n1",
        );
        check(
            "VirtualMachineInstance",
            &held,
            &freed,
            "owner references or finalizers",
        );
    }
}
