//! What a pod depends on besides its VMI: other objects, looked up by whoever renders.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kubevirt_api::vmi_status::PersistentVolumeClaimInfo;

use crate::Ratio;

/// Other objects that a pod is made from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Surroundings {
    /// Claims in the namespace of the VMI, by name. Every claim that the VMI uses must be here.
    pub claims: BTreeMap<String, Claim>,
    /// The claim that keeps firmware variables, TPM and the record of changed blocks.
    pub state_claim: Option<String>,
    pub namespace: Namespace,
    /// Resource that a network needs, by the network's name in the VMI: where nothing else puts it
    /// into the pod.
    pub network_resources: BTreeMap<String, String>,
}

/// A claim, as far as pods and guests depend on it.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claim {
    pub uid: String,
    /// As the status of the guest shows it, and as the node agent reads it from the pod.
    pub info: PersistentVolumeClaimInfo,
}

impl Claim {
    pub fn of(claim: &PersistentVolumeClaim) -> Self {
        let meta = &claim.metadata;
        let spec = claim.spec.clone().unwrap_or_default();
        let status = claim.status.clone().unwrap_or_default();
        let requests = spec.resources.and_then(|resources| resources.requests);
        Self {
            uid: meta.uid.clone().unwrap_or_default(),
            info: PersistentVolumeClaimInfo {
                claim_name: meta.name.clone(),
                access_modes: spec.access_modes.unwrap_or_default(),
                volume_mode: spec.volume_mode,
                capacity: status.capacity.unwrap_or_default(),
                requests: requests.unwrap_or_default(),
                ..PersistentVolumeClaimInfo::default()
            },
        }
    }

    pub fn mode(&self) -> ClaimMode {
        match self.info.volume_mode.as_deref() {
            Some("Block") => ClaimMode::Block,
            _ => ClaimMode::Filesystem,
        }
    }

    /// Whether several nodes may write to it at once.
    pub fn is_shared(&self) -> bool {
        let mut modes = self.info.access_modes.iter();
        modes.any(|mode| mode == "ReadWriteMany")
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMode {
    Filesystem,
    Block,
}

/// What the namespace and its quotas ask of pods.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Guests without a CPU limit get one.
    pub needs_cpu_limit: bool,
    /// Guests without a memory limit get one: this much of what they ask for.
    pub memory_limit_ratio: Option<Ratio>,
}
