//! Watches that keep a [`Store`] current.

use std::borrow::Cow;
use std::pin::pin;
use std::time::Duration;

use backoff::{Delays, Failures};
use error_chain::error_chain;
use futures::TryStreamExt as _;
use k8s_openapi::ClusterResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::core::{ApiResource, DynamicResourceScope};
use kube::runtime::utils::Backoff as StreamBackoff;
use kube::runtime::{WatchStreamExt as _, watcher};
use kube::{Api, Client, Resource};
use serde::de::Error as _;
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

use crate::{Key, Store, View, metrics};

/// The view is stale while a watch pauses, and a process has few watches, so even after a long
/// outage the pause is short.
const DELAYS: Delays = Delays::new(Duration::from_millis(800), Duration::from_secs(6));
/// A watch that lasted this long starts over with short pauses when it fails.
const STABLE: Duration = Duration::from_secs(30);

/// Watches all namespaces until cancelled, keeps the store current and calls `trigger` with each
/// object that was added, modified (its state before and after) or deleted.
///
/// Managed fields are dropped. An object that its type cannot represent is logged and skipped
/// (after a fresh list it counts as absent), so that one malformed object never stops the others. So is one
/// whose parsing panics; a panic of `trigger` ends that call.
pub async fn watch<K: View>(
    client: Client,
    config: watcher::Config,
    store: Store<K>,
    trigger: impl Fn(&K),
    stop: CancellationToken,
) {
    let api = Api::all_with(client, &ApiResource::erase::<K>(&()));
    run(api, config, store, trigger, stop).await;
}

/// Like [`watch`], for the objects of one namespace.
pub async fn watch_namespace<K: View>(
    (client, namespace): (Client, &str),
    config: watcher::Config,
    store: Store<K>,
    trigger: impl Fn(&K),
    stop: CancellationToken,
) {
    let api = Api::namespaced_with(client, namespace, &ApiResource::erase::<K>(&()));
    run(api, config, store, trigger, stop).await;
}

async fn run<K: View>(
    api: Api<Raw>,
    config: watcher::Config,
    store: Store<K>,
    trigger: impl Fn(&K),
    stop: CancellationToken,
) {
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
            Ok(Some(event)) => {
                let before = store.len();
                follow(event, &store, &mut listed, &trigger);
                count_objects(before, &store);
            }
            Ok(None) => return,
            // The stream continues by itself after its back-off.
            Err(error) => {
                metrics::WATCH_RESTARTS.increment([&K::kind(&())]);
                tracing::warn!(
                    kind = %K::kind(&()),
                    error = error_chain(&error),
                    "watch failed, restarting it"
                );
            }
        }
    }
}

/// Publishes how the number of objects in a store has changed.
fn count_objects<K: Resource<DynamicType = ()>>(before: usize, store: &Store<K>) {
    let signed = |count| i64::try_from(count).unwrap_or(i64::MAX);
    let by = signed(store.len()) - signed(before);
    metrics::STORE_OBJECTS.change([&K::kind(&())], by);
}

/// An object of any kind, not parsed yet. One type for all watches: each type would instantiate all
/// generic code of a watch again and grow the program.
#[derive(Debug, Clone)]
struct Raw {
    metadata: ObjectMeta,
    /// Without managed fields.
    whole: Value,
}

impl<'de> Deserialize<'de> for Raw {
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

impl Resource for Raw {
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

/// Pauses between attempts of one watch. A response alone does not shorten them: a watch may fail
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
            failures: Failures::new(DELAYS),
            failed: Instant::now(),
        }
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        if self.failed.elapsed() >= STABLE {
            self.failures.succeeded(&self.what);
        }
        self.failed = Instant::now();
        Some(self.failures.failed(self.what.clone()).delay)
    }
}

impl StreamBackoff for Pauses {
    fn reset(&mut self) {}
}

/// The definition of a custom kind; only its existence matters here.
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

