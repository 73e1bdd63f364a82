//! Observation: everything that one step may read, from the API server.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::api::{ApiResource, DynamicObject, ListParams};
use kube::{Api, Client};
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::restore::VirtualMachineRestore;
use kubevirt_api::snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent, VolumeBackup};
use kubevirt_api::vm_status::VirtualMachineStatus;
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use kubevirt_api::{VirtualMachine, labels};
use reconcile::Key;
use serde_json::Value;

use super::claims::{is_in_place, is_ours, name};
use super::{Controller, RestoreError};
use crate::view::Guest;

#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) restore: Arc<VirtualMachineRestore>,
    pub(super) snapshot: Option<VirtualMachineSnapshot>,
    /// The VM in the snapshot; null without a content.
    pub(super) source: Value,
    pub(super) disks: Vec<Disk>,
    pub(super) target: Option<Target>,
    /// The VMI of the VM, unless it has ended.
    pub(super) guest: Option<Guest>,
    /// Claims without an owner that this restore has created; only if it is deleted before it is complete.
    pub(super) leftovers: Vec<ObjectMeta>,
    pub(super) now: Timestamp,
}

/// A disk to restore.
#[derive(Debug, Clone, Default)]
pub(super) struct Disk {
    pub(super) backup: VolumeBackup,
    /// The name of its new claim.
    pub(super) name: String,
    /// The object of that name.
    pub(super) claim: Option<PersistentVolumeClaim>,
    pub(super) copy: Option<VolumeSnapshot>,
    /// The data volume that owns the claim and would create it again. Only for `InPlace`.
    pub(super) data_volume: Option<OwnerReference>,
}

/// The VM to restore.
#[derive(Debug, Clone, Default)]
pub(crate) struct Target {
    pub(crate) object: Value,
    pub(crate) uid: String,
    pub(crate) status: VirtualMachineStatus,
}

impl Observed {
    pub(super) fn name(&self) -> &str {
        self.restore.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn is_complete(&self) -> bool {
        is_complete(&self.restore)
    }

    pub(super) fn is_locked(&self) -> bool {
        let target = self.target.as_ref();
        let lock = target.and_then(|target| target.status.restore_in_progress.as_deref());
        lock == Some(self.name())
    }
}

pub(super) fn is_complete(restore: &VirtualMachineRestore) -> bool {
    let status = restore.status.as_ref();
    status.is_some_and(|status| status.complete == Some(true))
}

fn unreadable(what: &'static str) -> impl Fn(kube::Error) -> RestoreError {
    move |error| RestoreError::Read {
        what,
        source: Box::new(error),
    }
}

impl Controller {
    pub(super) fn vms(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<VirtualMachine>(&());
        Api::namespaced_with(self.client.clone(), namespace, &kind)
    }

    pub(super) async fn observe(
        &self,
        key: &Key,
        restore: Arc<VirtualMachineRestore>,
    ) -> Result<Observed, RestoreError> {
        let (client, namespace) = (&self.client, key.namespace.as_str());
        let target = restore.spec.target.name.clone();
        let vm = self.vms(namespace).get_opt(&target).await;
        let vm = vm.map_err(unreadable("the VM"))?;
        let mut observed = Observed {
            restore,
            target: vm.map(Target::of),
            now: self.clock.now(),
            ..Observed::default()
        };
        if observed.is_complete() {
            return Ok(observed);
        }
        if observed.restore.metadata.deletion_timestamp.is_some() {
            observed.leftovers = self.leftovers(namespace, &observed.restore).await?;
            return Ok(observed);
        }
        let guests = Api::<Guest>::namespaced(client.clone(), namespace);
        let guest = guests.get_opt(&target).await;
        let guest = guest.map_err(unreadable("the VMI"))?;
        // One that has ended stays until the VM is started again.
        observed.guest = guest.filter(|guest| !guest.is_final());
        let snapshots = Api::<VirtualMachineSnapshot>::namespaced(client.clone(), namespace);
        let name = &observed.restore.spec.virtual_machine_snapshot_name;
        let snapshot = snapshots.get_opt(name).await;
        observed.snapshot = snapshot.map_err(unreadable("the snapshot"))?;
        self.observe_content(namespace, &mut observed).await?;
        Ok(observed)
    }

