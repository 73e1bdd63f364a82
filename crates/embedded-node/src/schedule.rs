//! Pure check whether a pod may run on this node, regardless of other pods. Together with
//! `affinity`, free devices (`devices`) and free capacity (`slots`) this is the whole scheduler:
//! there is one node.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod};

use crate::{affinity, devices};

/// Why a pod cannot be bound.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Obstacle {
    /// The message of a scheduler.
    Unschedulable(String),
    /// The pod's volumes are being made.
    Volumes,
}

/// A scheduler's message why the pod stays unbound; `None` when it fits.
pub(crate) fn obstacle(pod: &Pod, node: &Node) -> Option<String> {
    let spec = pod.spec.as_ref()?;
    let empty = BTreeMap::new();
    let labels = node.metadata.labels.as_ref().unwrap_or(&empty);
    for (name, value) in spec.node_selector.iter().flatten() {
        if labels.get(name) != Some(value) {
            return Some(format!(
                "0/1 nodes are available: the node does not have label {name}={value} of the \
                 pod's nodeSelector"
            ));
        }
    }
    if !affinity::admits(pod, node) {
        let why = "0/1 nodes are available: 1 node(s) didn't match Pod's node affinity/selector";
        return Some(why.into());
    }
    if spec.resource_claims.iter().flatten().next().is_some() {
        let why = "0/1 nodes are available: a single host has no drivers for the pod's resourceClaims; use device \
                   plugins (deviceName), or a cluster";
        return Some(why.into());
    }
    if node
        .spec
        .as_ref()
        .is_some_and(|spec| spec.unschedulable == Some(true))
    {
        return Some("0/1 nodes are available: the node is cordoned (uncordon it)".into());
    }
    let allocatable = node
        .status
        .as_ref()
        .and_then(|status| status.allocatable.as_ref());
    spec.containers
        .iter()
        .flat_map(devices::requested)
        .map(|(name, _)| name)
        .find(|name| {
            allocatable
                .and_then(|all| all.get(*name))
                .is_none_or(|amount| amount.0 == "0")
        })
        .map(|name| format!("0/1 nodes are available: the node has no {name}"))
}

/// Whether this node's scheduler is responsible for the pod.
pub(crate) fn is_ours_to_bind(pod: &Pod) -> bool {
    let Some(spec) = &pod.spec else { return false };
    spec.node_name.as_deref().unwrap_or_default().is_empty()
        && pod.metadata.deletion_timestamp.is_none()
        && spec.scheduling_gates.as_ref().is_none_or(Vec::is_empty)
        && spec
            .scheduler_name
            .as_deref()
            .is_none_or(|name| name == "default-scheduler")
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn pod_is_bound_only_if_it_fits() {
        let node: Node = serde_json::from_value(json!({
            "metadata": {"labels": {"a": "b"}},
            "status": {"allocatable": {"devices.kubevirt.io/tun": "10"}},
        }))
        .unwrap();
        let check = |spec: Value, expected: Option<&str>| {
            let mut spec = spec;
            if spec.get("containers").is_none() {
                spec["containers"] = json!([]);
            }
            let pod: Pod = serde_json::from_value(json!({"spec": spec})).unwrap();
            let got = obstacle(&pod, &node);
            match expected {
                None => assert_eq!(got, None, "{spec}"),
                Some(part) => assert!(got.unwrap().contains(part), "{spec}"),
            }
        };
        let wants = |name: &str| json!({"containers": [{"name": "c", "resources": {"limits": {name: "1"}}}]});
        check(json!({}), None);
        check(json!({"nodeSelector": {"a": "b"}}), None);
        check(
            json!({"resourceClaims": [{"name": "gpu", "resourceClaimName": "gpu"}]}),
            Some("resourceClaims"),
        );
        check(
            json!({"nodeSelector": {"a": "c"}}),
            Some("does not have label a=c"),
        );
        check(wants("devices.kubevirt.io/tun"), None);
        check(
            wants("devices.kubevirt.io/kvm"),
            Some("no devices.kubevirt.io/kvm"),
        );
        check(wants("memory"), None);
    }

    #[test]
    fn gated_bound_and_foreign_pods_are_ignored() {
        for (pod, ours) in [
            (json!({"spec": {"containers": []}}), true),
            (json!({"spec": {"containers": [], "nodeName": "x"}}), false),
            (
                json!({"spec": {"containers": [], "schedulerName": "mine"}}),
                false,
            ),
            (
                json!({"spec": {"containers": [], "schedulingGates": [{"name": "g"}]}}),
                false,
            ),
        ] {
            assert_eq!(is_ours_to_bind(&serde_json::from_value(pod).unwrap()), ours);
        }
    }
}
