//! Observation: everything that one reconcile may read.

use std::sync::Arc;

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use kubevirt_api::backup_restore::{
    RestoredVolume, TargetPolicy, VirtualMachineBackupRestore as Restore,
};
use kubevirt_api::data_volume_status::DataVolumePhase;
use kubevirt_api::finalizers;
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use launcher_pod::ClaimMode;
use reconcile::Key;

use super::disk::Disk;
use super::source::{Source, of_backup};
use super::{Controller, RestoreError, act, rivals, status};
use crate::data_volume::{ClaimUser, ImporterPod, claim_users, importer_progress, is_of};
use crate::view::{Claim, Guest};
use crate::vm::Vm;
use crate::vmi::claim_names;

#[derive(Debug, Clone)]
pub(super) struct Observed {
    pub(super) restore: Arc<Restore>,
    pub(super) source: Source,
    /// The pod that looks what the backup holds.
    pub(super) inspector: Option<Arc<ImporterPod>>,
    /// From the log of that pod, while it runs.
    pub(super) inspected: Option<String>,
    /// Those of the status.
    pub(super) disks: Vec<Disk>,
    /// The restore onto some of the same claims that goes before this one.
    pub(super) rival: Option<String>,
    pub(super) now: Timestamp,
}

impl Observed {
    pub(super) fn uid(&self) -> &str {
        self.restore.metadata.uid.as_deref().unwrap_or_default()
    }

    pub(super) fn overwrites(&self) -> bool {
        self.restore.spec.target_policy == Some(TargetPolicy::Overwrite)
    }

    /// Whether a claim has lost its old disk to this restore, for all that is known.
    pub(super) fn has_begun(&self) -> bool {
        self.disks.iter().any(|disk| disk.has_begun(self.uid()))
    }

    /// How often the inspection was begun anew.
    pub(super) fn restarts(&self) -> i32 {
        let known = self.restore.status.as_ref();
        known.and_then(|known| known.restarts).unwrap_or_default()
    }

    /// The claim with the backup.
    pub(super) fn source_claim(&self) -> Option<&String> {
        self.restore.status.as_ref()?.pvc_name.as_ref()
    }

    pub(super) fn directory(&self) -> Option<&str> {
        self.restore.status.as_ref()?.directory.as_deref()
    }
}

