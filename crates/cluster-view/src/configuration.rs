//! The current configuration of the cluster, updated whenever the administrator changes it.
//!
//! Invariant: an invalid configuration is ignored; the last valid one stays in effect.

use std::{borrow::Cow, collections::BTreeMap, fmt, sync::Arc};

use cluster_config::{ClusterConfig, HostDisks, Unusable, legacy};
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
/// The resource version while there is no object.
const NO_OBJECT: &str = "0";

/// Clones share the content.
#[derive(Clone)]
pub struct Configuration {
    inner: Arc<Inner>,
}

struct Inner {
    current: watch::Sender<Arc<ClusterConfig>>,
    /// The resource version of the object that `current` was read from.
    version: watch::Sender<String>,
    /// In effect while neither of the objects exists.
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
    /// The configuration of the installation in that namespace; the defaults until [`Self::ready`].
    pub fn new(namespace: &str) -> Self {
        Self::with_initial(ClusterConfig::default(), namespace)
    }

    /// The configuration of an installation whose host disks have to be directly in one of these directories,
    /// whatever the installation's objects say.
    pub fn with_host_disks(directories: Vec<String>, namespace: &str) -> Self {
        let initial = ClusterConfig {
            host_disks: HostDisks::In(directories),
            ..ClusterConfig::default()
        };
        Self::with_initial(initial, namespace)
    }

    /// `initial` is in effect while the installation has no configuration.
    pub fn with_initial(initial: ClusterConfig, namespace: &str) -> Self {
        let initial = Arc::new(initial);
        Self {
            inner: Arc::new(Inner {
                current: watch::Sender::new(Arc::clone(&initial)),
                version: watch::Sender::new(NO_OBJECT.to_owned()),
                initial,
                namespace: namespace.to_owned(),
                maps: Store::new(),
                kubevirts: Store::new(),
            }),
        }
    }

    /// The configuration in effect.
    pub fn now(&self) -> Arc<ClusterConfig> {
        Arc::clone(&self.inner.current.borrow())
    }

    /// The resource version of the `KubeVirt` object in effect, else that of the legacy config map, else `0`. A
    /// client that changed the configuration waits until this is at least the version of its change.
    pub fn resource_version(&self) -> String {
        self.inner.version.borrow().clone()
    }

    /// Watches the objects until stopped.
    pub fn follow(&self, client: &Client, tasks: &TaskTracker, stop: &CancellationToken) {
        let configuration = self.clone();
        let name = format!("metadata.name={}", legacy::NAME);
        let (client_of_maps, stop_of_maps) = (client.clone(), stop.clone());
        tasks.spawn(async move {
            let inner = &configuration.inner;
            // Components may not read the config maps of users.
            let place = (client_of_maps, inner.namespace.as_str());
            let only = watcher::Config::default().fields(&name);
            let reload = |_: &ConfigMap| configuration.reload();
            reconcile::watch_namespace(place, only, inner.maps.clone(), reload, stop_of_maps).await;
        });
        let configuration = self.clone();
        tasks.spawn(reconcile::watch_if_defined(
            client.clone(),
            watcher::Config::default(),
            self.inner.kubevirts.clone(),
            move |_| configuration.reload(),
            stop.clone(),
        ));
    }

    /// Waits until both objects are synchronized.
    pub async fn ready(&self) {
        self.inner.maps.ready().await;
        self.inner.kubevirts.ready().await;
        self.reload();
    }

    /// Notifies of each change; the current configuration counts as seen.
    pub fn changes(&self) -> watch::Receiver<Arc<ClusterConfig>> {
        self.inner.current.subscribe()
    }

    fn reload(&self) {
        let inner = &self.inner;
        let map = inner.maps.get(&Key::new(&inner.namespace, legacy::NAME));
        let kubevirts = inner.kubevirts.list();
        let kubevirt = in_effect(&kubevirts, &inner.namespace);
        let data = map.as_ref().and_then(|map| map.data.as_ref());
        match read(&inner.initial, data, kubevirt) {
            Ok(config) => {
                let changed = inner.current.send_if_modified(|current| {
                    let changed = *current != config;
                    *current = config;
                    changed
                });
                if changed {
                    tracing::info!("cluster configuration changed");
                }
                let versions = [
                    kubevirt.and_then(|one| one.metadata.resource_version.clone()),
                    map.as_ref()
                        .and_then(|map| map.metadata.resource_version.clone()),
                ];
                let version = versions.into_iter().flatten().next();
                inner
                    .version
                    .send_replace(version.unwrap_or_else(|| NO_OBJECT.to_owned()));
            }
            Err(error) => tracing::warn!(
                error = %error,
                "invalid cluster configuration; the last valid one stays in effect"
            ),
        }
    }
}

/// The oldest object of the namespace, as for the status of an installation.
fn in_effect<'a>(all: &'a [Arc<KubeVirt>], namespace: &str) -> Option<&'a KubeVirt> {
    all.iter()
        .map(AsRef::as_ref)
        .filter(|one| one.metadata.namespace.as_deref() == Some(namespace))
        .min_by_key(|one| (&one.metadata.creation_timestamp, &one.metadata.name))
}

fn read(
    initial: &Arc<ClusterConfig>,
    map: Option<&BTreeMap<String, String>>,
    kubevirt: Option<&KubeVirt>,
) -> Result<Arc<ClusterConfig>, Unusable> {
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
    let mut config = ClusterConfig::from_objects(map, object.as_ref())?;
    config.host_disks = initial.host_disks.clone();
    Ok(Arc::new(config))
}

/// The parts of a `KubeVirt` object that are read here.
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
    fn directories_of_host_disks_are_not_of_the_objects() {
        let configuration = Configuration::with_host_disks(vec!["/d".to_owned()], "kubevirt");
        let expected = HostDisks::In(vec!["/d".to_owned()]);
        assert_eq!(configuration.now().host_disks, expected);
        let gates = BTreeMap::from([("feature-gates".to_owned(), "HostDisk".to_owned())]);
        let config = read(&configuration.inner.initial, Some(&gates), None).unwrap();
        assert!(config.has_gate("HostDisk"));
        assert_eq!(config.host_disks, expected);
    }

    #[test]
    fn configuration_follows_its_objects() {
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
