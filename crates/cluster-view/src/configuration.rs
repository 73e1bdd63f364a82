//! The cluster's configuration as it is now: read again whenever the administrator changes it.
//!
//! Invariant: a configuration that cannot be read changes nothing; the last good one stays.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use admission::{ClusterConfig, legacy_config};
use k8s_openapi::{
    NamespaceResourceScope, api::core::v1::ConfigMap, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Client, Resource, runtime::watcher};
use reconcile::{Key, Store};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};

const KUBEVIRTS: &str = "kubevirts";

/// Clones share the content.
#[derive(Clone)]
pub struct Configuration {
    inner: Arc<Inner>,
}

struct Inner {
    now: watch::Sender<Arc<ClusterConfig>>,
    /// While the administrator has written nothing.
    initial: Arc<ClusterConfig>,
    namespace: String,
    maps: Store<ConfigMap>,
    kubevirts: Store<KubeVirt>,
}

impl fmt::Debug for Configuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Configuration").finish_non_exhaustive()
    }
}

impl Configuration {
    pub fn new(initial: ClusterConfig, namespace: String) -> Self {
        let initial = Arc::new(initial);
        Self {
            inner: Arc::new(Inner {
                now: watch::Sender::new(Arc::clone(&initial)),
                initial,
                namespace,
                maps: Store::new(),
                kubevirts: Store::new(),
            }),
        }
    }

    /// What counts for a request that came just now.
    pub fn now(&self) -> Arc<ClusterConfig> {
        Arc::clone(&self.inner.now.borrow())
    }

    /// Follows the objects until stopped.
    pub fn follow(&self, client: &Client, tasks: &TaskTracker, stop: &CancellationToken) {
        let own = self.clone();
        let name = format!("metadata.name={}", legacy_config::NAME);
        tasks.spawn(reconcile::watch(
            client.clone(),
            watcher::Config::default().fields(&name),
            self.inner.maps.clone(),
            move |_| own.read_again(),
            stop.clone(),
        ));
        let own = self.clone();
        tasks.spawn(reconcile::watch_if_defined(
            client.clone(),
            watcher::Config::default(),
            self.inner.kubevirts.clone(),
            move |_| own.read_again(),
            stop.clone(),
        ));
    }

    /// Waits until what the administrator has written is known.
    pub async fn ready(&self) {
        self.inner.maps.ready().await;
        self.inner.kubevirts.ready().await;
        self.read_again();
    }

    /// Tells of each change; what counts already is no change.
    pub fn changes(&self) -> watch::Receiver<Arc<ClusterConfig>> {
        self.inner.now.subscribe()
    }

    fn read_again(&self) {
        let inner = &self.inner;
        let map = inner
            .maps
            .get(&Key::new(&inner.namespace, legacy_config::NAME));
        let kubevirts = inner.kubevirts.list();
        let kubevirt = kubevirts
            .iter()
            .find(|one| one.metadata.namespace.as_deref() == Some(&inner.namespace));
        let data = map.as_ref().and_then(|map| map.data.as_ref());
        match read(&inner.initial, data, kubevirt.map(AsRef::as_ref)) {
            Ok(config) => {
                let is_new = inner.now.send_if_modified(|now| {
                    let is_new = *now != config;
                    *now = config;
                    is_new
                });
                if is_new {
                    tracing::info!("the cluster's configuration has changed");
                }
            }
            Err(error) => tracing::warn!(
                error = %error,
                "the cluster's configuration cannot be read, the last good one stays"
            ),
        }
    }
}

fn read(
    initial: &Arc<ClusterConfig>,
    map: Option<&BTreeMap<String, String>>,
    kubevirt: Option<&KubeVirt>,
) -> Result<Arc<ClusterConfig>, admission::cluster_config::Unusable> {
    if map.is_none() && kubevirt.is_none() {
        return Ok(Arc::clone(initial));
    }
    let object = kubevirt.map(|kubevirt| {
        json!({
            "metadata": { "annotations": kubevirt.metadata.annotations },
            "spec": kubevirt.spec,
            "status": kubevirt.status,
        })
    });
    ClusterConfig::from_objects(map, object.as_ref()).map(Arc::new)
}

/// A `KubeVirt` object as far as it is read here.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
struct KubeVirt {
    metadata: ObjectMeta,
    spec: Value,
    status: Value,
}

impl Resource for KubeVirt {
    type DynamicType = ();
    type Scope = NamespaceResourceScope;

    fn kind((): &()) -> Cow<'_, str> {
        "KubeVirt".into()
    }

    fn group((): &()) -> Cow<'_, str> {
        kubevirt_api::GROUP.into()
    }

    fn version((): &()) -> Cow<'_, str> {
        kubevirt_api::VERSION.into()
    }

    fn plural((): &()) -> Cow<'_, str> {
        KUBEVIRTS.into()
    }

    fn meta(&self) -> &ObjectMeta {
        &self.metadata
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        &mut self.metadata
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_administrator_writes_counts_and_goes_with_its_object() {
        let initial = Arc::new(ClusterConfig::default());
        let map = BTreeMap::from([("feature-gates".to_owned(), "HostDisk".to_owned())]);
        let kubevirt = KubeVirt {
            spec: json!({ "configuration": { "cpuModel": "Haswell" } }),
            ..KubeVirt::default()
        };
        let config = read(&initial, Some(&map), Some(&kubevirt)).expect("reads");
        assert!(config.has_gate("HostDisk"));
        assert_eq!(config.cpu_model.as_deref(), Some("Haswell"));
        assert_eq!(read(&initial, None, None).expect("reads"), initial);
        let broken = BTreeMap::from([("debug.useEmulation".to_owned(), "maybe".to_owned())]);
        assert!(read(&initial, Some(&broken), None).is_err());
    }
}
