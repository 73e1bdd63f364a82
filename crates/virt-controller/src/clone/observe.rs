//! Observation: everything that one step may read. Clones are rare and have to be right, so all but the clone itself
//! is read from the API server. A clone that has ended is observed through caches.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::api::{ApiResource, DynamicObject};
use kubevirt_api::VirtualMachine;
use kubevirt_api::clone::{VirtualMachineClone, VirtualMachineClonePhase as Phase};
use kubevirt_api::restore::VirtualMachineRestore;
use kubevirt_api::snapshot::{VirtualMachineSnapshot, VolumeBackup};
use reconcile::Key;
use serde_json::Value;

use super::copy::{own_snapshot_name, restore_name, target_name};
use super::{CloneError, Controller};
use crate::expansion::expanded;
use crate::restore::{Target, copied_vm};

#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) clone: Arc<VirtualMachineClone>,
    /// The VM to clone, until there is a snapshot.
    pub(super) source: Option<Target>,
    /// That of the clone, or its source.
    pub(super) snapshot: Option<VirtualMachineSnapshot>,
    /// The VM in the snapshot; null unless the snapshot is ready.
    pub(super) copied: Value,
    /// The VM in the snapshot, or the source before there is one, without instance type and preference, as far as
    /// these can be applied.
    pub(super) expanded: Option<Value>,
    pub(super) backups: Vec<VolumeBackup>,
    pub(super) restore: Option<VirtualMachineRestore>,
    /// The VM with the name of the target.
    pub(super) target: Option<Target>,
    /// Claims of the complete restore whose data is still in the snapshot.
    pub(super) unbound: Vec<String>,
    pub(super) now: Timestamp,
}

impl Observed {
    pub(super) fn phase(&self) -> Phase {
        phase(&self.clone)
    }

    /// The name of the clone's own snapshot, once it was created.
    pub(super) fn noted_snapshot(&self) -> Option<&str> {
        self.clone.status.as_ref()?.snapshot_name.as_deref()
    }
}

pub(super) fn phase(clone: &VirtualMachineClone) -> Phase {
    let status = clone.status.as_ref();
    let phase = status.and_then(|status| status.phase.clone());
    phase.unwrap_or(Phase::Unset)
}

/// Whether the clone takes a snapshot of its own.
pub(super) fn is_of_vm(clone: &VirtualMachineClone) -> bool {
    clone.spec.source.kind != VirtualMachineSnapshot::KIND
}

/// The name of the snapshot that the clone restores.
pub(super) fn snapshot_name(clone: &VirtualMachineClone) -> String {
    if is_of_vm(clone) {
        own_snapshot_name(clone)
    } else {
        clone.spec.source.name.clone()
    }
}

/// Whether a change of that VM may let the clone begin.
pub(super) fn waits_for_vm(clone: &VirtualMachineClone, vm: &str) -> bool {
    is_of_vm(clone) && clone.spec.source.name == vm && phase(clone) == Phase::Unset
}

/// Whether that VM was made by the clone.
pub(super) fn has_target(clone: &VirtualMachineClone, vm: &str) -> bool {
    let status = clone.status.as_ref();
    status.and_then(|status| status.target_name.as_deref()) == Some(vm)
}

