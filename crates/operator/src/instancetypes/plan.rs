//! Pure planning: maps the wanted and the existing objects of a kind to writes.

use std::collections::BTreeMap;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde_json::{Map, Value, json};

use super::list::{Common, Kind};
use crate::MANAGER;

/// Whose objects they are; the value is [`MANAGER`].
const MANAGED_BY: &str = "app.kubernetes.io/managed-by";
const COMPONENT: (&str, &str) = ("app.kubernetes.io/component", "kubevirt");

/// An object of the kind.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Existing {
    metadata: ObjectMeta,
    spec: Value,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    Create {
        name: String,
        object: Value,
    },
    /// Merges the difference.
    Repair {
        name: String,
        patch: Value,
    },
    /// Ours, but no longer wanted.
    Delete {
        metadata: Box<ObjectMeta>,
    },
}

impl Existing {
    /// `spec` is JSON.
    pub(super) fn new(metadata: &ObjectMeta, spec: &str) -> Self {
        Self {
            metadata: metadata.clone(),
            spec: serde_json::from_str(spec).unwrap_or_default(),
        }
    }

    fn label(&self, name: &str) -> Option<&str> {
        let labels = self.metadata.labels.as_ref()?;
        labels.get(name).map(String::as_str)
    }

    fn is_ours(&self) -> bool {
        self.label(MANAGED_BY) == Some(MANAGER)
    }
}

pub(super) fn plan<'a>(
    wanted: impl Iterator<Item = &'a Common>,
    existing: &[Existing],
) -> Vec<Step> {
    let mut existing: BTreeMap<&str, &Existing> = existing
        .iter()
        .map(|one| (one.metadata.name.as_deref().unwrap_or_default(), one))
        .collect();
    let mut steps: Vec<Step> = wanted
        .filter_map(|one| match existing.remove(one.name.as_str()) {
            None => Some(Step::Create {
                name: one.name.clone(),
                object: object(one),
            }),
            Some(found) if found.is_ours() => repair(one, found),
            Some(_) => None,
        })
        .collect();
    let unwanted = existing.into_values().filter(|found| found.is_ours());
    steps.extend(unwanted.map(|found| Step::Delete {
        metadata: Box::new(found.metadata.clone()),
    }));
    steps
}

fn labels(one: &Common) -> BTreeMap<String, String> {
    let mut labels = one.labels.clone();
    for (name, value) in [(MANAGED_BY, MANAGER), COMPONENT] {
        labels.insert(name.to_owned(), value.to_owned());
    }
    labels
}

fn object(one: &Common) -> Value {
    json!({
        "apiVersion": api_version(one.kind), "kind": one.kind.name(),
        "metadata": {"name": one.name, "labels": labels(one)},
        "spec": one.spec,
    })
}

fn api_version(kind: Kind) -> &'static str {
    use kubevirt_api::{
        instancetype::VirtualMachineClusterInstancetype,
        preference::VirtualMachineClusterPreference,
    };
    match kind {
        Kind::Instancetype => VirtualMachineClusterInstancetype::API_VERSION,
        Kind::Preference => VirtualMachineClusterPreference::API_VERSION,
    }
}

fn repair(one: &Common, found: &Existing) -> Option<Step> {
    let labels: BTreeMap<String, String> = labels(one)
        .into_iter()
        .filter(|(name, value)| found.label(name) != Some(value))
        .collect();
    if labels.is_empty() && found.spec == one.spec {
        return None;
    }
    let mut patch = json!({
        // The patch is based on this state.
        "metadata": {"resourceVersion": found.metadata.resource_version, "labels": labels},
    });
    if let Some(spec) = difference(&found.spec, &one.spec) {
        patch["spec"] = spec;
    }
    Some(Step::Repair {
        name: one.name.clone(),
        patch,
    })
}

/// The merge patch from one value to another.
fn difference(from: &Value, to: &Value) -> Option<Value> {
    let (Value::Object(from), Value::Object(to)) = (from, to) else {
        return (from != to).then(|| to.clone());
    };
    let mut patch = Map::new();
    for name in from.keys().filter(|name| !to.contains_key(*name)) {
        patch.insert(name.clone(), Value::Null);
    }
    for (name, value) in to {
        if let Some(change) = difference(from.get(name).unwrap_or(&Value::Null), value) {
            patch.insert(name.clone(), change);
        }
    }
    (!patch.is_empty()).then_some(Value::Object(patch))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn wanted() -> Common {
        Common {
            kind: Kind::Instancetype,
            name: "u1.small".to_owned(),
            spec: json!({"cpu": {"guest": 1}, "memory": {"guest": "2Gi"}}),
            labels: BTreeMap::from([("size".to_owned(), "small".to_owned())]),
        }
    }

    fn existing(name: &str, change: impl FnOnce(&mut Value)) -> Existing {
        let mut object = object(&wanted());
        object["metadata"]["name"] = name.into();
        object["metadata"]["resourceVersion"] = "7".into();
        change(&mut object);
        let metadata = serde_json::from_value(object["metadata"].clone()).expect("metadata");
        Existing::new(&metadata, &object["spec"].to_string())
    }

    #[test]
    fn only_our_objects_are_repaired_and_deleted() {
        let same = |_: &mut Value| {};
        let foreign = |object: &mut Value| object["metadata"]["labels"] = json!({});
        let wanted = [wanted()];
        assert!(matches!(
            &plan(wanted.iter(), &[])[..],
            [Step::Create { .. }]
        ));
        assert_eq!(plan(wanted.iter(), &[existing("u1.small", same)]), []);
        assert_eq!(plan(wanted.iter(), &[existing("u1.small", foreign)]), []);
        let old = [
            existing("u1.small", same),
            existing("u1.old", same),
            existing("mine", foreign),
        ];
        let steps = plan(wanted.iter(), &old);
        let [Step::Delete { metadata }] = &steps[..] else {
            panic!("{steps:?}");
        };
        assert_eq!(metadata.name.as_deref(), Some("u1.old"));
        let steps = plan([].iter(), &old);
        assert_eq!(steps.len(), 2, "disabled: {steps:?}");
    }

    #[test]
    fn repair_is_the_difference() {
        let changed = existing("u1.small", |object| {
            object["spec"] =
                json!({"cpu": {"guest": 8, "model": "x"}, "gpus": [], "memory": {"guest": "2Gi"}});
            object["metadata"]["labels"]["size"] = "large".into();
            object["metadata"]["labels"]["mine"] = "kept".into();
        });
        let steps = plan([wanted()].iter(), &[changed]);
        let patch = json!({
            "metadata": {"resourceVersion": "7", "labels": {"size": "small"}},
            "spec": {"cpu": {"guest": 1, "model": null}, "gpus": null},
        });
        let expected = Step::Repair {
            name: "u1.small".to_owned(),
            patch,
        };
        assert_eq!(steps, [expected]);
    }
}
