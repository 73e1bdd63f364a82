//! Observation: everything that one reconcile may read.

use std::collections::BTreeMap;
use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kubevirt_api::data_volume_status::DataVolumePhase;
use kubevirt_api::vmi_status::{PersistentVolumeClaimInfo, VirtualMachineInstancePhase as Phase};
use launcher_pod::ClaimMode;
use reconcile::Key;

use super::Controller;
use super::view::AttachmentPod;
use crate::view::{Claim, Guest, Plug, Purpose};
use crate::vmi::LauncherPod;

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) vmi: Arc<Guest>,
    /// The pod in which the guest runs.
    pub(super) launcher: Option<Arc<LauncherPod>>,
    /// The storage of each hot-pluggable volume.
    pub(super) storage: BTreeMap<String, Storage>,
    /// Pods that the guest's pod controls.
    pub(super) attachments: Vec<Arc<AttachmentPod>>,
    pub(super) now: Timestamp,
}

/// The claim of a volume.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Storage {
    Missing,
    /// An importer fills it, or has failed to.
    NotFilled(String),
    NotBound(PersistentVolumeClaimInfo),
    Bound(PersistentVolumeClaimInfo),
    /// Only file systems can be attached.
    BlockDevice,
}

impl Controller {
    /// `None` if the guest has no such volumes.
    pub(super) fn observe(&self, mut vmi: Arc<Guest>) -> Option<Observed> {
        let is_used = !vmi.plugs.is_empty() || !vmi.status.volumes.is_empty();
        if !is_used {
            return None;
        }
        let name = launcher_pod::current_pod_name(&vmi.identity());
        let uid = vmi.uid().unwrap_or_default();
        let mut launchers = self.launchers.controlled_by(&uid).into_iter();
        let launcher = launchers.find(|pod| pod.name_any() == name);
        if !self.source.has_hotplug() {
            // The guest has had its disks since its start; dumps and backups have to say what they wait for.
            let is_target = |plug: &Plug| plug.purpose != Purpose::Disk;
            let takes_volumes = launcher.as_ref().is_some_and(|pod| pod.takes_volumes);
            if takes_volumes || !vmi.plugs.iter().any(is_target) {
                return None;
            }
            Arc::make_mut(&mut vmi).plugs.retain(is_target);
        }
        let attachments = launcher.as_ref().map_or_else(Vec::new, |pod| {
            let uid = pod.uid().unwrap_or_default();
            self.attachments.controlled_by(&uid)
        });
        let storage = if *vmi.phase() == Phase::Running {
            let plugs = vmi.plugs.iter();
            plugs
                .map(|plug| (plug.volume.clone(), self.storage(&vmi, plug)))
                .collect()
        } else {
            BTreeMap::new()
        };
        Some(Observed {
            vmi,
            launcher,
            storage,
            attachments,
            now: self.clock.now(),
        })
    }

    fn storage(&self, vmi: &Guest, plug: &Plug) -> Storage {
        let own = Key::of(vmi);
        let key = Key::new(&own.namespace, &plug.claim);
        let claim = self.volumes.claims.get(&key, &own);
        let data_volume = self.volumes.data_volumes.get(&key, &own);
        if let Some(phase) = data_volume.as_ref().map(|volume| &volume.phase)
            && *phase != DataVolumePhase::Succeeded
        {
            // It waits for a pod that uses its claim. The guest gets that once it is filled.
            let waits = claim.as_deref().filter(|_| awaits_consumer(phase));
            if let Some(claim) = waits.filter(|claim| !claim.is_bound) {
                return not_bound(claim);
            }
            let state = phase.as_str();
            return Storage::NotFilled(format!("data volume {} is {state}", plug.claim));
        }
        if let Some(restore) = claim.as_deref().and_then(Claim::open_restore) {
            let claim = &plug.claim;
            return Storage::NotFilled(format!("persistentvolumeclaim {claim}: {restore}"));
        }
        match claim {
            None => Storage::Missing,
            Some(claim) if data_volume.is_none() && claim.is_of_data_volume() => {
                Storage::NotFilled(format!("data volume {} is not observed yet", plug.claim))
            }
            Some(claim) if data_volume.is_none() && claim.receives_upload() => {
                let claim = &plug.claim;
                Storage::NotFilled(format!("persistentvolumeclaim {claim} receives an upload"))
            }
            Some(claim) if claim.facts.mode() == ClaimMode::Block => Storage::BlockDevice,
            Some(claim) if claim.is_bound => Storage::Bound(claim.facts.info.clone()),
            Some(claim) => not_bound(&claim),
        }
    }
}

fn not_bound(claim: &Claim) -> Storage {
    match claim.facts.mode() {
        ClaimMode::Block => Storage::BlockDevice,
        ClaimMode::Filesystem => Storage::NotBound(claim.facts.info.clone()),
    }
}

fn awaits_consumer(phase: &DataVolumePhase) -> bool {
    matches!(
        phase,
        DataVolumePhase::WaitForFirstConsumer | DataVolumePhase::PendingPopulation
    )
}
