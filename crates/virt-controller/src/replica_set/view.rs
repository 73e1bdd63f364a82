//! A replica set. Its template is kept unparsed.

use std::borrow::Cow;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use kubevirt_api::replica_set::{
    VirtualMachineInstanceReplicaSet, VirtualMachineInstanceReplicaSetStatus as Status,
};
use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicaSet {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: ReplicaSetSpec,
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct ReplicaSetSpec {
    pub(crate) replicas: Option<i32>,
    pub(crate) selector: LabelSelector,
    pub(crate) template: Value,
    pub(crate) paused: Option<bool>,
}

impl ReplicaSet {
    pub(crate) fn status(&self) -> Cow<'_, Status> {
        match &self.status {
            Some(status) => Cow::Borrowed(status),
            None => Cow::Owned(Status::default()),
        }
    }
}

reconcile::resource_view!(
    ReplicaSet,
    VirtualMachineInstanceReplicaSet,
    NamespaceResourceScope
);
