//! A webhook that refuses the deletion of an installation while VMs exist.
//!
//! `kubectl delete -f` deletes one object after another and continues after a refusal. Without the controllers
//! nothing removes the finalizers of VMs, and their deletion hangs. So the deletion of each object of the
//! installation is refused while VMs exist. Webhook configurations and policies are exempt from admission: they
//! are deleted, and restored by applying the manifest.

use serde_json::{Value, json};

use crate::webhooks::SERVICE;

/// The path of the webhook.
pub const GUARD_PATH: &str = "/installation-validate-delete";
const NAME: &str = "installation-guard.ferrovirt.io";

/// Kinds of an installation, each with its group and resource.
const KINDS: [(&str, &str, &str); 14] = [
    ("APIService", "apiregistration.k8s.io", "apiservices"),
    ("ClusterRole", "rbac.authorization.k8s.io", "clusterroles"),
    (
        "ClusterRoleBinding",
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
    ),
    (
        "CustomResourceDefinition",
        "apiextensions.k8s.io",
        "customresourcedefinitions",
    ),
    ("DaemonSet", "apps", "daemonsets"),
    ("Deployment", "apps", "deployments"),
    ("Namespace", "", "namespaces"),
    ("NetworkPolicy", "networking.k8s.io", "networkpolicies"),
    ("PodDisruptionBudget", "policy", "poddisruptionbudgets"),
    ("PriorityClass", "scheduling.k8s.io", "priorityclasses"),
    ("Role", "rbac.authorization.k8s.io", "roles"),
    ("RoleBinding", "rbac.authorization.k8s.io", "rolebindings"),
    ("Service", "", "services"),
    ("ServiceAccount", "", "serviceaccounts"),
];

/// The webhook that guards `objects` and the definitions of kinds.
pub(crate) fn webhook(namespace: &str, objects: &[Value], definitions: &[&str]) -> Value {
    let rules: Vec<Value> = KINDS
        .iter()
        .map(|(_, group, resource)| {
            json!({
                "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource],
                "operations": ["DELETE"], "scope": "*",
            })
        })
        .collect();
    let mut names: Vec<String> = objects.iter().filter_map(guarded).collect();
    let definitions = definitions.iter();
    names.extend(definitions.map(|name| format!("'customresourcedefinitions//{name}'")));
    // Some API servers set the namespace of a namespace to its own name.
    names.push(format!("'namespaces/{namespace}/{namespace}'"));
    let named = "request.resource.resource + '/' \
                 + (has(request.namespace) ? request.namespace : '') + '/' \
                 + (has(request.name) ? request.name : '')";
    json!({
        "name": NAME,
        "clientConfig": {
            "service": {"name": SERVICE, "namespace": namespace, "path": GUARD_PATH, "port": 443},
        },
        "rules": rules,
        "matchConditions": [
            {"name": "by-name", "expression": format!("({named}) in [{}]", names.join(", "))},
        ],
        "sideEffects": "None",
        // Without virt-api, deletion must remain possible.
        "failurePolicy": "Ignore", "timeoutSeconds": 10,
        "matchPolicy": "Equivalent", "admissionReviewVersions": ["v1"],
    })
}

/// The object in the syntax of the expression.
fn guarded(object: &Value) -> Option<String> {
    let kind = object["kind"].as_str()?;
    let (_, _, resource) = KINDS.iter().find(|(known, ..)| *known == kind)?;
    let name = object["metadata"]["name"].as_str()?;
    let namespace = object["metadata"]["namespace"].as_str().unwrap_or_default();
    Some(format!("'{resource}/{namespace}/{name}'"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, objects};

    /// The group of objects that are exempt from webhooks.
    const EXEMPT: &str = "admissionregistration.k8s.io/v1";

    #[test]
    fn every_object_is_guarded_unless_exempt_from_webhooks() {
        let all = objects(&Settings::usual(), &["virtualmachines.kubevirt.io"]).unwrap();
        let webhooks = all
            .iter()
            .filter_map(|object| object["webhooks"].as_array());
        let guard = webhooks.flatten().find(|webhook| webhook["name"] == NAME);
        let guard = guard.expect("the guard is registered").to_string();
        for object in &all {
            let is_guarded = guarded(object).is_some_and(|name| guard.contains(&name));
            let is_exempt = object["apiVersion"] == EXEMPT;
            assert!(is_guarded != is_exempt, "{object}");
        }
        assert!(guard.contains("'customresourcedefinitions//virtualmachines.kubevirt.io'"));
    }
}
