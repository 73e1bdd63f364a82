//! Owners and dependents of one object.

use std::collections::HashSet;

use apimachinery::{meta, resource::split_api_version};
use serde_json::Value;

use super::{call_for, kind_of};
use crate::{
    api::Api,
    error::ApiError,
    verbs::{
        Call, Live,
        delete::{self, FOREGROUND, ORPHAN, Options, Propagation},
        write,
    },
};

/// Deletes an object without remaining owners; otherwise drops references to owners that are gone, or
/// that wait for their dependents: a living owner keeps the object.
pub(super) async fn check_owners(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
    let mut living = Vec::new();
    let (mut absent, mut waiting) = (0, 0);
    for (at, owner) in meta::owner_references(&live.object).enumerate() {
        match owner_state(api, &call.namespace, &owner).await? {
            OwnerState::Absent => absent += 1,
            OwnerState::Terminating => waiting += 1,
            OwnerState::Present => {
                living.push(live.object["metadata"]["ownerReferences"][at].clone());
            }
        }
    }
    if absent + waiting == 0 {
        return Ok(());
    }
    if !living.is_empty() {
        let mut object = live.object.clone();
        meta::set(&mut object, "ownerReferences", Value::Array(living));
        write::put(api, call, live, object).await?;
        return Ok(());
    }
    if meta::is_deleting(&live.object) {
        return Ok(());
    }
    let uid = meta::uid(&live.object);
    let has = |finalizer: &str| meta::finalizers(&live.object).any(|found| found == finalizer);
    let propagation = if waiting > 0 && !api.store.dependents(uid).await?.is_empty() {
        Propagation::Foreground
    } else if has(ORPHAN) {
        Propagation::Orphan
    } else if has(FOREGROUND) {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let options = Options {
        uid: Some(uid.to_owned()),
        propagation: Some(propagation),
        ..Options::default()
    };
    Box::pin(delete::delete_named(api, call, call.name(), &options)).await?;
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    /// Also when that is unknown.
    Present,
    Absent,
    /// The owner is being deleted and waits for its dependents.
    Terminating,
}

/// The state of an owner of an object in `namespace`, or of a cluster-scoped one. An owner in another
/// namespace is absent, as a reference has no namespace.
async fn owner_state(
    api: &Api,
    namespace: &str,
    owner: &meta::OwnerReference<'_>,
) -> Result<OwnerState, ApiError> {
    let (group, _) = split_api_version(owner.api_version);
    // The state of an owner of an unknown kind is unknown, so the object stays.
    let Some(kind) = api.registry.find_kind(group, owner.kind) else {
        return Ok(OwnerState::Present);
    };
    // A cluster-scoped object cannot have a namespaced owner: the reference means nothing.
    if kind.namespaced && namespace.is_empty() {
        return Ok(OwnerState::Present);
    }
    let namespace = if kind.namespaced { namespace } else { "" };
    let Some(stored) = api
        .store
        .get(&kind.collection.key(namespace, owner.name))
        .await?
    else {
        return Ok(OwnerState::Absent);
    };
    let found = stored.parse()?;
    Ok(if meta::uid(&found) != owner.uid {
        OwnerState::Absent
    } else if waits_for_dependents(&found) {
        OwnerState::Terminating
    } else {
        OwnerState::Present
    })
}

fn waits_for_dependents(object: &Value) -> bool {
    meta::is_deleting(object) && meta::finalizers(object).any(|found| found == FOREGROUND)
}

/// Deletes the dependents of an object with foreground deletion, then the object.
pub(super) async fn foreground(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
    let uid = meta::uid(&live.object);
    for (dependent, found) in dependents(api, uid).await? {
        Box::pin(check_owners(api, &dependent, &found)).await?;
    }
    // Their deletion triggers another run.
    if is_blocked(api, uid).await? {
        return Ok(());
    }
    drop_finalizer(api, call, FOREGROUND).await
}

/// Whether a dependent must be deleted first. One that waits for this object itself, directly or
/// through other dependents, does not block it: a circle of owners would never be deleted.
async fn is_blocked(api: &Api, uid: &str) -> Result<bool, ApiError> {
    for (_, found) in dependents(api, uid).await? {
        let blocks = meta::owner_references(&found.object)
            .any(|owner| owner.uid == uid && owner.block_owner_deletion);
        let is_in_circle = blocks
            && waits_for_dependents(&found.object)
            && waits_for(api, meta::uid(&found.object), uid).await?;
        if blocks && !is_in_circle {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether the object `from` waits for the object `target`, through any number of others.
async fn waits_for(api: &Api, from: &str, target: &str) -> Result<bool, ApiError> {
    let mut seen = HashSet::from([from.to_owned()]);
    let mut open = vec![from.to_owned()];
    while let Some(uid) = open.pop() {
        for (_, found) in dependents(api, &uid).await? {
            let next = meta::uid(&found.object);
            if next == target {
                return Ok(true);
            }
            if waits_for_dependents(&found.object) && seen.insert(next.to_owned()) {
                open.push(next.to_owned());
            }
        }
    }
    Ok(false)
}

async fn dependents(api: &Api, uid: &str) -> Result<Vec<(Call, Live)>, ApiError> {
    let mut all = Vec::new();
    for key in api.store.dependents(uid).await? {
        let Some(kind) = kind_of(api, &key) else {
            continue;
        };
        let call = call_for(kind, &key);
        if let Some(stored) = api.store.get(&key).await? {
            let found = Live::shown(api, &stored, &call.kind).await?;
            all.push((call, found));
        }
    }
    Ok(all)
}

/// Removes the object from the owners of its dependents, then deletes it.
pub(super) async fn orphan(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
    let uid = meta::uid(&live.object);
    for (dependent, found) in dependents(api, uid).await? {
        let mut object = found.object.clone();
        let owners = object["metadata"]["ownerReferences"].as_array();
        let others = owners.into_iter().flatten();
        let others: Vec<Value> = others.filter(|one| one["uid"] != uid).cloned().collect();
        // An empty list is omitted, as in all stored objects.
        let others = if others.is_empty() {
            Value::Null
        } else {
            others.into()
        };
        meta::set(&mut object, "ownerReferences", others);
        write::put(api, &dependent, &found, object).await?;
    }
    drop_finalizer(api, call, ORPHAN).await
}

pub(super) async fn drop_finalizer(
    api: &Api,
    call: &Call,
    finalizer: &str,
) -> Result<(), ApiError> {
    let Some(stored) = api.store.get(&call.key(call.name())).await? else {
        return Ok(());
    };
    let live = Live::shown(api, &stored, &call.kind).await?;
    let mut object = live.object.clone();
    let finalizers = object.pointer_mut("/metadata/finalizers");
    if let Some(finalizers) = finalizers.and_then(Value::as_array_mut) {
        finalizers.retain(|found| found != finalizer);
    }
    write::put(api, call, &live, object).await?;
    Ok(())
}
