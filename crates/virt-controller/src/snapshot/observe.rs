//! Observation: everything that one step may read. Snapshots are rare and have to be right, so all but the
//! snapshot itself is read from the API server.

use std::sync::Arc;

use jiff::Timestamp;
use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::api::{ApiResource, DynamicObject};
use kube::{Api, ResourceExt as _};
use kubevirt_api::data_volume_status::{DataVolume as WholeDataVolume, DataVolumePhase};
use kubevirt_api::snapshot::{
    VirtualMachineSnapshot, VirtualMachineSnapshotContent, VirtualMachineSnapshotPhase as Phase,
};
use kubevirt_api::vm_status::VirtualMachineStatus;
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use kubevirt_api::{VirtualMachine, annotations, finalizers};
use reconcile::Key;
use serde_json::Value;

use super::hold::Hold;
use super::source::{Disk, DiskState, claim_of, content_name, volumes, with_plugs};
use super::{Controller, SnapshotError};
use crate::data_volume::{ClaimUser, claim_users};
use crate::view::{Claim, DataVolume, Guest};

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) snapshot: Arc<VirtualMachineSnapshot>,
    pub(super) vm: Option<Vm>,
    /// The VMI of the VM, unless it has ended.
    pub(super) guest: Option<Guest>,
    pub(super) content: Option<Content>,
    /// The disks of the VM; empty once there is a content.
    pub(super) disks: Vec<Disk>,
    /// Volumes of the VM without a claim.
    pub(super) others: Vec<String>,
    /// Another operation that uses the VM.
    pub(super) busy: Option<String>,
    pub(super) now: Timestamp,
}

/// The VM, not parsed, so that unknown fields are copied.
#[derive(Debug, Clone, Default)]
pub(super) struct Vm {
    pub(super) object: Value,
    /// The spec that is copied: that of the running guest.
    pub(super) spec: Value,
    pub(super) uid: String,
    pub(super) resource_version: String,
    pub(super) finalizers: Vec<String>,
    pub(super) status: VirtualMachineStatus,
}

#[derive(Debug, Clone, Default)]
pub(super) struct Content {
    pub(super) object: VirtualMachineSnapshotContent,
    pub(super) copies: Vec<Copy>,
}

/// The copy of one disk.
#[derive(Debug, Clone, Default)]
pub(super) struct Copy {
    pub(super) volume: String,
    pub(super) claim: String,
    pub(super) name: String,
    pub(super) object: Option<VolumeSnapshot>,
}

impl Copy {
    pub(super) fn is_created(&self) -> bool {
        let status = self.object.as_ref().and_then(|one| one.status.as_ref());
        status.is_some_and(|status| status.creation_time.is_some())
    }

    pub(super) fn is_ready(&self) -> bool {
        let status = self.object.as_ref().and_then(|one| one.status.as_ref());
        status.is_some_and(|status| status.ready_to_use == Some(true))
    }

    pub(super) fn error(&self) -> Option<&str> {
        let status = self.object.as_ref()?.status.as_ref()?;
        status.error.as_ref()?.message.as_deref()
    }
}

impl Content {
    pub(super) fn is_created(&self) -> bool {
        let status = self.object.status.as_ref();
        status.is_some_and(|status| status.creation_time.is_some())
    }
}

impl Observed {
    pub(super) fn phase(&self) -> Phase {
        let status = self.snapshot.status.as_ref();
        status
            .and_then(|status| status.phase.clone())
            .unwrap_or_default()
    }

    pub(super) fn hold(&self) -> Option<Hold> {
        Hold::of(&self.snapshot)
    }

    pub(super) fn name(&self) -> &str {
        self.snapshot.metadata.name.as_deref().unwrap_or_default()
    }

    /// The VM if this snapshot has locked it.
    pub(super) fn locked(&self) -> Option<&Vm> {
        let vm = self.vm.as_ref()?;
        (vm.status.snapshot_in_progress.as_deref() == Some(self.name())).then_some(vm)
    }

    /// Whether the VM has the finalizer of a lock, and no snapshot has locked it.
    pub(super) fn is_protected_only(&self) -> bool {
        self.vm.as_ref().is_some_and(|vm| {
            let mut all = vm.finalizers.iter();
            vm.status.snapshot_in_progress.is_none()
                && all.any(|one| one == finalizers::SNAPSHOT_SOURCE)
        })
    }
}

