//! Whether the storage of a VMI's volumes is ready: no pod is created before.

use std::fmt::Write as _;
use std::sync::Arc;

use kubevirt_api::data_volume_status::DataVolumePhase as Phase;
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use model::VolumeSource;

use crate::view::{Claim, DataVolume};

/// A volume on a claim.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) volume: String,
    pub(super) claim_name: String,
    pub(super) claim: Option<Arc<Claim>>,
    pub(super) source: DataSource,
}

#[derive(Debug)]
pub(super) enum DataSource {
    /// The claim itself.
    Claim,
    /// A data volume of the same name populates the claim.
    DataVolume(Option<Arc<DataVolume>>),
}

/// The state of the storage of all volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// A claim does not exist.
    Missing(String),
    /// A claim receives an upload.
    Uploading(String),
    /// A restore of a backup has not completed the disk of a claim.
    Restoring(String),
    /// An importer populates a claim.
    Populating(String),
    /// The importer starts once a pod uses the claims.
    FirstConsumer(String),
    /// An import has failed.
    Failed(String),
}

/// A volume that uses a claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct ClaimUse<'a> {
    pub(super) volume: &'a str,
    pub(super) claim: &'a str,
    pub(super) populated_by: Populator,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Populator {
    None,
    DataVolume,
}

pub(super) fn claim_uses(spec: &VirtualMachineInstanceSpec) -> Vec<ClaimUse<'_>> {
    let uses = spec.volumes.iter().filter_map(|volume| {
        let source = VolumeSource::of(volume);
        Some(ClaimUse {
            volume: &volume.name,
            claim: source.claim()?.name,
            populated_by: match source {
                VolumeSource::DataVolume(_) => Populator::DataVolume,
                _ => Populator::None,
            },
        })
    });
    uses.collect()
}

/// The claims that the volumes of a VMI use.
pub(crate) fn claim_names(spec: &VirtualMachineInstanceSpec) -> Vec<&str> {
    claim_uses(spec).iter().map(|one| one.claim).collect()
}

/// The worst state of all volumes.
pub(super) fn readiness(all: &[Backing]) -> Readiness {
    let mut populating = String::new();
    let mut is_bound_by_use = true;
    for backing in all {
        let restore = backing.claim.as_deref().and_then(Claim::open_restore);
        if let Some(restore) = restore {
            let (volume, name) = (&backing.volume, &backing.claim_name);
            return Readiness::Restoring(format!(
                "volume {volume}: persistentvolumeclaim {name}: {restore}"
            ));
        }
        let data_volume = match &backing.source {
            DataSource::DataVolume(data_volume) => data_volume.as_deref(),
            DataSource::Claim => None,
        };
        match (data_volume.map(|volume| &volume.phase), &backing.claim) {
            (Some(Phase::Failed), _) => {
                let name = &backing.claim_name;
                let failure = data_volume.map(|volume| volume.failure(name));
                return Readiness::Failed(failure.unwrap_or_default());
            }
            (Some(Phase::Succeeded | Phase::PendingPopulation), _) => {}
            (None, Some(claim)) if !claim.is_of_data_volume() && claim.receives_upload() => {
                return Readiness::Uploading(format!(
                    "volume {}: persistentvolumeclaim {} receives an upload",
                    backing.volume, backing.claim_name
                ));
            }
            // A data volume may be deleted after the import; it releases its claim then.
            (None, Some(claim)) if !claim.is_of_data_volume() => {}
            // The cache shows the claim before the data volume that populates it.
            (None, Some(_)) => {
                is_bound_by_use = false;
                add(&mut populating, &backing.claim_name, "not observed yet");
            }
            (Some(phase), claim) => {
                is_bound_by_use &= *phase == Phase::WaitForFirstConsumer && claim.is_some();
                add(&mut populating, &backing.claim_name, phase.as_str());
            }
            (None, None) => {
                return Readiness::Missing(format!(
                    "volume {}: there is no persistentvolumeclaim {}",
                    backing.volume, backing.claim_name
                ));
            }
        }
    }
    if populating.is_empty() {
        Readiness::Ready
    } else if is_bound_by_use {
        Readiness::FirstConsumer(populating)
    } else {
        Readiness::Populating(populating)
    }
}

fn add(populating: &mut String, name: &str, state: &str) {
    let separator = if populating.is_empty() { "" } else { "; " };
    // Writing to a string cannot fail.
    let _written = write!(populating, "{separator}data volume {name} is {state}").is_ok();
}
