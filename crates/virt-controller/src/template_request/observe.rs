//! Observation: everything that one step may read. Requests are rare, so all but the request itself is read from the
//! API server.

use std::sync::Arc;

use jiff::Timestamp;
use kube::Api;
use kube::api::{ApiResource, DynamicObject, ListParams};
use kubevirt_api::data_volume_status::{DataVolume, DataVolumePhase};
use kubevirt_api::snapshot::{VirtualMachineSnapshot, VolumeBackup};
use kubevirt_api::template::{VirtualMachineTemplate, VirtualMachineTemplateRequest};
use kubevirt_api::{VirtualMachine, conditions, finalizers, labels};
use reconcile::Key;
use serde_json::Value;

use super::render::{snapshot_name, template_name, uid, vm_key, volume_name};
use super::{Controller, RequestError};
use crate::expansion::expanded;
use crate::restore::{Target, copied_vm};

/// The types of the conditions.
pub(super) const READY: &str = "Ready";
pub(super) const PROGRESSING: &str = "Progressing";

#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) request: Arc<VirtualMachineTemplateRequest>,
    /// The VM to copy, until there is a snapshot.
    pub(super) source: Option<Target>,
    pub(super) snapshot: Option<VirtualMachineSnapshot>,
    /// The VM in the snapshot, or the source before there is one, without instance type and preference, or why they
    /// cannot be applied; `None` if the snapshot is not ready or does not have it.
    pub(super) copied: Option<Result<Value, String>>,
    pub(super) backups: Vec<VolumeBackup>,
    /// Whether there is something that fills data volumes.
    pub(super) has_importer: bool,
    /// The data volumes of the request.
    pub(super) volumes: Vec<DataVolume>,
    /// The template of that name.
    pub(super) template: Option<VirtualMachineTemplate>,
    pub(super) now: Timestamp,
}

/// How far a request has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stage {
    Begun,
    Succeeded,
    Failed,
}

pub(super) fn stage(request: &VirtualMachineTemplateRequest) -> Stage {
    let status = request.status.as_ref();
    let all = status.map_or(&[][..], |status| status.conditions.as_slice());
    if !conditions::is_false(all, &PROGRESSING.to_owned()) {
        Stage::Begun
    } else if conditions::is_true(all, &READY.to_owned()) {
        Stage::Succeeded
    } else {
        Stage::Failed
    }
}

/// Whether a deleted request stays until the template owns its data volumes, and until a snapshot in another namespace
/// is deleted.
pub(super) fn has_finalizer(request: &VirtualMachineTemplateRequest) -> bool {
    let mut all = request.metadata.finalizers.iter().flatten();
    all.any(|one| one == finalizers::TEMPLATE_REQUEST)
}

/// Whether a change of that VM may let the request begin.
pub(super) fn waits_for_vm(request: &VirtualMachineTemplateRequest, vm: &Key) -> bool {
    vm_key(request).as_ref() == Some(vm) && stage(request) == Stage::Begun
}

impl Observed {
    /// The data volume for a disk in the snapshot.
    pub(super) fn volume(&self, backup: &VolumeBackup) -> Option<&DataVolume> {
        let name = volume_name(&self.request, backup);
        let mut all = self.volumes.iter();
        all.find(|one| one.metadata.name.as_deref() == Some(name.as_str()))
    }
}

pub(super) fn phase(volume: &DataVolume) -> DataVolumePhase {
    let status = volume.status.as_ref();
    let phase = status.and_then(|status| status.phase.clone());
    phase.unwrap_or_default()
}

