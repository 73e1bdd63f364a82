//! Garbage collection: dependents of deleted owners, contents of terminating namespaces, objects of
//! removed kinds.
//!
//! Invariants: an object is deleted only when none of its owners exists any more, compared by uid;
//! failed items are retried. At the start, and after missed events, all objects are checked.

use std::{
    collections::{BTreeMap, HashSet},
    sync::Arc,
    time::Duration,
};

use apimachinery::{meta, resource::split_api_version};
use serde_json::Value;
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

use super::namespace;
use crate::{
    api::Api,
    error::ApiError,
    registry::{Served, custom},
    store::{Collection, EventKind, Key, Scope},
    verbs::{
        Call, Live,
        delete::{self, FOREGROUND, ORPHAN, Options, Propagation},
        write,
    },
};

/// Delay before failed items are retried.
const RETRY: Duration = Duration::from_secs(5);
/// Objects read at once during a full check.
const CHUNK: usize = 100;

pub(crate) async fn run(api: Api, stop: CancellationToken) {
    let mut live = api.store.live();
    let mut failed: HashSet<Item> = HashSet::new();
    let mut check_all = true;
    let mut retry = Instant::now() + RETRY;
    loop {
        if check_all {
            check_all = match check_everything(&api, &mut failed).await {
                Ok(()) => false,
                Err(error) => {
                    tracing::warn!(%error, "garbage collection failed");
                    true
                }
            };
        }
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = live.recv() => Some(event),
            () = sleep_until(retry), if check_all || !failed.is_empty() => None,
        };
        match event {
            Some(Ok(event)) => {
                for item in items(event.kind, &event.key, &event.body) {
                    process(&api, item, &mut failed).await;
                }
            }
            Some(Err(RecvError::Lagged(_))) => check_all = true,
            Some(Err(RecvError::Closed)) => return,
            None => {
                for item in std::mem::take(&mut failed) {
                    process(&api, item, &mut failed).await;
                }
            }
        }
        if failed.is_empty() || Instant::now() >= retry {
            retry = Instant::now() + RETRY;
        }
    }
}

/// An item of the work list.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Item {
    /// An owner was deleted.
    OwnerDeleted(String),
    /// An object whose owners may be missing, or that may be terminating.
    Object(Key),
    /// A namespace that may be terminating.
    Namespace(String),
    /// A kind that may be terminating.
    Definition(Collection),
}

fn items(kind: EventKind, key: &Key, body: &[u8]) -> Vec<Item> {
    let Ok(object) = serde_json::from_slice::<Value>(body) else {
        return Vec::new();
    };
    if kind != EventKind::Deleted {
        let is_relevant = meta::owner_references(&object).next().is_some()
            || (meta::is_deleting(&object)
                && meta::finalizers(&object)
                    .any(|f| [FOREGROUND, ORPHAN, custom::CLEANUP].contains(&f)));
        let mut out = Vec::new();
        if is_relevant {
            out.push(Item::Object(key.clone()));
        }
        if &*key.collection.plural == "namespaces" && meta::is_deleting(&object) {
            out.push(Item::Namespace(key.name.to_string()));
        }
        return out;
    }
    let mut out = vec![Item::OwnerDeleted(meta::uid(&object).to_owned())];
    out.extend(owners(&object, key).map(Item::Object));
    if !key.namespace.is_empty() {
        out.push(Item::Namespace(key.namespace.to_string()));
    }
    if key.collection.group.contains('.') {
        out.push(Item::Definition(key.collection.clone()));
    }
    out
}

/// Owners that wait for this dependent; their kinds are resolved when the item is processed.
fn owners(object: &Value, key: &Key) -> impl Iterator<Item = Key> {
    let namespace = key.namespace.clone();
    meta::owner_references(object).map(move |owner| {
        let (group, _) = split_api_version(owner.api_version);
        // Until then, the kind takes the place of the plural.
        Collection::new(group, &format!("kind:{}", owner.kind)).key(&namespace, owner.name)
    })
}

async fn process(api: &Api, item: Item, failed: &mut HashSet<Item>) {
    let done = match &item {
        Item::OwnerDeleted(uid) => owner_deleted(api, uid).await,
        Item::Object(key) => Box::pin(object(api, key)).await,
        Item::Namespace(name) => Box::pin(namespace::finish(api, name)).await,
        Item::Definition(collection) => Box::pin(definition(api, collection)).await,
    };
    match done {
        Ok(()) => {}
        // The object was deleted already.
        Err(error) if error.is_not_found() => {}
        Err(error) => {
            tracing::debug!(?item, %error, "garbage collection of the item failed, will retry");
            failed.insert(item);
        }
    }
}

async fn check_everything(api: &Api, failed: &mut HashSet<Item>) -> Result<(), ApiError> {
    for kind in api.registry.all() {
        if !kind.verbs.contains(&"list") || !kind.is_storage_version() {
            continue;
        }
        let scope = Scope::all(kind.collection.clone());
        let mut after = None;
        loop {
            let page = api.store.list(&scope, after, Some(CHUNK)).await?;
            for stored in page.items {
                let object = stored.parse()?;
                let key = kind
                    .collection
                    .key(meta::namespace(&object), meta::name(&object));
                for item in items(EventKind::Added, &key, &stored.body) {
                    process(api, item, failed).await;
                }
            }
            match page.more {
                Some(more) => after = Some(more.after),
                None => break,
            }
        }
    }
    Ok(())
}

