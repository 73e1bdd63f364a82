//! A pool, with its template unparsed so that unknown fields reach the VMs, and its revisions.

use std::borrow::Cow;

use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{LabelSelector, ObjectMeta};
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use kubevirt_api::pool::{
    StatePreservation, VirtualMachinePool, VirtualMachinePoolAutohealingStrategy,
    VirtualMachinePoolNameGeneration, VirtualMachinePoolScaleInStrategy,
    VirtualMachinePoolSelectionPolicy, VirtualMachinePoolStatus as Status,
    VirtualMachinePoolUpdateStrategy,
};
use serde::{Deserialize, Serialize};
use serde_json::Value;

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Pool {
    pub(crate) metadata: ObjectMeta,
    pub(crate) spec: PoolSpec,
    status: Option<Status>,
}

#[derive(Debug, Clone, Default, Deserialize, Serialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct PoolSpec {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) replicas: Option<i32>,
    pub(crate) selector: LabelSelector,
    pub(crate) virtual_machine_template: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) paused: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) name_generation: Option<VirtualMachinePoolNameGeneration>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) max_unavailable: Option<IntOrString>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) scale_in_strategy: Option<VirtualMachinePoolScaleInStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) update_strategy: Option<VirtualMachinePoolUpdateStrategy>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) autohealing: Option<VirtualMachinePoolAutohealingStrategy>,
}

/// Who deletes VMs when there are too many.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ScaleIn<'a> {
    /// Which VMs it chooses.
    ByPool(Option<&'a VirtualMachinePoolSelectionPolicy>),
    ByUsers,
}

/// What happens to the disks of a VM that leaves the pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disks {
    Kept,
    Deleted,
}

impl Pool {
    pub(crate) fn status(&self) -> Cow<'_, Status> {
        match &self.status {
            Some(status) => Cow::Borrowed(status),
            None => Cow::Owned(Status::default()),
        }
    }

    pub(crate) fn is_deleting(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }
}

impl PoolSpec {
    /// The number of VMs that the pool is to have.
    pub(crate) fn wanted(&self) -> usize {
        usize::try_from(self.replicas.unwrap_or(1)).unwrap_or(0)
    }

    pub(crate) fn scale_in(&self) -> ScaleIn<'_> {
        let Some(strategy) = &self.scale_in_strategy else {
            return ScaleIn::ByPool(None);
        };
        if strategy.unmanaged.is_some() || strategy.opportunistic.is_some() {
            return ScaleIn::ByUsers;
        }
        let proactive = strategy.proactive.as_ref();
        ScaleIn::ByPool(proactive.and_then(|proactive| proactive.selection_policy.as_ref()))
    }

    pub(crate) fn disks(&self) -> Disks {
        let strategy = self.scale_in_strategy.as_ref();
        let preservation = strategy.and_then(|strategy| {
            let proactive = strategy.proactive.as_ref();
            let opportunistic = strategy.opportunistic.as_ref();
            proactive
                .and_then(|one| one.state_preservation.as_ref())
                .or_else(|| opportunistic.and_then(|one| one.state_preservation.as_ref()))
        });
        match preservation {
            Some(StatePreservation::Offline | StatePreservation::Online) => Disks::Kept,
            _ => Disks::Deleted,
        }
    }
}

reconcile::resource_view!(Pool, VirtualMachinePool, NamespaceResourceScope);

/// The spec of a pool as of one generation, which VMs and guests name in a label.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
pub(crate) struct Revision {
    pub(crate) metadata: ObjectMeta,
    data: Value,
}

impl Revision {
    pub(crate) fn template(&self) -> &Value {
        &self.data["virtualMachineTemplate"]
    }

    pub(crate) fn name_generation(&self) -> Option<VirtualMachinePoolNameGeneration> {
        VirtualMachinePoolNameGeneration::deserialize(&self.data["nameGeneration"]).ok()
    }
}

reconcile::resource_view!(Revision, ControllerRevision, NamespaceResourceScope);