/// Like [`watch`], for a custom kind that the cluster may lack: the store is empty and ready while
/// the kind is not defined.
pub async fn watch_if_defined<K: View>(
    client: Client,
    config: watcher::Config,
    store: Store<K>,
    trigger: impl Fn(&K),
    stop: CancellationToken,
) {
    let (definitions, changed) = (Store::<Definition>::new(), Notify::new());
    let name = format!("{}.{}", K::plural(&()), K::group(&()));
    let only = watcher::Config::default().fields(&format!("metadata.name={name}"));
    let is_defined = || !definitions.list().is_empty();
    let watch_definition = watch(
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
                let before = store.len();
                for gone in store.replace(Vec::new()) {
                    call(&trigger, &gone);
                }
                count_objects(before, &store);
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
                &trigger,
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
        () = watch_definition => {}
        () = follow => {}
    }
}

fn follow<K: View>(
    event: watcher::Event<Raw>,
    store: &Store<K>,
    listed: &mut Vec<K>,
    trigger: &impl Fn(&K),
) {
    match event {
        watcher::Event::Init => listed.clear(),
        watcher::Event::InitApply(object) => listed.extend(parse(object)),
        watcher::Event::InitDone => {
            let fresh = std::mem::take(listed);
            let keys: Vec<Key> = fresh.iter().map(Key::of).collect();
            for gone in store.replace(fresh) {
                call(trigger, &gone);
            }
            for object in keys.iter().filter_map(|key| store.get(key)) {
                call(trigger, &object);
            }
        }
        watcher::Event::Apply(object) => {
            if let Some(object) = parse(object) {
                let key = Key::of(&object);
                if let Some(before) = store.put(object) {
                    call(trigger, &before);
                }
                if let Some(now) = store.get(&key) {
                    call(trigger, &now);
                }
            }
        }
        watcher::Event::Delete(object) => {
            if let Some(gone) = store.remove(&Key::of(&object)) {
                call(trigger, &gone);
            }
        }
    }
}

/// The process would meet the same object again after a restart, so a panic must not end it.
fn call<K>(trigger: &impl Fn(&K), object: &K) {
    panics::catch(|| trigger(object)).ok();
}

/// Parses the object; `None` if its type cannot represent it.
fn parse<K: View>(object: Raw) -> Option<K> {
    let key = Key::of(&object);
    let parsed = panics::catch(|| serde_json::from_value::<K>(object.whole));
    parsed
        .unwrap_or_else(|panicked| Err(serde_json::Error::custom(panicked)))
        .inspect_err(|error| {
            tracing::warn!(
                kind = %K::kind(&()),
                namespace = key.namespace,
                name = key.name,
                %error,
                "malformed object skipped"
            );
        })
        .ok()
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::ConfigMap;
    use serde_json::json;

    use super::*;

    fn raw(name: &str, data: &Value) -> Raw {
        let managed = json!([{"manager": "kubectl", "operation": "Update"}]);
        let metadata = json!({"namespace": "one", "name": name, "managedFields": managed});
        serde_json::from_value(json!({"metadata": metadata, "data": data})).unwrap()
    }

    #[test]
    fn malformed_object_is_skipped() {
        use watcher::Event::{Apply, Init, InitApply, InitDone};
        let store = Store::<ConfigMap>::new();
        let mut listed = Vec::new();
        let malformed = raw("malformed", &json!("not a map"));
        for event in [
            Init,
            InitApply(malformed.clone()),
            InitApply(raw("a", &json!({"is": "good"}))),
            InitDone,
            Apply(malformed),
            Apply(raw("b", &json!({"is": "good"}))),
        ] {
            follow(event, &store, &mut listed, &|_| {});
        }
        let all = store.list();
        let names: Vec<_> = all.iter().map(|one| Key::of(one.as_ref()).name).collect();
        assert_eq!(names, ["a", "b"]);
        assert!(all.iter().all(|one| one.metadata.managed_fields.is_none()));
    }
}