async fn owner_deleted(api: &Api, uid: &str) -> Result<(), ApiError> {
    for key in api.store.dependents(uid).await? {
        Box::pin(object(api, &key)).await?;
    }
    Ok(())
}

/// The kind of a key.
fn kind_of(api: &Api, key: &Key) -> Option<Arc<Served>> {
    let (group, plural) = (&*key.collection.group, &*key.collection.plural);
    match plural.strip_prefix("kind:") {
        Some(kind) => api.registry.find_kind(group, kind),
        None => api
            .registry
            .all()
            .into_iter()
            .find(|kind| kind.collection == key.collection && kind.is_storage_version()),
    }
}

fn call_for(kind: Arc<Served>, key: &Key) -> Call {
    let namespace = if kind.namespaced { &*key.namespace } else { "" };
    Call::internal(kind, namespace, Some(&key.name))
}

async fn object(api: &Api, key: &Key) -> Result<(), ApiError> {
    let Some(kind) = kind_of(api, key) else {
        return Ok(());
    };
    let call = call_for(kind, key);
    let Some(stored) = api.store.get(&call.key(call.name())).await? else {
        return Ok(());
    };
    let live = Live::of(&stored, &call.kind)?;
    let object = &live.object;
    if meta::is_deleting(object) {
        let has_finalizer =
            |finalizer: &str| meta::finalizers(object).any(|found| found == finalizer);
        if has_finalizer(custom::CLEANUP) {
            let spec = &object["spec"];
            let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
            let collection =
                Collection::new(&text(&spec["group"]), &text(&spec["names"]["plural"]));
            return Box::pin(definition(api, &collection)).await;
        }
        if has_finalizer(ORPHAN) {
            return orphan(api, &call, &live).await;
        }
        if has_finalizer(FOREGROUND) {
            return foreground(api, &call, &live).await;
        }
    }
    check_owners(api, &call, &live).await
}

/// Deletes an object without remaining owners; otherwise drops references to deleted owners.
async fn check_owners(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
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

async fn foreground(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
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

async fn orphan(api: &Api, call: &Call, live: &Live) -> Result<(), ApiError> {
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

async fn drop_finalizer(api: &Api, call: &Call, finalizer: &str) -> Result<(), ApiError> {
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

/// The objects that could not be deleted immediately, and the finalizers that hold them.
#[derive(Debug, Default)]
pub(super) struct Remaining {
    pub(super) count: usize,
    /// Finalizers, each with the number of objects it holds.
    pub(super) finalizers: BTreeMap<String, usize>,
}

/// Deletes all objects in the scope and returns those that are still terminating.
pub(super) async fn empty(
    api: &Api,
    kind: &Arc<Served>,
    scope: &Scope,
) -> Result<Remaining, ApiError> {
    let mut after = None;
    let mut remaining = Remaining::default();
    loop {
        let page = api.store.list(scope, after, Some(CHUNK)).await?;
        for stored in page.items {
            let object = stored.parse()?;
            let name = meta::name(&object);
            let call = Call::internal(Arc::clone(kind), meta::namespace(&object), Some(name));
            let done = if meta::is_deleting(&object) {
                Ok(delete::Outcome::Terminating(object.clone()))
            } else {
                Box::pin(delete::delete_named(api, &call, name, &Options::default())).await
            };
            match done {
                Ok(delete::Outcome::Deleted(_)) => {}
                Ok(delete::Outcome::Terminating(object)) => {
                    remaining.count += 1;
                    for finalizer in meta::finalizers(&object) {
                        *remaining
                            .finalizers
                            .entry(finalizer.to_owned())
                            .or_default() += 1;
                    }
                }
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        match page.more {
            Some(more) => after = Some(more.after),
            None => return Ok(remaining),
        }
    }
}

/// Deletes the objects of a kind that is being removed, then its definition.
async fn definition(api: &Api, collection: &Collection) -> Result<(), ApiError> {
    let group = "apiextensions.k8s.io";
    let Some(definitions) = api.registry.find(group, "v1", "customresourcedefinitions") else {
        return Ok(());
    };
    let name = format!("{}.{}", collection.plural, collection.group);
    let call = Call::internal(definitions, "", Some(&name));
    let Some(stored) = api.store.get(&call.key(&name)).await? else {
        return Ok(());
    };
    if !meta::is_deleting(&stored.parse()?) {
        return Ok(());
    }
    let kind = api
        .registry
        .all()
        .into_iter()
        .find(|kind| kind.collection == *collection);
    if let Some(kind) = kind
        && empty(api, &kind, &Scope::all(collection.clone()))
            .await?
            .count
            > 0
    {
        return Ok(());
    }
    drop_finalizer(api, &call, custom::CLEANUP).await
}