fn unreadable(what: &'static str) -> impl Fn(kube::Error) -> RequestError {
    move |error| RequestError::Read {
        what,
        source: Box::new(error),
    }
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        request: Arc<VirtualMachineTemplateRequest>,
    ) -> Result<Observed, RequestError> {
        let mut observed = Observed {
            now: self.clock.now(),
            has_importer: self.volumes.data_volumes.is_defined(),
            request,
            ..Observed::default()
        };
        if observed.request.metadata.deletion_timestamp.is_some() {
            if has_finalizer(&observed.request) {
                observed.snapshot = self.snapshot(&observed.request).await?;
                observed.template = self.template(key, &observed.request).await?;
                observed.volumes = self.data_volumes(key, &observed).await?;
            }
            return Ok(observed);
        }
        observed.snapshot = self.snapshot(&observed.request).await?;
        match stage(&observed.request) {
            Stage::Begun => {}
            Stage::Succeeded => return Ok(observed),
            Stage::Failed => {
                observed.volumes = self.data_volumes(key, &observed).await?;
                return Ok(observed);
            }
        }
        observed.template = self.template(key, &observed.request).await?;
        if observed.template.is_none()
            && let Some(vm) = vm_key(&observed.request)
        {
            if observed.snapshot.is_none() {
                observed.source = self.vm(&vm).await?;
                if let Some(source) = &observed.source {
                    let expanded = self.expanded(&vm, observed.now, &source.object).await?;
                    observed.copied = Some(expanded);
                }
            }
            self.observe_content(&vm, &mut observed).await?;
        }
        observed.volumes = self.data_volumes(key, &observed).await?;
        Ok(observed)
    }

    /// The snapshot of the request, in the namespace of its VM.
    async fn snapshot(
        &self,
        request: &VirtualMachineTemplateRequest,
    ) -> Result<Option<VirtualMachineSnapshot>, RequestError> {
        let Some(vm) = vm_key(request) else {
            return Ok(None);
        };
        let api = Api::<VirtualMachineSnapshot>::namespaced(self.client.clone(), &vm.namespace);
        let found = api.get_opt(&snapshot_name(request)).await;
        found.map_err(unreadable("the snapshot"))
    }

    /// The template of the name that the request gives.
    async fn template(
        &self,
        key: &Key,
        request: &VirtualMachineTemplateRequest,
    ) -> Result<Option<VirtualMachineTemplate>, RequestError> {
        let namespace = key.namespace.as_str();
        let api = Api::<VirtualMachineTemplate>::namespaced(self.client.clone(), namespace);
        let found = api.get_opt(&template_name(request)).await;
        found.map_err(unreadable("the template"))
    }

    /// The data volumes of the request. Changes of those for the disks in the snapshot trigger it.
    async fn data_volumes(
        &self,
        key: &Key,
        observed: &Observed,
    ) -> Result<Vec<DataVolume>, RequestError> {
        for backup in &observed.backups {
            let name = volume_name(&observed.request, backup);
            let named = Key::new(key.namespace.as_str(), name.as_str());
            // A dependency from before the list, so that no change after it is missed; the cache may be old.
            drop(self.volumes.data_volumes.get(&named, key));
        }
        let api = Api::<DataVolume>::namespaced(self.client.clone(), &key.namespace);
        let uid = uid(&observed.request);
        let own = ListParams::default().labels(&format!("{}={uid}", labels::TEMPLATE_REQUEST_UID));
        match api.list(&own).await {
            Ok(list) => Ok(list.items),
            // The kind is not defined.
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(Vec::new()),
            Err(error) => Err(unreadable("the data volumes")(error)),
        }
    }

    async fn vm(&self, vm: &Key) -> Result<Option<Target>, RequestError> {
        let kind = ApiResource::erase::<VirtualMachine>(&());
        let api = Api::<DynamicObject>::namespaced_with(self.client.clone(), &vm.namespace, &kind);
        let found = api.get_opt(&vm.name).await;
        Ok(found.map_err(unreadable("the VM"))?.map(Target::of))
    }

    async fn observe_content(
        &self,
        place: &Key,
        observed: &mut Observed,
    ) -> Result<(), RequestError> {
        let snapshot = observed.snapshot.as_ref();
        let status = snapshot.and_then(|snapshot| snapshot.status.as_ref());
        let ready = status.filter(|status| status.ready_to_use == Some(true));
        let Some(content) = ready.and_then(|one| one.virtual_machine_snapshot_content_name.clone())
        else {
            return Ok(());
        };
        let copied = copied_vm(&self.client, &place.namespace, &content).await;
        let Some((vm, backups)) = copied.map_err(unreadable("the content"))? else {
            return Ok(());
        };
        if vm.is_null() {
            return Ok(());
        }
        observed.backups = backups;
        observed.copied = Some(self.expanded(place, observed.now, &vm).await?);
        Ok(())
    }

    /// The VM with its instance type and preference applied, which may be in the namespace of the VM at `place`.
    async fn expanded(
        &self,
        place: &Key,
        now: Timestamp,
        vm: &Value,
    ) -> Result<Result<Value, String>, RequestError> {
        let place = (&self.client, place.namespace.as_str());
        let expanded = expanded(place, &self.cluster.now(), now, vm).await;
        expanded.map_err(|source| RequestError::Read {
            what: "the instance type or preference",
            source,
        })
    }
}
