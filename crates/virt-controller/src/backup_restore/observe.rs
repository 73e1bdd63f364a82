//! Observation: everything that one reconcile may read.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use kubevirt_api::backup_restore::{
    RestoredVolume, TargetPolicy, VirtualMachineBackupRestore as Restore,
};
use kubevirt_api::data_volume_status::DataVolumePhase;
use launcher_pod::ClaimMode;
use reconcile::Key;

use super::disk::Disk;
use super::source::{Source, of_backup};
use super::{Controller, RestoreError, act, rivals, status};
use crate::data_volume::{ClaimUser, ImporterPod, claim_users, importer_progress, is_of};
use crate::view::{Claim, Guest};
use crate::vmi::claim_names;

#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) restore: Arc<Restore>,
    pub(super) source: Source,
    /// The pod that looks what the backup holds.
    pub(super) inspector: Option<Arc<ImporterPod>>,
    /// Those of the status.
    pub(super) disks: Vec<Disk>,
    pub(super) now: Timestamp,
}

impl Observed {
    pub(super) fn uid(&self) -> &str {
        self.restore.metadata.uid.as_deref().unwrap_or_default()
    }

    /// The claim with the backup.
    pub(super) fn source_claim(&self) -> Option<&String> {
        self.restore.status.as_ref()?.pvc_name.as_ref()
    }

    pub(super) fn directory(&self) -> Option<&str> {
        self.restore.status.as_ref()?.directory.as_deref()
    }
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        restore: Arc<Restore>,
    ) -> Result<Observed, RestoreError> {
        let is_over =
            status::is_finished(&restore) || restore.metadata.deletion_timestamp.is_some();
        let known = restore.status.clone().unwrap_or_default();
        let mut observed = Observed {
            source: self.source(key, &restore),
            inspector: self.pod(key, &restore, act::inspector_name),
            disks: Vec::new(),
            now: self.clock.now(),
            restore,
        };
        let overwrites =
            observed.restore.spec.target_policy == Some(TargetPolicy::Overwrite) && !is_over;
        let mut users = None;
        for (index, volume) in known.volumes.into_iter().enumerate() {
            let mut disk = self.disk(key, &observed, (index, volume));
            if let Some(claim) = &disk.claim
                && overwrites
            {
                let claim = Arc::clone(claim);
                disk.filler = self.filler(key, &claim);
                disk.rival = self.rival(key, &observed, &disk);
                let pods = match &mut users {
                    Some(pods) => pods,
                    None => users.insert(self.pods_of(key).await?),
                };
                let own = act::pod_name(observed.uid(), index);
                disk.user = self.user(key, &claim, pods, &own);
            }
            if let Some(pod) = disk.pod.as_deref()
                && !is_over
            {
                disk.progress = importer_progress(&self.client, pod).await;
            }
            observed.disks.push(disk);
        }
        Ok(observed)
    }

    fn source(&self, key: &Key, restore: &Restore) -> Source {
        let known = restore.status.as_ref();
        let known =
            known.and_then(|known| Some((known.pvc_name.clone()?, known.directory.clone()?)));
        let given = &restore.spec.source;
        let found = match (known, &given.backup_name) {
            (Some((claim, directory)), _) => Source::Found { claim, directory },
            (None, Some(name)) => {
                let at = Key::new(key.namespace.as_str(), name.as_str());
                of_backup(name, self.backups.get(&at, key).as_deref())
            }
            (None, None) => Source::Found {
                claim: given.pvc_name.clone().unwrap_or_default(),
                directory: given.directory.clone().unwrap_or_default(),
            },
        };
        let Source::Found { claim, .. } = &found else {
            return found;
        };
        let at = Key::new(key.namespace.as_str(), claim.as_str());
        match self.volumes.claims.get(&at, key) {
            None => Source::Waits(format!("there is no persistentvolumeclaim {claim}")),
            Some(it) if it.metadata.deletion_timestamp.is_some() => {
                Source::Waits(format!("persistentvolumeclaim {claim} is being deleted"))
            }
            Some(it) if it.facts.mode() == ClaimMode::Block => Source::Unusable(format!(
                "persistentvolumeclaim {claim} is a block device, and a backup is in a file system"
            )),
            Some(_) => found,
        }
    }

    /// The pod of that name, if the restore controls it.
    fn pod(
        &self,
        key: &Key,
        restore: &Restore,
        name: impl Fn(&str) -> String,
    ) -> Option<Arc<ImporterPod>> {
        let uid = restore.metadata.uid.as_deref().unwrap_or_default();
        let at = Key::new(key.namespace.as_str(), name(uid));
        let found = self.pods.get(&at)?;
        is_of(found.as_ref(), uid).then_some(found)
    }

    fn disk(
        &self,
        key: &Key,
        observed: &Observed,
        (index, volume): (usize, RestoredVolume),
    ) -> Disk {
        let at = Key::new(key.namespace.as_str(), volume.claim_name.as_str());
        Disk {
            claim: self.volumes.claims.get(&at, key),
            pod: self.pod(key, &observed.restore, |uid| act::pod_name(uid, index)),
            volume,
            ..Disk::default()
        }
    }

    /// Why the claim takes no disk: something else fills it.
    fn filler(&self, key: &Key, claim: &Claim) -> Option<String> {
        let at = Key::of(claim);
        if let Some(volume) = self.volumes.data_volumes.get(&at, key)
            && volume.phase != DataVolumePhase::Succeeded
        {
            return Some(format!("its data volume is {}", volume.phase.as_str()));
        }
        claim
            .awaits_upload()
            .then(|| "its upload is not complete".to_owned())
    }

    fn rival(&self, key: &Key, observed: &Observed, disk: &Disk) -> Option<String> {
        let mark = disk.mark();
        let claim = &disk.volume.claim_name;
        let mut others = self.restores.in_namespace(&key.namespace).into_iter();
        let rival = others
            .find(|other| rivals::is_rival(&observed.restore, other, claim, mark.as_ref()))?;
        Some(rival.name_any())
    }

    async fn pods_of(&self, key: &Key) -> Result<Vec<ClaimUser>, RestoreError> {
        let found = claim_users(&self.client, &key.namespace).await;
        found.map_err(|error| RestoreError::Read(Box::new(error)))
    }

    /// What uses the claim. A VMI without a pod counts: its pod may be created at any moment.
    fn user(&self, key: &Key, claim: &Claim, pods: &[ClaimUser], own: &str) -> Option<String> {
        let name = claim.name_any();
        let mut using = pods.iter().filter(|pod| pod.uses(&name));
        if let Some(pod) = using.find(|pod| pod.name_any() != own) {
            return Some(format!("pod {}", pod.name_any()));
        }
        let mut guests = self.guests.in_namespace(&key.namespace).into_iter();
        let guest = guests.find(|guest| !guest.is_final() && names(guest, &name))?;
        let guest = guest.metadata.name.as_deref().unwrap_or_default();
        Some(format!("VMI {guest}: stop its VM"))
    }
}

/// Whether the spec of a guest names the claim; one that has started has a pod.
fn names(guest: &Guest, claim: &str) -> bool {
    let whole = guest.whole();
    let in_spec = whole.is_some_and(|whole| claim_names(&whole.spec).contains(&claim));
    in_spec || guest.plugs.iter().any(|plug| plug.claim == claim)
}
