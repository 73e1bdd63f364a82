//! Objects and users.

use embedded_api::Identity;
use serde_json::{Value, json};
use test_cluster::NAMESPACE;

use super::Environment;

/// An administrator.
pub(crate) fn user() -> Identity {
    Identity::new("admin", &["system:masters"])
}

/// A VM that does not run, with a claim, a seed and two networks.
pub(crate) fn vm(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": {"runStrategy": "Halted", "template": {"spec": spec()}},
    })
}

/// Its guest.
pub(crate) fn vmi(name: &str) -> Value {
    json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstance",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "spec": spec(),
        "status": {
            "phase": "Running", "nodeName": "node1",
            "interfaces": [{"name": "default", "ipAddress": "10.0.2.2", "ipAddresses": ["10.0.2.2"],
                            "mac": "02:00:00:00:00:01", "interfaceName": "eth0"}],
            "volumeStatus": [{"name": "root", "target": "vda"}],
            "conditions": [{"type": "Ready", "status": "True", "lastTransitionTime": "2026-11-21T12:00:00Z",
                            "lastProbeTime": null}],
        },
    })
}

fn spec() -> Value {
    json!({
        "domain": {
            "cpu": {"cores": 2}, "memory": {"guest": "1Gi"},
            "devices": {
                "disks": [{"name": "root", "disk": {"bus": "virtio"}}, {"name": "seed", "disk": {"bus": "virtio"}}],
                "interfaces": [{"name": "default", "masquerade": {}}],
            },
        },
        "networks": [{"name": "default", "pod": {}}],
        "volumes": [
            {"name": "root", "persistentVolumeClaim": {"claimName": "debian-root"}},
            {"name": "seed", "cloudInitNoCloud": {"userData": "#cloud-config"}},
        ],
    })
}

/// Lets a user read VMs in the default namespace, and nothing else.
pub(crate) async fn viewer_rights(environment: &Environment, user: &str) {
    let group = "rbac.authorization.k8s.io";
    let metadata = json!({"name": "viewer", "namespace": NAMESPACE});
    let read = json!(["get", "list", "watch"]);
    environment
        .create(json!({
            "apiVersion": format!("{group}/v1"), "kind": "Role", "metadata": metadata,
            "rules": [
                {"apiGroups": ["kubevirt.io"], "resources": ["virtualmachines", "virtualmachineinstances"], "verbs": read},
                {"apiGroups": ["subresources.kubevirt.io"], "resources": ["virtualmachines/stop"], "verbs": ["update"]},
            ],
        }))
        .await;
    environment
        .create(json!({
            "apiVersion": format!("{group}/v1"), "kind": "RoleBinding", "metadata": metadata,
            "roleRef": {"apiGroup": group, "kind": "Role", "name": "viewer"},
            "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
        }))
        .await;
}

/// The kind of secondary networks.
pub(crate) fn network_kind() -> Value {
    let (group, plural) = ("k8s.cni.cncf.io", "network-attachment-definitions");
    let schema = json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true});
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {
                "kind": "NetworkAttachmentDefinition", "listKind": "NetworkAttachmentDefinitionList",
                "plural": plural, "singular": "network-attachment-definition",
            },
            "versions": [{
                "name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema},
            }],
        },
    })
}
