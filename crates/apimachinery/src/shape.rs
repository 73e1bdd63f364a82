//! How fields merge: which lists are keyed and by which fields, which values are atomic.
//!
//! Two sources: the `x-kubernetes-*` extensions of a CRD's schema, and one table for the built-in
//! kinds, which serves strategic merge patches and server-side apply alike. Fields that neither
//! describes merge as apply merges unknown data: objects by field, lists atomically.

use serde_json::Value;

use crate::schema::{ListType, Schema};

/// The type at one position of an object.
#[derive(Debug, Clone, Copy)]
pub enum Type<'a> {
    /// A position in a CRD's schema.
    Schema(&'a Schema),
    /// The root of a custom object (or of one embedded in another): the schema, with `metadata` as
    /// the API defines it.
    Custom(&'a Schema),
    /// A position in a built-in kind.
    BuiltIn(&'static Rule),
    Unknown,
}

/// How one field of a built-in kind merges.
#[derive(Debug)]
pub struct Rule {
    /// The shape of the value, or of the items of a list.
    shape: &'static str,
    merge: Merge,
}

#[derive(Debug)]
enum Merge {
    /// Objects by field, lists atomically.
    Plain,
    /// Atomic in apply; a strategic merge patch still merges objects.
    Whole,
    /// A list keyed by `patch` in patches and by `keys` in apply (none: atomic in apply).
    Keyed {
        patch: &'static str,
        keys: &'static [&'static str],
    },
    /// A list of distinct scalars.
    Set,
}

/// How a list merges in server-side apply.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum ListMerge<'a> {
    Atomic,
    Set,
    /// By these fields, each with its default when absent.
    Map(Vec<(&'a str, Option<Value>)>),
}

impl<'a> Type<'a> {
    /// The root of a built-in kind.
    pub fn built_in(group: &str, kind: &str) -> Type<'static> {
        let found = ROOTS.iter().find(|(g, k, _)| *g == group && *k == kind);
        Type::BuiltIn(found.map_or(&ANY_ROOT, |(_, _, rule)| rule))
    }

    pub(crate) fn is_built_in(self) -> bool {
        matches!(self, Self::BuiltIn(_))
    }

    /// The type of a field's value.
    pub(crate) fn field(self, name: &str) -> Type<'a> {
        match self {
            Self::Custom(_) if name == "metadata" => Type::BuiltIn(&OBJECT_META),
            Self::Custom(schema) | Self::Schema(schema) => match schema.child(name) {
                Some(child) if child.is_embedded() => Type::Custom(child),
                Some(child) => Type::Schema(child),
                None => Type::Unknown,
            },
            Self::BuiltIn(rule) => Type::BuiltIn(rule_of(rule.shape, name)),
            Self::Unknown => Type::Unknown,
        }
    }

    /// The type of a list's items.
    pub(crate) fn item(self) -> Type<'a> {
        match self {
            Self::Custom(schema) | Self::Schema(schema) => match schema.items() {
                Some(items) if items.is_embedded() => Type::Custom(items),
                Some(items) => Type::Schema(items),
                None => Type::Unknown,
            },
            Self::BuiltIn(rule) => Type::BuiltIn(shape_rule(rule.shape)),
            Self::Unknown => Type::Unknown,
        }
    }

    /// Whether the type declares the field, as opposed to a key of a map.
    pub(crate) fn declares(self, name: &str) -> bool {
        match self {
            Self::Custom(_) if matches!(name, "metadata" | "apiVersion" | "kind") => true,
            Self::Custom(schema) | Self::Schema(schema) => schema.has_property(name),
            Self::BuiltIn(_) => true,
            Self::Unknown => false,
        }
    }

    pub(crate) fn is_atomic_map(self) -> bool {
        match self {
            Self::Custom(schema) | Self::Schema(schema) => schema.is_atomic_map(),
            Self::BuiltIn(rule) => matches!(rule.merge, Merge::Whole),
            Self::Unknown => false,
        }
    }

    /// Whether the value may be null. Elsewhere a null means "not set".
    pub(crate) fn is_nullable(self) -> bool {
        match self {
            Self::Custom(schema) | Self::Schema(schema) => schema.is_nullable(),
            Self::BuiltIn(_) => false,
            Self::Unknown => true,
        }
    }

    pub(crate) fn list(self) -> ListMerge<'a> {
        match self {
            Self::Custom(schema) | Self::Schema(schema) => match schema.list_type() {
                ListType::Atomic => ListMerge::Atomic,
                ListType::Set => ListMerge::Set,
                ListType::Map(keys) => {
                    let default = |key: &str| schema.items()?.child(key)?.default_value().cloned();
                    ListMerge::Map(keys.iter().map(|k| (k.as_str(), default(k))).collect())
                }
            },
            Self::BuiltIn(Rule {
                merge: Merge::Set, ..
            }) => ListMerge::Set,
            Self::BuiltIn(Rule {
                merge: Merge::Keyed { keys, .. },
                ..
            }) if !keys.is_empty() => {
                let default = |key: &str| (key == "protocol").then(|| "TCP".into());
                ListMerge::Map(keys.iter().map(|key| (*key, default(key))).collect())
            }
            Self::BuiltIn(_) | Self::Unknown => ListMerge::Atomic,
        }
    }

    /// The merge key of a list in strategic merge patches.
    pub(crate) fn patch_key(self) -> Option<&'static str> {
        match self {
            Self::BuiltIn(Rule {
                merge: Merge::Keyed { patch, .. },
                ..
            }) => Some(patch),
            _ => None,
        }
    }

    /// The `OpenAPI` schema extensions that describe the merge to clients.
    pub(crate) fn marks(self) -> Vec<(&'static str, Value)> {
        let Self::BuiltIn(rule) = self else {
            return Vec::new();
        };
        match &rule.merge {
            Merge::Plain => Vec::new(),
            Merge::Whole => vec![("x-kubernetes-map-type", "atomic".into())],
            Merge::Set => vec![
                ("x-kubernetes-list-type", "set".into()),
                ("x-kubernetes-patch-strategy", "merge".into()),
            ],
            Merge::Keyed { patch, keys } => {
                // A volume that changes its source must drop the old one.
                let strategy = if rule.shape == "Volume" {
                    "merge,retainKeys"
                } else {
                    "merge"
                };
                let mut out = vec![
                    ("x-kubernetes-patch-merge-key", (*patch).into()),
                    ("x-kubernetes-patch-strategy", strategy.into()),
                ];
                if keys.is_empty() {
                    out.push(("x-kubernetes-list-type", "atomic".into()));
                } else {
                    out.push(("x-kubernetes-list-type", "map".into()));
                    out.push(("x-kubernetes-list-map-keys", keys.to_vec().into()));
                }
                out
            }
        }
    }

    /// Whether the list is a set in strategic merge patches.
    pub(crate) fn is_patch_set(self) -> bool {
        matches!(
            self,
            Self::BuiltIn(Rule {
                merge: Merge::Set,
                ..
            })
        )
    }
}

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
static OBJECT_META: Rule = plain("ObjectMeta");
static WHOLE_ITEM: Rule = WHOLE;

fn rule_of(shape: &str, field: &str) -> &'static Rule {
    if ROOT_SHAPES.contains(&shape) && field == "metadata" {
        return &OBJECT_META;
    }
    FIELDS
        .iter()
        .find(|(s, f, _)| *s == shape && *f == field)
        .map_or(&ANY, |(_, _, rule)| rule)
}

/// The rule of a list item, which has the shape and merges by field.
fn shape_rule(shape: &str) -> &'static Rule {
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
