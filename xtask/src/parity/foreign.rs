//! Kubernetes' own types inside ours, by what `k8s-openapi` knows of them.

use k8s_openapi::{
    api::core::v1 as core, apimachinery::pkg::apis::meta::v1 as meta, schemars::JsonSchema,
};
use schemars::generate::SchemaSettings;
use serde_json::Value;

use super::{
    facts::TypeName,
    fields::split,
    node::{Definitions, Node},
};

/// So deep do the types of Kubernetes that ours use nest at most.
const DEPTH: usize = 12;

pub(super) fn is_foreign(name: &TypeName) -> bool {
    matches!(name.0.as_str(), "core/v1" | "meta/v1")
}

/// The fields of a foreign type that may be inlined.
pub(super) fn properties(name: &TypeName) -> Option<Vec<String>> {
    if !is_foreign(name) {
        return None;
    }
    let (schema, definitions) = split(schema(&name.1)?);
    let node = Node::open(&schema, &definitions);
    Some(node.properties().map(str::to_owned).collect())
}

/// What the level lacks of that type.
pub(super) fn differences(name: &TypeName, node: &Node, definitions: &Definitions) -> Vec<String> {
    let kind = match name.1.as_str() {
        "ConditionStatus"
        | "DNSPolicy"
        | "PersistentVolumeAccessMode"
        | "PersistentVolumeMode"
        | "PodQOSClass"
        | "PullPolicy" => "string",
        // CRDs do not describe these types; the API server knows them.
        "ObjectMeta" | "ListMeta" => "object",
        "ResourceList" => {
            let values = node.inner("additionalProperties", definitions);
            let good = values.is_some_and(|values| values.is_quantity());
            return if good {
                Vec::new()
            } else {
                vec!["is not a map of quantities".to_owned()]
            };
        }
        other => {
            let Some(schema) = schema(other) else {
                return vec![format!("nothing is known of {}.{other}", name.0)];
            };
            let (schema, known) = split(schema);
            let mut gaps = Vec::new();
            let wanted = Node::open(&schema, &known);
            compare(
                (&wanted, &known),
                (node, definitions),
                other,
                DEPTH,
                &mut gaps,
            );
            return gaps;
        }
    };
    if node.kind() == kind {
        Vec::new()
    } else {
        vec![format!("type is {:?}, not {kind}", node.kind())]
    }
}

fn compare(
    (wanted, known): (&Node, &Definitions),
    (found, definitions): (&Node, &Definitions),
    path: &str,
    depth: usize,
    gaps: &mut Vec<String>,
) {
    if depth == 0 {
        return;
    }
    if wanted.is_int_or_string() || found.is_int_or_string() {
        if wanted.is_int_or_string() != found.is_int_or_string() {
            gaps.push(format!("{path}: one of them is integer or string"));
        }
        return;
    }
    if wanted.kind() != found.kind() {
        gaps.push(format!(
            "{path}: type is {:?}, not {:?}",
            found.kind(),
            wanted.kind()
        ));
        return;
    }
    for key in ["items", "additionalProperties"] {
        if let Some(wanted) = wanted.inner(key, known) {
            match found.inner(key, definitions) {
                Some(found) => compare(
                    (&wanted, known),
                    (&found, definitions),
                    path,
                    depth - 1,
                    gaps,
                ),
                None => gaps.push(format!("{path}: no {key}")),
            }
        }
    }
    for name in wanted.properties() {
        let path = format!("{path}.{name}");
        let wanted = wanted.property(name, known);
        match (wanted, found.property(name, definitions)) {
            (Some(wanted), Some(found)) => {
                compare(
                    (&wanted, known),
                    (&found, definitions),
                    &path,
                    depth - 1,
                    gaps,
                );
            }
            _ => gaps.push(format!("{path}: missing")),
        }
    }
}

fn schema(name: &str) -> Option<Value> {
    Some(match name {
        "Affinity" => of::<core::Affinity>(),
        "Condition" => of::<meta::Condition>(),
        "DownwardAPIVolumeFile" => of::<core::DownwardAPIVolumeFile>(),
        "ExecAction" => of::<core::ExecAction>(),
        "HTTPGetAction" => of::<core::HTTPGetAction>(),
        "LabelSelector" => of::<meta::LabelSelector>(),
        "LocalObjectReference" => of::<core::LocalObjectReference>(),
        "NodeSelectorRequirement" => of::<core::NodeSelectorRequirement>(),
        "PersistentVolumeClaimSpec" => of::<core::PersistentVolumeClaimSpec>(),
        "PersistentVolumeClaimVolumeSource" => of::<core::PersistentVolumeClaimVolumeSource>(),
        "PodDNSConfig" => of::<core::PodDNSConfig>(),
        "ResourceRequirements" => of::<core::ResourceRequirements>(),
        "TCPSocketAction" => of::<core::TCPSocketAction>(),
        "Toleration" => of::<core::Toleration>(),
        "TopologySpreadConstraint" => of::<core::TopologySpreadConstraint>(),
        "TypedLocalObjectReference" => of::<core::TypedLocalObjectReference>(),
        "TypedObjectReference" => of::<core::TypedObjectReference>(),
        "VolumeResourceRequirements" => of::<core::VolumeResourceRequirements>(),
        _ => return None,
    })
}

fn of<T: JsonSchema>() -> Value {
    let settings = SchemaSettings::draft2020_12().for_serialize();
    settings
        .into_generator()
        .into_root_schema_for::<T>()
        .to_value()
}
