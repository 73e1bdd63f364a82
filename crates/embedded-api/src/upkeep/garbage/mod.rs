//! Garbage collection: dependents of deleted owners, contents of terminating namespaces, objects of
//! removed kinds.
//!
//! Invariants: an object is deleted only when none of its owners exists any more, compared by uid;
//! failed items are retried. At the start, and after missed events, all objects are checked.

mod contents;
mod owners;

use std::{collections::HashSet, sync::Arc, time::Duration};

use apimachinery::{meta, resource::split_api_version};
use serde_json::Value;
use tokio::{
    sync::broadcast::error::RecvError,
    time::{Instant, sleep_until},
};
use tokio_util::sync::CancellationToken;

pub(super) use self::contents::{Remaining, empty};
use self::{
    contents::definition,
    owners::{check_owners, foreground, orphan},
};
use super::namespace;
use crate::{
    api::Api,
    error::ApiError,
    fairness::panics::confine_pass,
    registry::{Served, custom},
    store::{self, Collection, EventKind, Key, Scope},
    verbs::{
        Call, Live,
        delete::{FOREGROUND, ORPHAN},
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
            check_all = match confine_pass(check_everything(&api, &mut failed)).await {
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
                for item in items(
                    event.kind,
                    &event.key,
                    &event.body,
                    event.previous.as_deref(),
                ) {
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

fn items(kind: EventKind, key: &Key, body: &[u8], previous: Option<&[u8]>) -> Vec<Item> {
    let Ok(object) = store::metadata(body) else {
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
        out.extend(former_owners(&object, previous, key));
        if &*key.collection.plural == "namespaces" && meta::is_deleting(&object) {
            out.push(Item::Namespace(key.name.to_string()));
        }
        return out;
    }
    let mut out = vec![Item::OwnerDeleted(meta::uid(&object).to_owned())];
    out.extend(waiting_owners(&object, key).map(Item::Object));
    if !key.namespace.is_empty() {
        out.push(Item::Namespace(key.namespace.to_string()));
    }
    if key.collection.group.contains('.') {
        out.push(Item::Definition(key.collection.clone()));
    }
    out
}

/// Owners that a change released from waiting for this dependent.
fn former_owners(object: &Value, previous: Option<&[u8]>, key: &Key) -> Vec<Item> {
    let before = previous.and_then(|body| store::metadata(body).ok());
    let Some(before) = before else {
        return Vec::new();
    };
    let owners = |object: &Value| object["metadata"]["ownerReferences"].clone();
    if owners(&before) == owners(object) {
        return Vec::new();
    }
    waiting_owners(&before, key).map(Item::Object).collect()
}

/// Owners that wait for this dependent; their kinds are resolved when the item is processed.
fn waiting_owners(object: &Value, key: &Key) -> impl Iterator<Item = Key> {
    let namespace = key.namespace.clone();
    meta::owner_references(object).map(move |owner| {
        let (group, _) = split_api_version(owner.api_version);
        // Until then, the kind takes the place of the plural.
        Collection::new(group, &format!("kind:{}", owner.kind)).key(&namespace, owner.name)
    })
}

async fn process(api: &Api, item: Item, failed: &mut HashSet<Item>) {
    let done = confine_pass(async {
        match &item {
            Item::OwnerDeleted(uid) => owner_deleted(api, uid).await,
            Item::Object(key) => object(api, key).await,
            Item::Namespace(name) => namespace::finish(api, name).await,
            Item::Definition(collection) => definition(api, collection).await,
        }
    });
    match done.await {
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
                let object = stored.parse_metadata()?;
                let key = kind
                    .collection
                    .key(meta::namespace(&object), meta::name(&object));
                for item in items(EventKind::Added, &key, &stored.body, None) {
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
    let live = Live::shown(api, &stored, &call.kind).await?;
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
