//! The merge rules of the built-in kinds.

use super::rule::{Merge, Rule};

const fn plain(shape: &'static str) -> Rule {
    Rule {
        shape,
        merge: Merge::Plain,
    }
}

const fn keyed(shape: &'static str, patch: &'static str, keys: &'static [&'static str]) -> Rule {
    Rule {
        shape,
        merge: Merge::Keyed { patch, keys },
    }
}

const SET: Rule = Rule {
    shape: "",
    merge: Merge::Set,
};
const WHOLE: Rule = Rule {
    shape: "whole",
    merge: Merge::Whole,
};
const BY_NAME: &[&str] = &["name"];
const BY_TYPE: &[&str] = &["type"];
const CONDITIONS: Rule = keyed("", "type", BY_TYPE);

static ANY: Rule = plain("");
static ANY_ROOT: Rule = plain("Object");
pub(super) static OBJECT_META: Rule = plain("ObjectMeta");
static WHOLE_ITEM: Rule = WHOLE;

/// The rule of a kind's root.
pub(super) fn root(group: &str, kind: &str) -> &'static Rule {
    let found = ROOTS.iter().find(|(g, k, _)| *g == group && *k == kind);
    found.map_or(&ANY_ROOT, |(_, _, rule)| rule)
}

pub(super) fn rule_of(shape: &str, field: &str) -> &'static Rule {
    if ROOT_SHAPES.contains(&shape) && field == "metadata" {
        return &OBJECT_META;
    }
    FIELDS
        .iter()
        .find(|(s, f, _)| *s == shape && *f == field)
        .map_or(&ANY, |(_, _, rule)| rule)
}

/// The rule of a list item, which has the shape and merges by field.
pub(super) fn shape_rule(shape: &str) -> &'static Rule {
    if shape == "whole" {
        return &WHOLE_ITEM;
    }
    ITEMS
        .iter()
        .find(|rule| rule.shape == shape)
        .unwrap_or(&ANY)
}

static ITEMS: &[Rule] = &[
    plain("Container"),
    plain("Volume"),
    plain("Webhook"),
    plain("Constraint"),
    plain("EnvVar"),
];

const ROOT_SHAPES: &[&str] = &[
    "Object",
    "Pod",
    "Node",
    "WithConditions",
    "Service",
    "ServiceAccount",
    "Event",
    "PersistentVolume",
    "PersistentVolumeClaim",
    "Budget",
    "RoleBinding",
    "Webhooks",
    "CustomResourceDefinition",
];

/// Group, kind, how it merges.
static ROOTS: &[(&str, &str, Rule)] = &[
    ("", "Pod", plain("Pod")),
    ("", "Node", plain("Node")),
    ("", "Namespace", plain("WithConditions")),
    ("", "Service", plain("Service")),
    ("", "ServiceAccount", plain("ServiceAccount")),
    ("", "Event", plain("Event")),
    ("", "PersistentVolume", plain("PersistentVolume")),
    ("", "PersistentVolumeClaim", plain("PersistentVolumeClaim")),
    (
        "rbac.authorization.k8s.io",
        "RoleBinding",
        plain("RoleBinding"),
    ),
    (
        "rbac.authorization.k8s.io",
        "ClusterRoleBinding",
        plain("RoleBinding"),
    ),
    ("policy", "PodDisruptionBudget", plain("Budget")),
    (
        "admissionregistration.k8s.io",
        "MutatingWebhookConfiguration",
        plain("Webhooks"),
    ),
    (
        "admissionregistration.k8s.io",
        "ValidatingWebhookConfiguration",
        plain("Webhooks"),
    ),
    (
        "apiextensions.k8s.io",
        "CustomResourceDefinition",
        plain("CustomResourceDefinition"),
    ),
    (
        "apiregistration.k8s.io",
        "APIService",
        plain("WithConditions"),
    ),
];