/// Why a claim that no guest uses cannot be copied now. The data volume has its name.
pub(super) fn state_without_guest(
    claim: &Claim,
    data_volume: Option<&DataVolume>,
    users: &[ClaimUser],
) -> Option<DiskState> {
    let name = claim.name_any();
    if let Some(user) = users.iter().find(|pod| pod.writes(&name)) {
        return Some(DiskState::InUse(user.name_any()));
    }
    if let Some(why) = claim.open_restore() {
        return Some(DiskState::Unpopulated(why));
    }
    let mut owners = claim.owner_references().iter();
    let populator = owners
        .find(|one| one.controller == Some(true) && one.kind == WholeDataVolume::KIND)
        .map(|owner| data_volume.filter(|one| one.metadata.uid.as_ref() == Some(&owner.uid)));
    match populator {
        Some(None) => {
            let why = "its data volume is not observed yet".to_owned();
            Some(DiskState::Unpopulated(why))
        }
        Some(Some(volume)) if volume.phase != DataVolumePhase::Succeeded => {
            let phase = volume.phase.as_str();
            let why = format!("its data volume is {phase}: wait until it is Succeeded");
            Some(DiskState::Unpopulated(why))
        }
        None if claim.awaits_upload() => {
            let why = format!(
                "its upload is not complete: upload a disk, or remove the annotation {}",
                annotations::CDI_UPLOAD_TARGET
            );
            Some(DiskState::Unpopulated(why))
        }
        None | Some(Some(_)) => None,
    }
}

fn unreadable(what: &'static str) -> impl Fn(kube::Error) -> SnapshotError {
    move |error| SnapshotError::Read {
        what,
        source: Box::new(error),
    }
}

impl Controller {
    /// With the snapshot as the last step has written it: its status is written under that version.
    pub(super) fn refreshed(&self, key: &Key, observed: Observed) -> Observed {
        let current = self.snapshots.get(key);
        let same = current.filter(|one| one.metadata.uid == observed.snapshot.metadata.uid);
        Observed {
            snapshot: same.unwrap_or_else(|| Arc::clone(&observed.snapshot)),
            ..observed
        }
    }

    pub(super) fn vm_api(&self, namespace: &str) -> Api<DynamicObject> {
        let kind = ApiResource::erase::<VirtualMachine>(&());
        Api::namespaced_with(self.client.clone(), namespace, &kind)
    }

    pub(super) async fn observe(
        &self,
        key: &Key,
        snapshot: Arc<VirtualMachineSnapshot>,
    ) -> Result<Observed, SnapshotError> {
        let source = Key::new(key.namespace.as_str(), snapshot.spec.source.name.as_str());
        let guests = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        let guest = guests.get_opt(&source.name).await;
        let guest = guest.map_err(unreadable("the VMI"))?;
        let guest = guest.filter(|guest| !guest.is_final());
        let content = self.content(key, &snapshot).await?;
        let mut observed = Observed {
            vm: self.vm(&source, guest.as_ref()).await?,
            guest,
            disks: Vec::new(),
            others: Vec::new(),
            busy: self.busy(key, &snapshot),
            content,
            snapshot,
            now: self.clock.now(),
        };
        if let Some(vm) = &observed.vm
            && observed.content.is_none()
        {
            let spec = vm.spec.clone();
            let mut users = None;
            if observed.guest.is_none() && volumes(&spec).iter().any(|one| claim_of(one).is_some())
            {
                let found = claim_users(&self.client, &key.namespace).await;
                users = Some(found.map_err(unreadable("the pods"))?);
            }
            for volume in volumes(&spec) {
                let name = volume["name"].as_str().unwrap_or_default().to_owned();
                match claim_of(volume) {
                    Some(claim) => {
                        let disk = self.disk(key, name, claim, users.as_deref()).await?;
                        observed.disks.push(disk);
                    }
                    None => observed.others.push(name),
                }
            }
        }
        Ok(observed)
    }