pub(super) fn has_finalizer(restore: &Restore) -> bool {
    let mut all = restore.metadata.finalizers.iter().flatten();
    all.any(|one| one == finalizers::BACKUP_RESTORE)
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
            inspected: None,
            disks: Vec::new(),
            rival: None,
            now: self.clock.now(),
            restore,
        };
        for (index, volume) in known.volumes.into_iter().enumerate() {
            let disk = self.disk(key, &observed, (index, volume));
            observed.disks.push(disk);
        }
        if is_over {
            if has_finalizer(&observed.restore) {
                self.refresh_claims(key, &mut observed).await?;
            }
            return Ok(observed);
        }
        if observed.overwrites() && observed.disks.iter().any(|disk| disk.claim.is_some()) {
            observed.rival = self.rival(key, &observed);
            self.observe_users(key, &mut observed).await?;
        }
        if let Some(pod) = observed.inspector.as_deref() {
            observed.inspected = importer_progress(&self.client, pod).await;
        }
        for disk in &mut observed.disks {
            if let Some(pod) = disk.pod.as_deref() {
                disk.progress = importer_progress(&self.client, pod).await;
            }
        }
        Ok(observed)
    }

    /// A mark that was written a moment ago may not be in the cache. Once the finalizer is gone, it would stay.
    async fn refresh_claims(&self, key: &Key, observed: &mut Observed) -> Result<(), RestoreError> {
        let api = Api::<Claim>::namespaced(self.client.clone(), &key.namespace);
        for disk in &mut observed.disks {
            let found = api.get_opt(&disk.volume.claim_name).await;
            let found = found.map_err(|error| RestoreError::Read {
                what: "a claim",
                source: Box::new(error),
            })?;
            disk.claim = found.map(Arc::new);
        }
        Ok(())
    }

    async fn observe_users(&self, key: &Key, observed: &mut Observed) -> Result<(), RestoreError> {
        let pods = claim_users(&self.client, &key.namespace).await;
        let pods = pods.map_err(|error| RestoreError::Read {
            what: "the pods of the namespace",
            source: Box::new(error),
        })?;
        let uid = observed.uid().to_owned();
        let has_begun = observed.has_begun();
        for (index, disk) in observed.disks.iter_mut().enumerate() {
            let Some(claim) = disk.claim.clone() else {
                continue;
            };
            disk.filler = self.filler(key, &claim);
            let own = act::pod_name(&uid, index);
            disk.user = self.user(key, &claim, &pods, &own);
            // Whatever came after all claims were reserved waits for this restore, which must not wait for it.
            let holds_back = has_begun && disk.mark().is_some_and(|mark| mark.is_open());
            if disk.user.is_none() && !holds_back {
                disk.user = self.coming_user(key, &claim);
            }
        }
        Ok(())
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

    fn rival(&self, key: &Key, observed: &Observed) -> Option<String> {
        let due = observed.disks.iter().filter(|disk| !disk.is_recorded());
        let claims: Vec<_> = due
            .map(|disk| (disk.volume.claim_name.as_str(), disk.mark()))
            .collect();
        let mut others = self.restores.in_namespace(&key.namespace).into_iter();
        let rival = others.find(|other| rivals::is_rival(&observed.restore, other, &claims))?;
        Some(rival.name_any())
    }

    /// What uses the claim.
    fn user(&self, key: &Key, claim: &Claim, pods: &[ClaimUser], own: &str) -> Option<String> {
        let name = claim.name_any();
        let mut using = pods.iter().filter(|pod| pod.uses(&name));
        if let Some(pod) = using.find(|pod| pod.name_any() != own) {
            return Some(format!("pod {}", pod.name_any()));
        }
        let plugs = |guest: &Guest| guest.plugs.iter().any(|plug| plug.claim == name);
        self.guest(key, |guest| guest.whole().is_none() && plugs(guest))
    }

    /// What may begin to use the claim at any moment: a VMI that waits for its pod, or a VM whose claims are being
    /// copied or replaced.
    fn coming_user(&self, key: &Key, claim: &Claim) -> Option<String> {
        let name = claim.name_any();
        let waiting = self.guest(key, |guest| {
            let whole = guest.whole();
            whole.is_some_and(|whole| claim_names(&whole.spec).contains(&name.as_str()))
        });
        waiting.or_else(|| {
            let mut vms = self.vms.in_namespace(&key.namespace).into_iter();
            vms.find_map(|vm| lock(&vm, &name))
        })
    }

    fn guest(&self, key: &Key, uses: impl Fn(&Guest) -> bool) -> Option<String> {
        let mut guests = self.guests.in_namespace(&key.namespace).into_iter();
        let guest = guests.find(|guest| !guest.is_final() && uses(guest))?;
        let guest = guest.metadata.name.as_deref().unwrap_or_default();
        Some(format!("VMI {guest}: stop its VM"))
    }
}

/// The snapshot or restore of a VM that has the claim.
fn lock(vm: &Vm, claim: &str) -> Option<String> {
    let status = vm.status();
    let (kind, operation) = match (&status.snapshot_in_progress, &status.restore_in_progress) {
        (Some(snapshot), _) => ("VirtualMachineSnapshot", snapshot),
        (None, Some(restore)) => ("VirtualMachineRestore", restore),
        (None, None) => return None,
    };
    let spec = vm.spec.template.get("spec").cloned().unwrap_or_default();
    // Of a template that cannot be read, nothing is known.
    let spec = serde_json::from_value::<VirtualMachineInstanceSpec>(spec);
    let is_user = spec.map_or(true, |spec| claim_names(&spec).contains(&claim));
    is_user.then(|| format!("{kind} {operation} of VM {}", vm.name_any()))
}