/// Shape, field, how it merges.
static FIELDS: &[(&str, &str, Rule)] = &[
    (
        "ObjectMeta",
        "ownerReferences",
        keyed("whole", "uid", &["uid"]),
    ),
    ("ObjectMeta", "finalizers", SET),
    ("Pod", "spec", plain("PodSpec")),
    ("Pod", "status", plain("PodStatus")),
    ("PodSpec", "containers", keyed("Container", "name", BY_NAME)),
    (
        "PodSpec",
        "initContainers",
        keyed("Container", "name", BY_NAME),
    ),
    (
        "PodSpec",
        "ephemeralContainers",
        keyed("Container", "name", BY_NAME),
    ),
    ("PodSpec", "volumes", keyed("Volume", "name", BY_NAME)),
    (
        "PodSpec",
        "imagePullSecrets",
        keyed("whole", "name", BY_NAME),
    ),
    ("PodSpec", "hostAliases", keyed("", "ip", &["ip"])),
    ("PodSpec", "schedulingGates", keyed("", "name", BY_NAME)),
    ("PodSpec", "resourceClaims", keyed("", "name", BY_NAME)),
    (
        "PodSpec",
        "topologySpreadConstraints",
        keyed(
            "Constraint",
            "topologyKey",
            &["topologyKey", "whenUnsatisfiable"],
        ),
    ),
    ("PodSpec", "nodeSelector", WHOLE),
    ("PodSpec", "affinity", plain("Affinity")),
    ("Constraint", "labelSelector", WHOLE),
    ("Affinity", "nodeAffinity", plain("NodeAffinity")),
    (
        "NodeAffinity",
        "requiredDuringSchedulingIgnoredDuringExecution",
        WHOLE,
    ),
    ("Container", "env", keyed("EnvVar", "name", BY_NAME)),
    (
        "Container",
        "ports",
        keyed("", "containerPort", &["containerPort", "protocol"]),
    ),
    (
        "Container",
        "volumeMounts",
        keyed("", "mountPath", &["mountPath"]),
    ),
    (
        "Container",
        "volumeDevices",
        keyed("", "devicePath", &["devicePath"]),
    ),
    ("Container", "resources", plain("Resources")),
    ("Resources", "claims", keyed("", "name", BY_NAME)),
    ("EnvVar", "valueFrom", plain("EnvVarSource")),
    ("EnvVarSource", "configMapKeyRef", WHOLE),
    ("EnvVarSource", "secretKeyRef", WHOLE),
    ("EnvVarSource", "fieldRef", WHOLE),
    ("EnvVarSource", "resourceFieldRef", WHOLE),
    ("Volume", "csi", plain("SecretReferences")),
    ("SecretReferences", "nodePublishSecretRef", WHOLE),
    ("PodStatus", "conditions", CONDITIONS),
    ("PodStatus", "podIPs", keyed("", "ip", &["ip"])),
    ("PodStatus", "hostIPs", keyed("", "ip", &[])),
    (
        "PodStatus",
        "resourceClaimStatuses",
        keyed("", "name", BY_NAME),
    ),
    ("Node", "spec", plain("NodeSpec")),
    ("Node", "status", plain("NodeStatus")),
    ("NodeSpec", "podCIDRs", SET),
    ("NodeStatus", "conditions", CONDITIONS),
    ("NodeStatus", "addresses", keyed("", "type", BY_TYPE)),
    ("WithConditions", "status", plain("ConditionedStatus")),
    (
        "CustomResourceDefinition",
        "status",
        plain("ConditionedStatus"),
    ),
    ("ConditionedStatus", "conditions", CONDITIONS),
    ("Service", "spec", plain("ServiceSpec")),
    ("Service", "status", plain("ConditionedStatus")),
    (
        "ServiceSpec",
        "ports",
        keyed("", "port", &["port", "protocol"]),
    ),
    ("ServiceSpec", "selector", WHOLE),
    ("ServiceAccount", "secrets", keyed("whole", "name", BY_NAME)),
    ("Event", "involvedObject", WHOLE),
    ("Event", "related", WHOLE),
    ("PersistentVolume", "spec", plain("PersistentVolumeSpec")),
    ("PersistentVolumeSpec", "claimRef", WHOLE),
    (
        "PersistentVolumeSpec",
        "nodeAffinity",
        plain("VolumeAffinity"),
    ),
    ("VolumeAffinity", "required", WHOLE),
    ("Budget", "spec", plain("BudgetSpec")),
    ("Budget", "status", plain("ConditionedStatus")),
    ("BudgetSpec", "selector", WHOLE),
    ("RoleBinding", "roleRef", WHOLE),
    (
        "PersistentVolumeClaim",
        "spec",
        plain("PersistentVolumeClaimSpec"),
    ),
    (
        "PersistentVolumeClaim",
        "status",
        plain("ConditionedStatus"),
    ),
    ("PersistentVolumeClaimSpec", "selector", WHOLE),
    ("PersistentVolumeClaimSpec", "dataSource", WHOLE),
    ("Webhooks", "webhooks", keyed("Webhook", "name", BY_NAME)),
    ("Webhook", "namespaceSelector", WHOLE),
    ("Webhook", "objectSelector", WHOLE),
    ("Webhook", "matchConditions", keyed("", "name", BY_NAME)),
];

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shape::{ListMerge, Type};
    use serde_json::Value;

    #[test]
    fn table_reaches_every_item_shape() {
        for (_, field, rule) in FIELDS {
            if let Merge::Keyed { .. } = rule.merge
                && !matches!(rule.shape, "" | "whole")
            {
                assert_eq!(shape_rule(rule.shape).shape, rule.shape, "items of {field}");
            }
        }
    }

    #[test]
    fn ports_are_keyed_by_protocol_too() {
        let ports = Type::built_in("", "Pod")
            .field("spec")
            .field("containers")
            .item()
            .field("ports");
        let tcp = Some(Value::from("TCP"));
        assert_eq!(
            ports.list(),
            ListMerge::Map(vec![("containerPort", None), ("protocol", tcp)])
        );
        assert_eq!(ports.patch_key(), Some("containerPort"));
    }
}
