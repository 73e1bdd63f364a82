//! Carries out a step, and writes the status.

use std::fmt::Debug;

use error_chain::error_chain;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use kube::{Api, Resource};
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::finalizers;
use kubevirt_api::snapshot::VirtualMachineSnapshot;
use kubevirt_api::template::{VirtualMachineTemplate, VirtualMachineTemplateRequest};
use reasons::Reason;
use reconcile::{
    EventType, Key, ReconcileError as _, WriteError, apply_reported, create, delete, merge,
};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::{Plan, Progress, Step};
use super::render::{vm_key, vm_name};
use super::{Controller, RequestError, render, status};
use crate::MANAGER;
use crate::operation::{set_finalizers, status_fragment};

impl Controller {
    /// Returns the request if it was changed.
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        step: &Step,
    ) -> Result<Option<VirtualMachineTemplateRequest>, RequestError> {
        let request = observed.request.as_ref();
        let mut own = request.metadata.finalizers.clone().unwrap_or_default();
        let mut after = None;
        match step {
            Step::AddFinalizer => {
                own.push(finalizers::TEMPLATE_REQUEST.to_owned());
                after = Some(self.set_finalizers(key, request, &own).await?);
            }
            Step::RemoveFinalizer => {
                own.retain(|one| one != finalizers::TEMPLATE_REQUEST);
                after = Some(self.set_finalizers(key, request, &own).await?);
            }
            Step::CreateSnapshot => {
                if let Some(vm) = vm_key(request) {
                    let body = render::snapshot(request, &vm);
                    let name = render::snapshot_name(request);
                    let api: Api<VirtualMachineSnapshot> = self.api(&vm);
                    add(&api, &vm, &name, &body, "the snapshot").await?;
                }
            }
            Step::CreateVolume(index) => {
                if let (Some(backup), Some(vm)) = (observed.backups.get(*index), vm_key(request)) {
                    let body = render::data_volume(request, &vm, backup);
                    let name = render::volume_name(request, backup);
                    let api: Api<DataVolume> = self.api(key);
                    add(&api, key, &name, &body, "a data volume").await?;
                }
            }
            Step::CreateTemplate(body) => {
                let name = render::template_name(request);
                let api: Api<VirtualMachineTemplate> = self.api(key);
                add(&api, key, &name, body, "the template").await?;
            }
            Step::ReleaseVolume(index) => self.change_owner(observed, *index, None).await?,
            Step::OwnVolume(index) => {
                let template = observed.template.as_ref();
                let owner = template.map(render::template_owner);
                self.change_owner(observed, *index, owner).await?;
            }
            Step::DeleteSnapshot => {
                if let Some(snapshot) = &observed.snapshot {
                    let at = Key::of(snapshot);
                    let api: Api<VirtualMachineSnapshot> = self.api(&at);
                    remove(&api, &at, Some(&snapshot.metadata), "the snapshot").await?;
                }
            }
            Step::DeleteVolume(index) => {
                let metadata = observed.volumes.get(*index).map(|one| &one.metadata);
                let api: Api<DataVolume> = self.api(key);
                remove(&api, key, metadata, "a data volume").await?;
            }
            Step::DeleteRequest => {
                let api: Api<VirtualMachineTemplateRequest> = self.api(key);
                remove(&api, key, Some(&request.metadata), "the request").await?;
            }
        }
        failpoints::after(name(step));
        Ok(after)
    }

    async fn set_finalizers(
        &self,
        key: &Key,
        request: &VirtualMachineTemplateRequest,
        all: &[String],
    ) -> Result<VirtualMachineTemplateRequest, RequestError> {
        let api: Api<VirtualMachineTemplateRequest> = self.api(key);
        let written = set_finalizers(&api, key, &request.metadata, all).await;
        written.map_err(RequestError::Finalizers)
    }

    fn api<K>(&self, key: &Key) -> Api<K>
    where
        K: Resource<Scope = k8s_openapi::NamespaceResourceScope, DynamicType = ()>,
    {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// Replaces the request as the owner of a data volume.
    async fn change_owner(
        &self,
        observed: &Observed,
        index: usize,
        owner: Option<OwnerReference>,
    ) -> Result<(), RequestError> {
        let Some(volume) = observed.volumes.get(index) else {
            return Ok(());
        };
        let metadata = &volume.metadata;
        let mut owners = metadata.owner_references.clone().unwrap_or_default();
        owners.retain(|one| one.uid != render::uid(&observed.request));
        owners.extend(owner);
        let body = json!({"metadata": {
            "resourceVersion": metadata.resource_version,
            "ownerReferences": owners,
        }});
        let named = Key::of(volume);
        let api: Api<DataVolume> = self.api(&named);
        let written = merge(&api, MANAGER, &named, &body).await;
        match written {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(RequestError::Own(error)),
        }
    }

    /// Returns the request if its status has changed.
    pub(super) async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
        error: Option<&RequestError>,
    ) -> Result<Option<VirtualMachineTemplateRequest>, RequestError> {
        let failed = error.map(|error| (error.reason(), error_chain(error)));
        let progress = match (failed, &plan.progress) {
            (Some(cause), Progress::Working(_)) => Progress::Working(Some(cause)),
            (_, progress) => progress.clone(),
        };
        let request = observed.request.as_ref();
        let status = status::render(observed, &progress);
        let Some(fragment) = status_fragment(request, request.status.as_ref(), key, &status) else {
            return Ok(None);
        };
        let api: Api<VirtualMachineTemplateRequest> = self.api(key);
        match apply_reported(&api, &fragment, request, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/template-request/write-status");
                self.requests.wrote(request, written.clone());
                self.publish_progress(observed, &progress);
                Ok(Some(written))
            }
            Err(WriteError::NotFound { .. }) => Ok(None),
            Err(error) => Err(RequestError::Status(error)),
        }
    }

    /// Events of a status that has just been written.
    fn publish_progress(&self, observed: &Observed, progress: &Progress) {
        let request = observed.request.as_ref();
        match progress {
            Progress::Pending((reason, message)) | Progress::Failed((reason, message)) => {
                let warning = EventType::Warning;
                self.recorder
                    .publish(request, warning, *reason, message.clone());
            }
            Progress::Succeeded => {
                let (template, vm) = (render::template_name(request), vm_name(request));
                let note =
                    format!("Created VirtualMachineTemplate {template} of VirtualMachine {vm}");
                let normal = EventType::Normal;
                self.recorder
                    .publish(request, normal, Reason::TemplateReady, note);
            }
            Progress::Working(_) | Progress::Ended => {}
        }
    }
}

