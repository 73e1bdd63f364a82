//! Watches that keep a [`Store`] current.

use std::borrow::Cow;
use std::fmt::Debug;
use std::pin::pin;
use std::time::Duration;

use futures::TryStreamExt as _;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use kube::runtime::utils::Backoff as PausesOfStream;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::chain::error_chain;
use crate::failures::{Backoff, Failures};
use crate::{Key, Store};

/// A watch that held for so long starts over with short pauses when it fails.
const HELD: Duration = Duration::from_secs(30);

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
    let api = Api::<Unread>::all_with(client, &ApiResource::erase::<K>(&()));
    let pauses = Pauses::of(&format!("{} {config:?}", K::kind(&())));
    let mut events = pin!(watcher(api, config).backoff(pauses));
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

/// An object of any kind as it came. One type for all watches: each type of object makes the whole
/// machinery of a watch anew, which a program of many watches would feel in its size.
#[derive(Debug, Clone)]
struct Unread {
    metadata: ObjectMeta,
    /// Without managed fields, which nobody reads here.
    whole: Value,
}

impl<'de> Deserialize<'de> for Unread {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let mut whole = Value::deserialize(deserializer)?;
        let metadata = whole.get_mut("metadata");
        if let Some(metadata) = metadata.and_then(Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = ObjectMeta::deserialize(&whole["metadata"]).map_err(D::Error::custom)?;
        Ok(Self { metadata, whole })
    }
}

impl Resource for Unread {
    type DynamicType = ApiResource;
    type Scope = DynamicResourceScope;

    fn kind(kind: &ApiResource) -> Cow<'_, str> {
        kind.kind.as_str().into()
    }

    fn group(kind: &ApiResource) -> Cow<'_, str> {
        kind.group.as_str().into()
    }

    fn version(kind: &ApiResource) -> Cow<'_, str> {
        kind.version.as_str().into()
    }

    fn plural(kind: &ApiResource) -> Cow<'_, str> {
        kind.plural.as_str().into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// Pauses between tries of one watch. An answer alone does not shorten them: a watch may fail
/// after each.
struct Pauses {
    what: String,
    failures: Failures<String>,
    failed: Instant,
}

impl Pauses {
    fn of(what: &str) -> Self {
        Self {
            what: what.to_owned(),
            failures: Failures::new(Backoff::WATCH),
            failed: Instant::now(),
        }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.failed.elapsed() >= HELD {
            self.failures.succeeded(&self.what);
        }
        self.failed = Instant::now();
        Some(self.failures.failed(self.what.clone()))
    }
}

impl PausesOfStream for Pauses {
    fn reset(&mut self) {}
}

/// The definition of a custom kind, as far as it matters here: it is there.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Definition {
    metadata: ObjectMeta,
}

impl Resource for Definition {
    type DynamicType = ();
    type Scope = ClusterResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        CustomResourceDefinition::kind(&())
    }

    fn group((): &()) -> Cow<'_, str> {
        CustomResourceDefinition::group(&())
    }

    fn version((): &()) -> Cow<'_, str> {
        CustomResourceDefinition::version(&())
    }

    fn plural((): &()) -> Cow<'_, str> {
        CustomResourceDefinition::plural(&())
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

/// As [`watch`], for a custom kind that the cluster may do without: the store is empty and ready
/// while the kind is not defined.
pub async fn watch_if_defined<K>(
    client: Client,
    config: watcher::Config,
    store: Store<K>,
    wake: impl Fn(&K),
    stop: CancellationToken,
) where
    K: Resource<DynamicType = ()> + Clone + DeserializeOwned + Debug + Send + 'static,
{
    let (definitions, changed) = (Store::<Definition>::new(), Notify::new());
    let name = format!("{}.{}", K::plural(&()), K::group(&()));
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let is_defined = || !definitions.list().is_empty();
    let look = watch(
        client.clone(),
        only,
        definitions.clone(),
        |_| changed.notify_one(),
        stop.clone(),
    );
    let follow = async {
        definitions.ready().await;
        loop {
            store.set_defined(is_defined());
            if !is_defined() {
                for gone in store.replace(Vec::new()) {
                    wake(&gone);
                }
                changed.notified().await;
                continue;
            }
            let undefined = async {
                while is_defined() {
                    changed.notified().await;
                }
            };
            let objects = watch(
                client.clone(),
                config.clone(),
                store.clone(),
                &wake,
                stop.clone(),
            );
            tokio::select! {
                biased;
                () = undefined => {}
                () = objects => return,
            }
        }
    };
    tokio::select! {
        biased;
        () = look => {}
        () = follow => {}
    }
}

fn follow<K>(
    event: watcher::Event<Unread>,
    store: &Store<K>,
    listed: &mut Vec<K>,
    wake: &impl Fn(&K),
) where
    K: Resource<DynamicType = ()> + DeserializeOwned,
{
    match event {
        watcher::Event::Init => listed.clear(),
        watcher::Event::InitApply(object) => listed.extend(read(object)),
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
            if let Some(object) = read(object) {
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

/// The object, or nothing in place of one that its type does not fit.
fn read<K: Resource<DynamicType = ()> + DeserializeOwned>(object: Unread) -> Option<K> {
    let key = Key::of(&object);
    let read = serde_json::from_value::<K>(object.whole);
    read.inspect_err(|error| {
        tracing::warn!(
            kind = %K::kind(&()),
            namespace = key.namespace,
            name = key.name,
            %error,
            "object cannot be read and is passed over"
        );
    })
    .ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn unread(name: &str, data: &Value) -> Unread {
        let managed = json!([{"manager": "kubectl", "operation": "Update"}]);
        let metadata = json!({"namespace": "one", "name": name, "managedFields": managed});
        serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
    }

    #[test]
    fn an_object_that_cannot_be_read_stops_no_other() {
        use watcher::Event::{Apply, Init, InitApply, InitDone};
        let store = Store::<ConfigMap>::new();
        let mut listed = Vec::new();
        let odd = unread("odd", &json!("a map, it should be"));
        for event in [
            Init,
            InitApply(odd.clone()),
            InitApply(unread("a", &json!({"is": "good"}))),
            InitDone,
            Apply(odd),
            Apply(unread("b", &json!({"is": "good"}))),
        ] {
            follow(event, &store, &mut listed, &|_| {});
        }
        let all = store.list();
        let names: Vec<_> = all.iter().map(|one| Key::of(one.as_ref()).name).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(all.iter().all(|one| one.metadata.managed_fields.is_none()));
    }
}
