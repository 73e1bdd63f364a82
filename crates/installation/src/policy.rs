//! Admission policies for rules that roles cannot express.
//!
//! A virt-handler may change only its own node and the status of the VMIs on it or on their way to it. Roles select
//! kinds and names, not the node of an object, nor fields of it. The API server knows the node of a virt-handler's
//! pod from its token; a policy compares the two, and the metadata before and after ([`agents`]).
//!
//! virt-controller defines data volumes on a cluster without CDI. A role cannot limit creations to names ([`definitions`]).
//!
//! A cluster has one installation. Bindings of its service accounts and references to its service cannot be moved
//! to another namespace, so the manifest of a second installation is refused.
//!
//! **Invariants**: a token that is bound to no node changes nothing; no policy contains the namespace of an
//! installation, since policies are exempt from admission and a second manifest must not change them.

mod agents;
mod definitions;

use std::collections::BTreeSet;

use serde_json::{Value, json};

use self::{agents::agents, definitions::definitions};

const ONE: &str = "ferrovirt-one-installation";
/// Kinds with the service accounts or the service of one namespace.
const WITH_NAMESPACE: [(&str, &str, &str); 3] = [
    (
        "ClusterRoleBinding",
        "rbac.authorization.k8s.io",
        "clusterrolebindings",
    ),
    ("RoleBinding", "rbac.authorization.k8s.io", "rolebindings"),
    ("APIService", "apiregistration.k8s.io", "apiservices"),
];

/// The policies for these objects of an installation, each with its binding.
pub fn objects(others: &[Value]) -> Vec<Value> {
    let all = [agents(), definitions(), one_installation(others)];
    let with_binding = all.into_iter().flat_map(|policy| {
        let binding = binding(&policy["metadata"]["name"]);
        [policy, binding]
    });
    with_binding.collect()
}

fn binding(name: &Value) -> Value {
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    })
}

/// Refuses a change of the namespace; deletion and creation are allowed.
fn one_installation(others: &[Value]) -> Value {
    let rules: Vec<Value> = WITH_NAMESPACE
        .iter()
        .map(|(kind, group, resource)| {
            let of_kind = others.iter().filter(|object| object["kind"] == *kind);
            // Objects in two namespaces may have the same name.
            let names: BTreeSet<&str> = of_kind
                .filter_map(|object| object["metadata"]["name"].as_str())
                .collect();
            json!({
                "apiGroups": [group], "apiVersions": ["v1"], "resources": [resource],
                "resourceNames": names, "operations": ["UPDATE"], "scope": "*",
            })
        })
        .collect();
    let namespaces = |object: &str| {
        format!(
            "request.kind.kind == 'APIService' ? [{object}.?spec.?service.?namespace.orValue('')] : \
             {object}.?subjects.orValue([]).map(one, one.?namespace.orValue(''))"
        )
    };
    json!({
        "apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": ONE},
        "spec": {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": rules},
            "variables": [
                {"name": "before", "expression": namespaces("oldObject")},
                {"name": "after", "expression": namespaces("object")},
            ],
            "validations": [{
                "expression": "variables.before.size() == 0 || variables.after.all(one, one in variables.before)",
                "messageExpression": "'Ferrovirt is installed in namespace ' + variables.before[0] + ', and a cluster \
                                      has one installation: delete the namespace of the second one and apply the \
                                      manifest of the first one again, or delete the first one before'",
                "reason": "Forbidden",
            }],
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Settings, objects as installation};

    fn policies(namespace: &str) -> Vec<Value> {
        let settings = Settings {
            namespace: namespace.to_owned(),
            ..Settings::usual()
        };
        let all = installation(&settings, &[]).unwrap();
        let is_policy = |object: &Value| {
            let kind = object["kind"].as_str().unwrap_or_default();
            kind.starts_with("ValidatingAdmissionPolicy")
        };
        all.into_iter().filter(is_policy).collect()
    }

    #[test]
    fn manifest_of_another_installation_changes_no_policy() {
        assert_eq!(policies("kubevirt"), policies("second"));
    }

    #[test]
    fn cluster_wide_objects_with_a_namespace_are_in_the_policy() {
        let all = installation(&Settings::usual(), &[]).unwrap();
        let policies = policies("kubevirt");
        let policy = policies.iter().find(|one| one["metadata"]["name"] == ONE);
        let held = &policy.unwrap()["spec"]["matchConstraints"];
        for rule in held["resourceRules"].as_array().unwrap() {
            let names = rule["resourceNames"].as_array().unwrap();
            let different: BTreeSet<&str> = names.iter().filter_map(Value::as_str).collect();
            assert_eq!(different.len(), names.len(), "{rule}");
        }
        let held = held.to_string();
        let mut count = 0;
        for object in &all {
            let name = object["metadata"]["name"].as_str().unwrap();
            let kind = object["kind"].as_str().unwrap();
            if ["ClusterRoleBinding", "APIService"].contains(&kind) {
                assert!(held.contains(&format!("\"{name}\"")), "{kind} {name}");
                count += 1;
            }
        }
        assert!(count > 4, "{count}");
    }
}
