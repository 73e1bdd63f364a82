//! Whether what a VMI's volumes are made of is there: no pod is made before.

use std::fmt::Write as _;
use std::sync::Arc;

use kubevirt_api::data_volume_status::DataVolumePhase as Phase;
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use kubevirt_api::volumes::Volume;
use model::VolumeSource;

use crate::view::{Claim, DataVolume};

/// A volume that stands on a claim.
#[derive(Debug)]
pub(super) struct Backing {
    pub(super) volume: String,
    pub(super) claim_name: String,
    pub(super) claim: Option<Arc<Claim>>,
    /// Whether the VMI names a data volume, and that, if it exists.
    pub(super) data_volume: Filled,
}

#[derive(Debug)]
pub(super) enum Filled {
    /// The claim is taken as it is.
    Already,
    By(Option<Arc<DataVolume>>),
}

/// What became of the importers of all data volumes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Verdict {
    Ready,
    /// This claim does not exist.
    Missing(String),
    /// Data is still to come, as the message says.
    Filling(String),
    /// Data comes once a pod uses the claims.
    FirstConsumer(String),
    /// Data will not come.
    Failed(String),
}

/// Volumes that stand on claims, with the name of the claim and whether it is a data volume's.
pub(super) fn wanted(spec: &VirtualMachineInstanceSpec) -> Vec<(&Volume, &str, bool)> {
    let backed = spec.volumes.iter().filter_map(|volume| {
        let source = VolumeSource::of(volume);
        let is_data_volume = matches!(source, VolumeSource::DataVolume(_));
        Some((volume, source.claim()?.name, is_data_volume))
    });
    backed.collect()
}

/// The worst of all.
pub(super) fn judge(all: &[Backing]) -> Verdict {
    let mut filling = String::new();
    let mut is_bound_by_use = true;
    for backing in all {
        let data_volume = match &backing.data_volume {
            Filled::By(data_volume) => data_volume.as_deref(),
            Filled::Already => None,
        };
        match (data_volume.map(|volume| &volume.phase), &backing.claim) {
            (Some(Phase::Failed), _) => {
                let name = &backing.claim_name;
                return Verdict::Failed(format!("data volume {name} has failed"));
            }
            (Some(Phase::Succeeded | Phase::PendingPopulation), _) => {}
            // A data volume that is done may be gone while its claim stays, and lets go of it then.
            (None, Some(claim)) if !claim.is_of_data_volume() => {}
            // The claim was seen before the data volume that fills it.
            (None, Some(_)) => {
                is_bound_by_use = false;
                add(&mut filling, &backing.claim_name, "not seen yet");
            }
            (Some(phase), claim) => {
                is_bound_by_use &= *phase == Phase::WaitForFirstConsumer && claim.is_some();
                add(&mut filling, &backing.claim_name, phase.as_str());
            }
            (None, None) => {
                return Verdict::Missing(format!(
                    "volume {}: there is no persistentvolumeclaim {}",
                    backing.volume, backing.claim_name
                ));
            }
        }
    }
    if filling.is_empty() {
        Verdict::Ready
    } else if is_bound_by_use {
        Verdict::FirstConsumer(filling)
    } else {
        Verdict::Filling(filling)
    }
}

fn add(filling: &mut String, name: &str, state: &str) {
    let separator = if filling.is_empty() { "" } else { "; " };
    // Writing to a text cannot fail.
    let _written = write!(filling, "{separator}data volume {name} is {state}").is_ok();
}