    /// A claim that replaces one in place is kept: it may be the only one with the data.
    async fn leftovers(
        &self,
        namespace: &str,
        restore: &VirtualMachineRestore,
    ) -> Result<Vec<ObjectMeta>, RestoreError> {
        if is_in_place(restore) {
            return Ok(Vec::new());
        }
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
        let restored = ListParams::default().labels(labels::RESTORE_SOURCE_VM_NAME);
        let found = claims.list(&restored).await;
        let found = found.map_err(unreadable("the claims"))?.items.into_iter();
        let own = found.filter(|claim| is_ours(restore, claim));
        let leftovers = own.map(|claim| claim.metadata).filter(|metadata| {
            let mut owners = metadata.owner_references.iter().flatten();
            metadata.deletion_timestamp.is_none() && owners.next().is_none()
        });
        Ok(leftovers.collect())
    }

    async fn observe_content(
        &self,
        namespace: &str,
        observed: &mut Observed,
    ) -> Result<(), RestoreError> {
        let status = observed
            .snapshot
            .as_ref()
            .and_then(|one| one.status.as_ref());
        let ready = status.filter(|status| status.ready_to_use == Some(true));
        let Some(content) = ready.and_then(|one| one.virtual_machine_snapshot_content_name.clone())
        else {
            return Ok(());
        };
        let copied = copied_vm(&self.client, namespace, &content).await;
        let Some((source, backups)) = copied.map_err(unreadable("the content"))? else {
            return Ok(());
        };
        observed.source = source;
        for backup in backups {
            let disk = self.disk(namespace, &observed.restore, backup).await?;
            observed.disks.push(disk);
        }
        Ok(())
    }

    async fn disk(
        &self,
        namespace: &str,
        restore: &VirtualMachineRestore,
        backup: VolumeBackup,
    ) -> Result<Disk, RestoreError> {
        let client = &self.client;
        let name = name(restore, &backup);
        let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
        let claim = claims.get_opt(&name).await.map_err(unreadable("a claim"))?;
        let copies = Api::<VolumeSnapshot>::namespaced(client.clone(), namespace);
        let copy = backup.volume_snapshot_name.clone().unwrap_or_default();
        let copy = copies.get_opt(&copy).await;
        let copy = copy.map_err(unreadable("a volume snapshot"))?;
        let owner = claim.as_ref().filter(|_| is_in_place(restore));
        let owners = owner.and_then(|claim| claim.metadata.owner_references.clone());
        let mut owners = owners.into_iter().flatten();
        let data_volume = owners.find(|owner| owner.kind == DataVolume::KIND);
        Ok(Disk {
            backup,
            name,
            claim,
            copy,
            data_volume,
        })
    }
}

/// The VM in a content, not parsed, so that unknown fields are restored; and the copies of its volumes.
pub(crate) async fn copied_vm(
    client: &Client,
    namespace: &str,
    content: &str,
) -> Result<Option<(Value, Vec<VolumeBackup>)>, kube::Error> {
    let kind = ApiResource::erase::<VirtualMachineSnapshotContent>(&());
    let api = Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &kind);
    let Some(mut content) = api.get_opt(content).await? else {
        return Ok(None);
    };
    let backups = content.data["spec"]["volumeBackups"].take();
    let backups = match backups {
        Value::Null => Vec::new(),
        list => serde_json::from_value(list).map_err(kube::Error::SerdeError)?,
    };
    let vm = content.data["spec"]["source"]["virtualMachine"].take();
    Ok(Some((vm, backups)))
}

impl Target {
    pub(crate) fn of(mut found: DynamicObject) -> Self {
        found.metadata.managed_fields = None;
        let status = found.data["status"].clone();
        Self {
            uid: found.metadata.uid.clone().unwrap_or_default(),
            status: serde_json::from_value(status).unwrap_or_default(),
            object: serde_json::to_value(found).unwrap_or_default(),
        }
    }

    pub(crate) fn annotation(&self, name: &str) -> Option<&str> {
        self.object["metadata"]["annotations"][name].as_str()
    }
}
