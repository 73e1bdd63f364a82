//! Watches that keep a [`Store`] current.

use std::fmt::Debug;
use std::pin::pin;

use futures::TryStreamExt as _;
use kube::core::DeserializeGuard;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::DeserializeOwned;
use tokio_util::sync::CancellationToken;

use crate::chain::error_chain;
use crate::{Key, Store};

/// Watches all namespaces until cancelled, keeps the store current and calls `wake` with each
/// object that came, changed (its state before and after) or went.
///
/// Managed fields are dropped. An object that cannot be read is logged and passed over (after a
/// fresh list it counts as absent), so that one odd object never stops the others.
pub async fn watch<K>(
    client: Client,
    config: watcher::Config,
    store: Store<K>,
    wake: impl Fn(&K),
    stop: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let api = Api::<DeserializeGuard<K>>::all(client);
    let mut events = pin!(watcher(api, config).default_backoff());
    let mut listed = Vec::new();
    loop {
        let event = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            event = events.try_next() => event,
        };
        match event {
            Ok(Some(event)) => follow(event, &store, &mut listed, &wake),
            Ok(None) => return,
            // The stream goes on by itself after its own back-off.
            Err(error) => tracing::warn!(
                kind = %K::kind(&()),
                error = error_chain(&error),
                "watch failed, watching again"
            ),
        }
    }
}

fn follow<K>(
    event: watcher::Event<DeserializeGuard<K>>,
    store: &Store<K>,
    listed: &mut Vec<K>,
    wake: &impl Fn(&K),
) where
    K: Resource<DynamicType = ()>,
{
    match event {
        watcher::Event::Init => listed.clear(),
        watcher::Event::InitApply(object) => listed.extend(readable(object)),
        watcher::Event::InitDone => {
            let fresh = std::mem::take(listed);
            let keys: Vec<Key> = fresh.iter().map(Key::of).collect();
            for gone in store.replace(fresh) {
                wake(&gone);
            }
            for object in keys.iter().filter_map(|key| store.get(key)) {
                wake(&object);
            }
        }
        watcher::Event::Apply(object) => {
            if let Some(object) = readable(object) {
                let key = Key::of(&object);
                if let Some(before) = store.put(object) {
                    wake(&before);
                }
                if let Some(now) = store.get(&key) {
                    wake(&now);
                }
            }
        }
        watcher::Event::Delete(object) => {
            if let Some(gone) = store.remove(&Key::of(&object)) {
                wake(&gone);
            }
        }
    }
}

/// The object without its managed fields, or nothing in place of an unreadable one.
fn readable<K: Resource<DynamicType = ()>>(object: DeserializeGuard<K>) -> Option<K> {
    let key = Key::of(&object);
    match object.0 {
        Ok(mut object) => {
            object.meta_mut().managed_fields = None;
            Some(object)
        }
        Err(invalid) => {
            tracing::warn!(
                kind = %K::kind(&()),
                namespace = key.namespace,
                name = key.name,
                error = invalid.error,
                "object cannot be read and is passed over"
            );
            None
        }
    }
}