    async fn vm(&self, key: &Key, guest: Option<&Guest>) -> Result<Option<Vm>, SnapshotError> {
        let found = self.vm_api(&key.namespace).get_opt(&key.name).await;
        let Some(mut found) = found.map_err(unreadable("the VM"))? else {
            return Ok(None);
        };
        found.metadata.managed_fields = None;
        let status = found.data["status"].clone();
        let mut spec = found.data["spec"].clone();
        let revision = guest.and_then(|guest| guest.status.revision.as_deref());
        if let Some(name) = revision {
            let api = Api::<ControllerRevision>::namespaced(self.client.clone(), &key.namespace);
            let revision = api.get_opt(name).await;
            let revision = revision.map_err(unreadable("the revision of the VM"))?;
            let running = revision.and_then(|revision| revision.data);
            if let Some(started) = running.and_then(|data| data.0.get("spec").cloned()) {
                let plugs = guest.map_or(&[][..], |guest| guest.plugs.as_slice());
                spec = with_plugs(started, &spec, plugs);
            }
        }
        Ok(Some(Vm {
            uid: found.metadata.uid.clone().unwrap_or_default(),
            resource_version: found.metadata.resource_version.clone().unwrap_or_default(),
            finalizers: found.metadata.finalizers.clone().unwrap_or_default(),
            status: serde_json::from_value(status).unwrap_or_default(),
            spec,
            object: serde_json::to_value(found).unwrap_or_default(),
        }))
    }

    /// The pods are those that may use the claim besides a guest; `None` if the guest runs.
    async fn disk(
        &self,
        key: &Key,
        volume: String,
        claim: &str,
        users: Option<&[ClaimUser]>,
    ) -> Result<Disk, SnapshotError> {
        let claims = Api::<Claim>::namespaced(self.client.clone(), &key.namespace);
        let found = claims.get_opt(claim).await;
        let state = match found.map_err(unreadable("a claim"))? {
            None => DiskState::Missing,
            Some(found) => match self.classes.of(&found) {
                Err(reason) => DiskState::NotCopyable(reason),
                Ok(_) if !found.is_bound => DiskState::Unbound,
                Ok(class) => match users {
                    None => DiskState::Copyable(class),
                    Some(users) => {
                        let own = Key::new(key.namespace.as_str(), claim);
                        let data_volume = self.data_volumes.get(&own);
                        state_without_guest(&found, data_volume.as_deref(), users)
                            .unwrap_or(DiskState::Copyable(class))
                    }
                },
            },
        };
        Ok(Disk {
            volume,
            claim: claim.to_owned(),
            state,
        })
    }

    async fn content(
        &self,
        key: &Key,
        snapshot: &VirtualMachineSnapshot,
    ) -> Result<Option<Content>, SnapshotError> {
        let client = self.client.clone();
        let contents =
            Api::<VirtualMachineSnapshotContent>::namespaced(client.clone(), &key.namespace);
        let found = contents.get_opt(&content_name(snapshot)).await;
        let Some(object) = found.map_err(unreadable("the content"))? else {
            return Ok(None);
        };
        let api = Api::<VolumeSnapshot>::namespaced(client, &key.namespace);
        let mut copies = Vec::new();
        for backup in &object.spec.volume_backups {
            let name = backup.volume_snapshot_name.clone().unwrap_or_default();
            let found = if self.classes.snapshot.is_defined() {
                api.get_opt(&name)
                    .await
                    .map_err(unreadable("a volume snapshot"))?
            } else {
                None
            };
            let claim = backup.persistent_volume_claim.metadata.as_ref();
            copies.push(Copy {
                volume: backup.volume_name.clone(),
                claim: claim
                    .and_then(|claim| claim.name.clone())
                    .unwrap_or_default(),
                name,
                object: found,
            });
        }
        Ok(Some(Content { object, copies }))
    }

    /// Another snapshot that still holds the guest.
    fn busy(&self, key: &Key, snapshot: &VirtualMachineSnapshot) -> Option<String> {
        let all = self.snapshots.in_namespace(&key.namespace);
        let mut others = all.iter().filter(|other| {
            other.metadata.uid != snapshot.metadata.uid
                && other.spec.source.name == snapshot.spec.source.name
        });
        let holder = others.find(|other| Hold::of(other).is_some_and(|hold| hold.is_ours()))?;
        let name = holder.metadata.name.as_deref().unwrap_or_default();
        Some(format!("snapshot {name} of the same VM is in progress"))
    }
}
