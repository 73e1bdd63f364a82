//! Owners and dependents of one object.

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

/// Deletes an object without remaining owners; otherwise drops references to deleted owners.
pub(super) async fn check_owners(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
    let mut remaining = Vec::new();
    let (mut deleted, mut waiting) = (0, 0);
    for (at, owner) in meta::owner_references(&live.object).enumerate() {
        let raw = live.object["metadata"]["ownerReferences"][at].clone();
        match owner_state(api, &call.namespace, &owner).await? {
            OwnerState::Absent => deleted += 1,
            OwnerState::Terminating => {
                waiting += 1;
                remaining.push(raw);
            }
            OwnerState::Present => remaining.push(raw),
        }
    }
    if deleted + waiting == 0 {
        return Ok(());
    }
    if remaining.len() > waiting {
        // A living owner keeps it.
        if deleted == 0 {
            return Ok(());
        }
        let mut object = live.object.clone();
        meta::set(&mut object, "ownerReferences", Value::Array(remaining));
        write::put(api, call, live, object).await?;
        return Ok(());
    }
    if meta::is_deleting(&live.object) {
        return Ok(());
    }
    let propagation = if waiting > 0 {
        Propagation::Foreground
    } else {
        Propagation::Background
    };
    let options = Options {
        uid: Some(meta::uid(&live.object).to_owned()),
        propagation: (waiting > 0).then_some(propagation),
        ..Options::default()
    };
    Box::pin(delete::delete_named(api, call, call.name(), &options)).await?;
    Ok(())
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    Present,
    Absent,
    /// The owner is being deleted and waits for its dependents.
    Terminating,
}

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
    } else if meta::is_deleting(&found) && meta::finalizers(&found).any(|f| f == FOREGROUND) {
        OwnerState::Terminating
    } else {
        OwnerState::Present
    })
}

/// Deletes the dependents of an object with foreground deletion, then the object.
pub(super) async fn foreground(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
    let uid = meta::uid(&live.object);
    let mut blocked = false;
    for key in api.store.dependents(uid).await? {
        let Some(kind) = kind_of(api, &key) else {
            continue;
        };
        let dependent = call_for(kind, &key);
        let Some(stored) = api.store.get(&key).await? else {
            continue;
        };
        let found = Live::of(&stored, &dependent.kind)?;
        blocked |= meta::owner_references(&found.object)
            .any(|owner| owner.uid == uid && owner.block_owner_deletion);
        Box::pin(check_owners(api, &dependent, &found)).await?;
    }
    if blocked && !api.store.dependents(uid).await?.is_empty() {
        // Their deletion triggers another run.
        return Ok(());
    }
    drop_finalizer(api, call, FOREGROUND).await
}

/// Removes the object from the owners of its dependents, then deletes it.
pub(super) async fn orphan(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
    let uid = meta::uid(&live.object);
    for key in api.store.dependents(uid).await? {
        let Some(kind) = kind_of(api, &key) else {
            continue;
        };
        let dependent = call_for(kind, &key);
        let Some(stored) = api.store.get(&key).await? else {
            continue;
        };
        let found = Live::of(&stored, &dependent.kind)?;
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
    let live = Live::of(&stored, &call.kind)?;
    let mut object = live.object.clone();
    if let Value::Array(finalizers) = &mut object["metadata"]["finalizers"] {
        finalizers.retain(|found| found != finalizer);
    }
    write::put(api, call, &live, object).await?;
    Ok(())
}