fn unreadable(what: &'static str) -> impl Fn(kube::Error) -> CloneError {
    move |error| CloneError::Read {
        what,
        source: Box::new(error),
    }
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        clone: Arc<VirtualMachineClone>,
    ) -> Result<Observed, CloneError> {
        let mut observed = Observed {
            now: self.clock.now(),
            clone,
            ..Observed::default()
        };
        if observed.clone.metadata.deletion_timestamp.is_some() {
            return Ok(observed);
        }
        match observed.phase() {
            Phase::Succeeded => self.observe_success(key, &mut observed).await?,
            Phase::Failed => self.observe_helpers(key, &mut observed).await?,
            _ => self.observe_progress(key, &mut observed).await?,
        }
        Ok(observed)
    }

    async fn observe_success(&self, key: &Key, observed: &mut Observed) -> Result<(), CloneError> {
        let status = observed.clone.status.clone().unwrap_or_default();
        let target = status.target_name.unwrap_or_default();
        let named = Key::new(key.namespace.as_str(), target.as_str());
        observed.target = match self.vms.get(&named) {
            Some(_) => Some(Target::default()),
            // The cache may be old.
            None => self.vm(&named).await?,
        };
        if status.restore_name.is_some() || status.snapshot_name.is_some() {
            self.observe_helpers(key, observed).await?;
        }
        Ok(())
    }

    async fn observe_progress(&self, key: &Key, observed: &mut Observed) -> Result<(), CloneError> {
        self.observe_helpers(key, observed).await?;
        let mut source_vm = observed.clone.spec.source.name.clone();
        if is_of_vm(&observed.clone) && observed.snapshot.is_none() {
            let named = Key::new(key.namespace.as_str(), source_vm.as_str());
            observed.source = self.vm(&named).await?;
            if let Some(source) = &observed.source {
                observed.expanded = self.expanded(key, observed.now, &source.object).await?;
            }
        }
        if observed.restore.is_none() {
            self.observe_content(key, observed).await?;
            if let Some(name) = observed.copied["metadata"]["name"].as_str() {
                name.clone_into(&mut source_vm);
            }
        }
        let target = match &observed.restore {
            Some(restore) => restore.spec.target.name.clone(),
            None => target_name(&observed.clone, &source_vm),
        };
        let named = Key::new(key.namespace.as_str(), target.as_str());
        observed.target = self.vm(&named).await?;
        Ok(())
    }

    async fn observe_helpers(&self, key: &Key, observed: &mut Observed) -> Result<(), CloneError> {
        let namespace = key.namespace.as_str();
        let restores = Api::<VirtualMachineRestore>::namespaced(self.client.clone(), namespace);
        let restore = restores.get_opt(&restore_name(&observed.clone)).await;
        observed.restore = restore.map_err(unreadable("the restore"))?;
        let snapshots = Api::<VirtualMachineSnapshot>::namespaced(self.client.clone(), namespace);
        let snapshot = snapshots.get_opt(&snapshot_name(&observed.clone)).await;
        observed.snapshot = snapshot.map_err(unreadable("the snapshot"))?;
        let status = observed.restore.as_ref().and_then(|one| one.status.clone());
        let complete = status.filter(|status| status.complete == Some(true));
        for volume in complete.into_iter().flat_map(|status| status.restores) {
            let claim = volume.persistent_volume_claim;
            if self.is_unbound(key, &claim).await? {
                observed.unbound.push(claim);
            }
        }
        Ok(())
    }

    /// A claim that is gone needs no data.
    async fn is_unbound(&self, key: &Key, claim: &str) -> Result<bool, CloneError> {
        let named = Key::new(key.namespace.as_str(), claim);
        let cached = self.volumes.claims.get(&named, key);
        if cached.is_some_and(|claim| claim.is_bound) {
            return Ok(false);
        }
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &key.namespace);
        let found = claims.get_opt(claim).await.map_err(unreadable("a claim"))?;
        Ok(found.is_some_and(|found| {
            let phase = found.status.and_then(|status| status.phase);
            phase.as_deref() != Some("Bound")
        }))
    }

    async fn observe_content(&self, key: &Key, observed: &mut Observed) -> Result<(), CloneError> {
        let snapshot = observed.snapshot.as_ref();
        let status = snapshot.and_then(|snapshot| snapshot.status.as_ref());
        let ready = status.filter(|status| status.ready_to_use == Some(true));
        let Some(content) = ready.and_then(|one| one.virtual_machine_snapshot_content_name.clone())
        else {
            return Ok(());
        };
        let copied = copied_vm(&self.client, &key.namespace, &content).await;
        if let Some((vm, backups)) = copied.map_err(unreadable("the content"))? {
            if !vm.is_null() {
                observed.expanded = self.expanded(key, observed.now, &vm).await?;
            }
            observed.copied = vm;
            observed.backups = backups;
        }
        Ok(())
    }

    /// The VM with its instance type and preference applied; `None` if that is not possible, as for the VM itself.
    async fn expanded(
        &self,
        key: &Key,
        now: Timestamp,
        vm: &Value,
    ) -> Result<Option<Value>, CloneError> {
        let place = (&self.client, key.namespace.as_str());
        let expanded = expanded(place, &self.cluster.now(), now, vm).await;
        let expanded = expanded.map_err(|source| CloneError::Read {
            what: "the instance type or preference",
            source,
        })?;
        Ok(expanded.ok())
    }

    async fn vm(&self, key: &Key) -> Result<Option<Target>, CloneError> {
        let kind = ApiResource::erase::<VirtualMachine>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &key.namespace, &kind);
        let found = api.get_opt(&key.name).await;
        Ok(found.map_err(unreadable("the VM"))?.map(Target::of))
    }
}
