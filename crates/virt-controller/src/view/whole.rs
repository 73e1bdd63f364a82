//! A VMI with all of its fields, which no cache keeps.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::VirtualMachineInstance;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A VMI with all fields of its spec, to change a part of it.
#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct WholeVmi {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: Value,
    status: Value,
}

reconcile::resource_view!(WholeVmi, VirtualMachineInstance, NamespaceResourceScope);
