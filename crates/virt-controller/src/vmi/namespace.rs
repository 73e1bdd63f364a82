//! A namespace and its quotas, which launcher pods depend on.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use k8s_openapi::api::core::v1::{Namespace as WholeNamespace, ResourceQuota};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use reconcile::{Key, Store, Tracked};
use serde::Deserialize;

use crate::view::Labels;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "WholeNamespace")]
pub(crate) struct Namespace {
    pub(crate) metadata: ObjectMeta,
}

impl From<WholeNamespace> for Namespace {
    fn from(whole: WholeNamespace) -> Self {
        Self {
            metadata: crate::view::slim(whole.metadata, Labels::Kept, &[]),
        }
    }
}

impl Namespace {
    pub(crate) fn labels(&self) -> BTreeMap<String, String> {
        self.metadata.labels.clone().unwrap_or_default()
    }
}

reconcile::resource_view!(Namespace, WholeNamespace, ClusterResourceScope);

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "ResourceQuota")]
pub(crate) struct Quota {
    pub(crate) metadata: ObjectMeta,
    /// Pods must have such a limit.
    pub(crate) counts_cpu_limits: bool,
    pub(crate) counts_memory_limits: bool,
}

impl From<ResourceQuota> for Quota {
    fn from(quota: ResourceQuota) -> Self {
        let hard = quota.spec.and_then(|spec| spec.hard).unwrap_or_default();
        Self {
            metadata: crate::view::slim(quota.metadata, Labels::Dropped, &[]),
            counts_cpu_limits: hard.contains_key("limits.cpu"),
            counts_memory_limits: hard.contains_key("limits.memory"),
        }
    }
}

reconcile::resource_view!(Quota, ResourceQuota, NamespaceResourceScope);

/// The quotas of all namespaces, and the VMIs whose pods were refused there.
#[derive(Debug, Clone)]
pub(crate) struct Quotas {
    store: Store<Quota>,
    refused: Tracked<Quota>,
}

impl Quotas {
    pub(crate) fn new(store: Store<Quota>) -> Self {
        let refused = Tracked::new(store.clone());
        Self { store, refused }
    }

    pub(crate) fn of(&self, namespace: &str) -> Vec<Arc<Quota>> {
        self.store.in_namespace(namespace)
    }

    /// Has the VMI reconciled when any quota of its namespace changes.
    pub(crate) fn note_refusal(&self, vmi: &Key) {
        let _nothing = self.refused.get(&of_all(&vmi.namespace), vmi).is_none();
    }

    pub(crate) fn changed(&self, quota: &Quota) -> BTreeSet<Key> {
        self.refused.changed(&of_all(&Key::of(quota).namespace))
    }
}

/// The key of all quotas of a namespace: no quota has this name.
fn of_all(namespace: &str) -> Key {
    Key::new(namespace, "")
}
