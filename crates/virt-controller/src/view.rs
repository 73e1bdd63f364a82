//! Objects as far as the controllers read them: caches hold no more.

use std::borrow::Cow;
use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Node, Pod, PodStatus};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use k8s_openapi::{ClusterResourceScope, NamespaceResourceScope};
use kube::Resource;
use kubevirt_api::VirtualMachine;
use kubevirt_api::vm::VirtualMachineRunStrategy;
use kubevirt_api::vm_status::VirtualMachineStatus;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A VM. Its template is kept as it was written: fields that this version does not know reach
/// the VMI all the same.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Vm {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: VmSpec,
    status: Option<VirtualMachineStatus>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct VmSpec {
    pub(crate) running: Option<bool>,
    pub(crate) run_strategy: Option<VirtualMachineRunStrategy>,
    pub(crate) instancetype: Option<Value>,
    pub(crate) preference: Option<Value>,
    pub(crate) data_volume_templates: Option<Vec<Value>>,
    /// Left out where the spec is written: what is in it is asked of the VMI.
    #[serde(skip_serializing)]
    pub(crate) template: Value,
}

impl Vm {
    pub(crate) fn status(&self) -> Cow<'_, VirtualMachineStatus> {
        match &self.status {
            Some(status) => Cow::Borrowed(status),
            None => Cow::Owned(VirtualMachineStatus::default()),
        }
    }
}

/// A launcher pod.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct LauncherPod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: PodPlace,
    pub(crate) status: PodStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PodPlace {
    pub(crate) node_name: Option<String>,
}

/// A node, reduced to what it offers.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Host {
    pub(crate) metadata: ObjectMeta,
    pub(crate) status: HostStatus,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct HostStatus {
    pub(crate) allocatable: BTreeMap<String, Quantity>,
}

macro_rules! seen_as {
    ($view:ident, $kind:ident, $scope:ident) => {
        impl Resource for $view {
            type DynamicType = ();
            type Scope = $scope;

            fn kind((): &()) -> Cow<'_, str> {
                $kind::kind(&())
            }

            fn group((): &()) -> Cow<'_, str> {
                $kind::group(&())
            }

            fn version((): &()) -> Cow<'_, str> {
                $kind::version(&())
            }

            fn plural((): &()) -> Cow<'_, str> {
                $kind::plural(&())
            }

            fn meta(&self) -> &ObjectMeta {
                &self.metadata
            }

            fn meta_mut(&mut self) -> &mut ObjectMeta {
                &mut self.metadata
            }
        }
    };
}

seen_as!(Vm, VirtualMachine, NamespaceResourceScope);
seen_as!(LauncherPod, Pod, NamespaceResourceScope);
seen_as!(Host, Node, ClusterResourceScope);