async fn add<K>(
    api: &Api<K>,
    key: &Key,
    name: &str,
    body: &Value,
    what: &'static str,
) -> Result<(), RequestError>
where
    K: Resource + Clone + DeserializeOwned + Debug,
{
    let named = Key::new(key.namespace.as_str(), name);
    let created = create(api, MANAGER, &named, body).await;
    created.map_err(|source| RequestError::Create { what, source })?;
    Ok(())
}

/// Deletes the observed object.
async fn remove<K>(
    api: &Api<K>,
    key: &Key,
    observed: Option<&ObjectMeta>,
    what: &'static str,
) -> Result<(), RequestError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let Some(ObjectMeta {
        name: Some(name),
        uid: Some(uid),
        ..
    }) = observed
    else {
        return Ok(());
    };
    let named = Key::new(key.namespace.as_str(), name.as_str());
    let deleted = delete(api, &named, uid, None).await;
    deleted.map_err(|source| RequestError::Delete { what, source })
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::CreateSnapshot => "virt-controller/template-request/create-snapshot",
        Step::CreateVolume(_) => "virt-controller/template-request/create-volume",
        Step::AddFinalizer => "virt-controller/template-request/add-finalizer",
        Step::CreateTemplate(_) => "virt-controller/template-request/create-template",
        Step::ReleaseVolume(_) => "virt-controller/template-request/release-volume",
        Step::OwnVolume(_) => "virt-controller/template-request/own-volume",
        Step::RemoveFinalizer => "virt-controller/template-request/remove-finalizer",
        Step::DeleteVolume(_) => "virt-controller/template-request/delete-volume",
        Step::DeleteSnapshot => "virt-controller/template-request/delete-snapshot",
        Step::DeleteRequest => "virt-controller/template-request/delete-request",
    }
}
