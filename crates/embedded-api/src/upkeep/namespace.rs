//! Termination of a namespace: deletes its contents, then the namespace.
//!
//! Pods are deleted before everything else, so that they do not keep running without their
//! dependencies. The namespace's conditions report remaining objects and the finalizers that hold
//! them.

use std::{collections::BTreeMap, sync::Arc};

use apimachinery::meta;
use serde_json::{Value, json};

use super::garbage::{self, Remaining};
use crate::{
    api::Api,
    error::ApiError,
    registry::Served,
    store::Scope,
    verbs::{Call, Live, write},
};

/// The finalizer of this task; others belong to other controllers.
const OURS: &str = "kubernetes";

/// Empties a namespace that is being deleted, then removes our finalizer.
pub(super) async fn finish(api: &Api, name: &str) -> Result<(), ApiError> {
    let Some(kind) = api.registry.find("", "v1", "namespaces") else {
        return Ok(());
    };
    let call = Call::internal(kind, "", Some(name));
    let Some(live) = terminating(api, &call, name).await? else {
        return Ok(());
    };
    let left = empty(api, name).await?;
    let mut object = live.object.clone();
    let now = meta::format_time(api.clock.now());
    set_conditions(&mut object, &left, &now);
    let held = object.pointer_mut("/spec/finalizers");
    if let (true, Some(Value::Array(held))) = (left.is_empty(), held) {
        held.retain(|finalizer| finalizer != OURS);
    }
    // Later deletions trigger another run.
    write::put(api, &call, &live, object).await?;
    Ok(())
}

async fn terminating(api: &Api, call: &Call, name: &str) -> Result<Option<Live>, ApiError> {
    let Some(stored) = api.store.get(&call.key(name)).await? else {
        return Ok(None);
    };
    let live = Live::of(&stored, &call.kind)?;
    Ok(meta::is_deleting(&live.object).then_some(live))
}

/// Remaining objects, by the kind's display name: `pods.`, `virtualmachines.kubevirt.io`.
async fn empty(api: &Api, name: &str) -> Result<BTreeMap<String, Remaining>, ApiError> {
    let (pods, others): (Vec<_>, Vec<_>) = api
        .registry
        .all()
        .into_iter()
        .filter(|kind| {
            kind.namespaced && kind.verbs.contains(&"delete") && kind.is_storage_version()
        })
        .partition(|kind| kind.is("", "pods"));
    let mut left = BTreeMap::new();
    for kinds in [pods, others] {
        for kind in kinds {
            empty_of(api, &kind, name, &mut left).await?;
        }
        if !left.is_empty() {
            break;
        }
    }
    Ok(left)
}

async fn empty_of(
    api: &Api,
    kind: &Arc<Served>,
    name: &str,
    left: &mut BTreeMap<String, Remaining>,
) -> Result<(), ApiError> {
    let scope = Scope {
        collection: kind.collection.clone(),
        namespace: Some(name.to_owned()),
        name: None,
    };
    let found = Box::pin(garbage::empty(api, kind, &scope)).await?;
    if found.count > 0 {
        left.insert(format!("{}.{}", kind.plural, kind.group), found);
    }
    Ok(())
}

fn set_conditions(namespace: &mut Value, left: &BTreeMap<String, Remaining>, now: &str) {
    let remaining: Vec<String> = left
        .iter()
        .map(|(kind, left)| format!("{kind} has {} resource instances", left.count))
        .collect();
    let mut finalizers: BTreeMap<&str, usize> = BTreeMap::new();
    for (finalizer, count) in left.values().flat_map(|left| &left.finalizers) {
        *finalizers.entry(finalizer).or_default() += count;
    }
    let held: Vec<String> = finalizers
        .iter()
        .map(|(finalizer, count)| format!("{finalizer} in {count} resource instances"))
        .collect();
    let conditions = [
        (
            "NamespaceDeletionDiscoveryFailure",
            None,
            (
                "ResourcesDiscovered",
                "All resources successfully discovered",
            ),
        ),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            None,
            (
                "ParsedGroupVersions",
                "All legacy kube types successfully parsed",
            ),
        ),
        (
            "NamespaceDeletionContentFailure",
            None,
            (
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
        ),
        (
            "NamespaceContentRemaining",
            (!remaining.is_empty()).then(|| {
                let message = format!("Some resources are remaining: {}", remaining.join(", "));
                ("SomeResourcesRemain", message)
            }),
            ("ContentRemoved", "All content successfully removed"),
        ),
        (
            "NamespaceFinalizersRemaining",
            (!held.is_empty()).then(|| {
                let message = format!(
                    "Some content in the namespace has finalizers remaining: {}",
                    held.join(", ")
                );
                ("SomeFinalizersRemain", message)
            }),
            (
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
        ),
    ];
    let before = namespace["status"]["conditions"].take();
    let since = |kind: &str, status: &str| {
        let known = before.as_array().into_iter().flatten();
        let mut known = known.filter(|one| one["type"] == kind && one["status"] == status);
        known
            .next()
            .map_or_else(|| now.into(), |one| one["lastTransitionTime"].clone())
    };
    let conditions = conditions.map(|(kind, trouble, (reason, message))| {
        let (status, reason, message) = match trouble {
            Some((reason, message)) => ("True", reason, message),
            None => ("False", reason, message.to_owned()),
        };
        json!({"type": kind, "status": status, "lastTransitionTime": since(kind, status),
               "reason": reason, "message": message})
    });
    namespace["status"]["conditions"] = conditions.to_vec().into();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conditions_report_remaining_objects_and_finalizers() {
        let mut namespace = json!({"metadata": {"name": "n"}, "status": {}});
        let held = Remaining {
            count: 2,
            finalizers: BTreeMap::from([("a/b".to_owned(), 2)]),
        };
        let left = BTreeMap::from([
            (
                "pods.".to_owned(),
                Remaining {
                    count: 1,
                    ..Remaining::default()
                },
            ),
            ("things.g".to_owned(), held),
        ]);
        set_conditions(&mut namespace, &left, "then");
        let conditions = namespace["status"]["conditions"].clone();
        assert_eq!(
            conditions[3]["message"],
            "Some resources are remaining: pods. has 1 resource instances, things.g has 2 resource instances"
        );
        assert_eq!(
            conditions[4]["message"],
            "Some content in the namespace has finalizers remaining: a/b in 2 resource instances"
        );
        set_conditions(&mut namespace, &left, "later");
        assert_eq!(namespace["status"]["conditions"], conditions, "times stay");
        set_conditions(&mut namespace, &BTreeMap::new(), "later");
        assert_eq!(namespace["status"]["conditions"][3]["status"], "False");
        assert_eq!(
            namespace["status"]["conditions"][3]["lastTransitionTime"],
            "later"
        );
        assert_eq!(
            namespace["status"]["conditions"][0]["lastTransitionTime"],
            "then"
        );
    }
}
