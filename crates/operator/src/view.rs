//! The parts of objects that are read here, tolerant of all others.

use k8s_openapi::{
    api::core::v1::ConfigMap,
    apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition,
    apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kubevirt_api::{
    KubeVirt, cdi_config::CDIConfig, instancetype::VirtualMachineClusterInstancetype,
    kubevirt::KubeVirtStatus, preference::VirtualMachineClusterPreference,
};
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// A `KubeVirt` object. Its spec may have fields or values that this version does not know.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Installation {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Value,
    #[serde(deserialize_with = "tolerant")]
    pub(crate) status: KubeVirtStatus,
}

/// A status that does not parse is overwritten.
fn tolerant<'de, D: Deserializer<'de>>(deserializer: D) -> Result<KubeVirtStatus, D::Error> {
    let value = Value::deserialize(deserializer)?;
    Ok(serde_json::from_value(value).unwrap_or_default())
}

/// A definition of a kind; its schema is not read.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Definition {
    pub(crate) metadata: ObjectMeta,
}

/// The config map with virt-api's authority; it is read when it has changed.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct AuthorityMap {
    pub(crate) metadata: ObjectMeta,
}

/// The settings of the importer, by any version of it.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ImporterConfig {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Value,
    pub(crate) status: Value,
}

/// A view of a kind of instance types or preferences.
macro_rules! common_view {
    ($view:ident, $kind:ty) => {
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default)]
        pub(crate) struct $view {
            pub(crate) metadata: ObjectMeta,
            /// As text, which takes a fraction of the memory.
            #[serde(deserialize_with = "text")]
            pub(crate) spec: String,
        }

        reconcile::resource_view!($view, $kind, ClusterResourceScope);
    };
}

fn text<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Ok(Value::deserialize(deserializer)?.to_string())
}

reconcile::resource_view!(Installation, KubeVirt, NamespaceResourceScope);
reconcile::resource_view!(AuthorityMap, ConfigMap, NamespaceResourceScope);
reconcile::resource_view!(Definition, CustomResourceDefinition, ClusterResourceScope);
reconcile::resource_view!(ImporterConfig, CDIConfig, ClusterResourceScope);
common_view!(ClusterInstancetype, VirtualMachineClusterInstancetype);
common_view!(ClusterPreference, VirtualMachineClusterPreference);
