//! Other objects that a pod depends on besides its VMI. The caller looks them up.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kubevirt_api::vmi_status::PersistentVolumeClaimInfo;

use crate::Ratio;

/// Other objects that a pod is rendered from.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Surroundings {
    /// Persistent volume claims in the namespace of the VMI, by name. Every claim that the VMI uses
    /// must be here.
    pub claims: BTreeMap<String, Claim>,
    /// Name of the claim that keeps firmware variables and the TPM; its properties are among `claims`.
    pub state_claim: Option<String>,
    pub namespace: Namespace,
    /// Resource that a network needs, by the network's name in the VMI, if no other component adds it
    /// to the pod.
    pub network_resources: BTreeMap<String, String>,
}

/// The properties of a persistent volume claim that pods and guests depend on.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Claim {
    pub uid: String,
    /// The form in which the VMI's status shows it and virt-handler reads it from the pod.
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
                preallocated: is_preallocated(meta.annotations.as_ref()).then_some(true),
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

/// Whether an importer or the administrator has marked the claim as fully allocated. The prefix of the
/// annotation is the importer's.
fn is_preallocated(annotations: Option<&BTreeMap<String, String>>) -> bool {
    const MARKS: [&str; 2] = ["/storage.preallocation", "/storage.thick-provisioned"];
    let mut all = annotations.into_iter().flatten();
    all.any(|(key, value)| value == "true" && MARKS.iter().any(|mark| key.contains(mark)))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimMode {
    Filesystem,
    Block,
}

/// Requirements of the namespace and its quotas.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Namespace {
    /// Guests without a CPU limit need one.
    pub needs_cpu_limit: bool,
    /// Guests without a memory limit need one: the request times this ratio.
    pub memory_limit_ratio: Option<Ratio>,
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn preallocated_claims_have_an_annotation() {
        let check = |key: &str, value: &str, expected: Option<bool>| {
            let claim = json!({"metadata": {"name": "a", "annotations": {key: value}}});
            let claim = serde_json::from_value(claim).expect("is a claim");
            assert_eq!(
                Claim::of(&claim).info.preallocated,
                expected,
                "{key}={value}"
            );
        };
        check("cdi.kubevirt.io/storage.preallocation", "true", Some(true));
        check(
            "user.custom.annotation/storage.thick-provisioned",
            "true",
            Some(true),
        );
        check("cdi.kubevirt.io/storage.preallocation", "false", None);
        check("cdi.kubevirt.io/storage.import.source", "true", None);
    }
}
