//! Carries out a step, and writes the status.

use std::borrow::Cow;

use error_chain::error_chain;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kubevirt_api::data_volume_status::DataVolume;
use kubevirt_api::restore::VirtualMachineRestore;
use kubevirt_api::{API_VERSION, VirtualMachine, finalizers};
use reasons::Reason;
use reconcile::{
    EventType, Key, ReconcileError as _, WriteError, apply_reported, create, delete,
    delete_unchanged, merge, merge_status,
};
use serde_json::{Value, json};

use super::observe::{Disk, Observed};
use super::plan::{Plan, Progress, Step};
use super::target::difference;
use super::{Controller, RestoreError, claims, status};
use crate::MANAGER;
use crate::operation::{set_finalizers, status_fragment};
use crate::subresources::{self, Of};

type Restore = VirtualMachineRestore;

fn failed(tried: &'static str) -> impl Fn(WriteError) -> RestoreError {
    move |source| RestoreError::Write { tried, source }
}

impl Controller {
    /// Returns the restore if it was changed.
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        step: &Step,
    ) -> Result<Option<Restore>, RestoreError> {
        let finalizers = observed.restore.metadata.finalizers.clone();
        let mut finalizers = finalizers.unwrap_or_default();
        let disk = |index: &usize| observed.disks.get(*index);
        let mut after = None;
        match step {
            Step::AddFinalizer => {
                finalizers.push(finalizers::RESTORE.to_owned());
                after = Some(self.set_finalizers(key, observed, &finalizers).await?);
            }
            Step::RemoveFinalizer => {
                finalizers.retain(|one| one != finalizers::RESTORE);
                after = Some(self.set_finalizers(key, observed, &finalizers).await?);
            }
            Step::Stop => self.stop_target(key, observed).await?,
            Step::Lock => self.set_lock(key, observed, Some(&key.name)).await?,
            Step::Unlock => self.set_lock(key, observed, None).await?,
            Step::CreateClaim(index) => {
                if let Some(disk) = disk(index) {
                    self.create_claim(key, observed, disk).await?;
                }
            }
            Step::DeleteClaim(index) => {
                if let Some(disk) = disk(index) {
                    self.delete_claim(key, disk).await?;
                }
            }
            Step::CreateTarget(vm) => self.create_target(key, observed, vm).await?,
            Step::UpdateTarget(vm) => self.update_target(key, observed, vm).await?,
            Step::OwnClaim(index) => {
                if let Some(disk) = disk(index) {
                    self.own_claim(key, observed, disk).await?;
                }
            }
            Step::DropClaim(claim) => {
                let name = claim.name.as_deref().unwrap_or_default();
                let named = Key::new(key.namespace.as_str(), name);
                let deleted = delete_unchanged(&self.claims(key), &named, claim).await;
                deleted.map_err(failed("delete a claim that is not needed any more"))?;
            }
            Step::Complete => {
                let status = status::complete(observed);
                after = self.apply_status(key, observed, &status).await?;
                let note = format!(
                    "VirtualMachine {} is restored",
                    observed.restore.spec.target.name
                );
                let reason = Reason::VirtualMachineRestoreComplete;
                self.publish(observed, EventType::Normal, reason, note);
            }
        }
        failpoints::after(name(step));
        Ok(after)
    }

    fn api(&self, key: &Key) -> Api<Restore> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn claims(&self, key: &Key) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn set_finalizers(
        &self,
        key: &Key,
        observed: &Observed,
        all: &[String],
    ) -> Result<Restore, RestoreError> {
        let metadata = &observed.restore.metadata;
        let written = set_finalizers(&self.api(key), key, metadata, all).await;
        written.map_err(failed("change the finalizers"))
    }

    async fn stop_target(&self, key: &Key, observed: &Observed) -> Result<(), RestoreError> {
        let target = target(key, observed);
        let stopped = subresources::put(&self.client, Of::Vm, &target, "stop", &json!({})).await;
        stopped.map_err(RestoreError::Stop)
    }

    async fn set_lock(
        &self,
        key: &Key,
        observed: &Observed,
        lock: Option<&str>,
    ) -> Result<(), RestoreError> {
        let Some(vm) = &observed.target else {
            return Ok(());
        };
        let body = json!({
            "metadata": {"resourceVersion": vm.object["metadata"]["resourceVersion"]},
            "status": {"restoreInProgress": lock},
        });
        let target = target(key, observed);
        let written = merge_status(&self.vms(&key.namespace), MANAGER, &target, &body).await;
        match written {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed("lock or unlock the VM")(error)),
        }
    }

    async fn create_claim(
        &self,
        key: &Key,
        observed: &Observed,
        disk: &Disk,
    ) -> Result<(), RestoreError> {
        let Some(copy) = &disk.copy else {
            return Ok(());
        };
        let named = Key::new(key.namespace.as_str(), disk.name.as_str());
        let source = observed.source["metadata"]["name"]
            .as_str()
            .unwrap_or_default();
        let body = claims::body(&observed.restore, &named, &disk.backup, copy, source);
        let created = create(&self.claims(key), MANAGER, &named, &body).await;
        created.map_err(failed("create a claim"))?;
        Ok(())
    }

    async fn delete_claim(&self, key: &Key, disk: &Disk) -> Result<(), RestoreError> {
        let Some(claim) = &disk.claim else {
            return Ok(());
        };
        if let Some(owner) = &disk.data_volume {
            let named = Key::new(key.namespace.as_str(), owner.name.as_str());
            let api = Api::<DataVolume>::namespaced(self.client.clone(), &key.namespace);
            let deleted = delete(&api, &named, &owner.uid, None).await;
            deleted.map_err(failed("delete the data volume"))?;
        }
        let named = Key::new(key.namespace.as_str(), disk.name.as_str());
        let deleted = delete_unchanged(&self.claims(key), &named, &claim.metadata).await;
        deleted.map_err(failed("delete the claim that is replaced"))
    }

    async fn create_target(
        &self,
        key: &Key,
        observed: &Observed,
        vm: &Value,
    ) -> Result<(), RestoreError> {
        let target = target(key, observed);
        let mut body = vm.clone();
        body["apiVersion"] = API_VERSION.into();
        body["kind"] = VirtualMachine::KIND.into();
        body["metadata"]["name"] = target.name.as_str().into();
        body["metadata"]["namespace"] = target.namespace.as_str().into();
        let created = create(&self.typed_vms(key), MANAGER, &target, &body).await;
        created.map_err(failed("create the VM"))?;
        Ok(())
    }

    fn typed_vms(&self, key: &Key) -> Api<VirtualMachine> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn update_target(
        &self,
        key: &Key,
        observed: &Observed,
        vm: &Value,
    ) -> Result<(), RestoreError> {
        let Some(before) = &observed.target else {
            return Ok(());
        };
        let from = json!({
            "metadata": {
                "labels": part(&before.object, "labels"),
                "annotations": part(&before.object, "annotations"),
            },
            "spec": before.object["spec"],
        });
        let mut body = difference(&from, vm);
        body["metadata"]["resourceVersion"] = before.object["metadata"]["resourceVersion"].clone();
        let written = merge(
            &self.vms(&key.namespace),
            MANAGER,
            &target(key, observed),
            &body,
        )
        .await;
        written.map_err(failed("update the VM"))?;
        Ok(())
    }

    async fn own_claim(
        &self,
        key: &Key,
        observed: &Observed,
        disk: &Disk,
    ) -> Result<(), RestoreError> {
        let (Some(claim), Some(vm)) = (&disk.claim, &observed.target) else {
            return Ok(());
        };
        let mut owners = json!(claim.metadata.owner_references.clone().unwrap_or_default());
        if let Some(list) = owners.as_array_mut() {
            list.push(json!({
                "apiVersion": API_VERSION,
                "kind": VirtualMachine::KIND,
                "name": observed.restore.spec.target.name,
                "uid": vm.uid,
            }));
        }
        let body = json!({"metadata": {
            "uid": claim.metadata.uid,
            "resourceVersion": claim.metadata.resource_version,
            "ownerReferences": owners,
        }});
        let named = Key::new(key.namespace.as_str(), disk.name.as_str());
        let written = merge(&self.claims(key), MANAGER, &named, &body).await;
        written.map_err(failed("make the VM the owner of a claim"))?;
        Ok(())
    }

    pub(super) async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
        error: Option<&RestoreError>,
    ) -> Result<(), RestoreError> {
        let Some(progress) = shown(plan, error) else {
            return Ok(());
        };
        let progress = progress.as_ref();
        let status = status::render(observed, progress);
        let is_new = self.apply_status(key, observed, &status).await?.is_some();
        if let Progress::Failed { reason, message } | Progress::Waits { reason, message } = progress
            && is_new
        {
            self.publish(observed, EventType::Warning, *reason, message.clone());
        }
        Ok(())
    }

    async fn apply_status(
        &self,
        key: &Key,
        observed: &Observed,
        status: &kubevirt_api::restore::VirtualMachineRestoreStatus,
    ) -> Result<Option<Restore>, RestoreError> {
        let restore = observed.restore.as_ref();
        let Some(fragment) = status_fragment(restore, restore.status.as_ref(), key, status) else {
            return Ok(None);
        };
        match apply_reported(&self.api(key), &fragment, restore, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/restore/write-status");
                self.restores.wrote(restore, written.clone());
                Ok(Some(written))
            }
            Err(WriteError::NotFound { .. }) => Ok(None),
            Err(error) => Err(RestoreError::Status(error)),
        }
    }

    fn publish(&self, observed: &Observed, kind: EventType, reason: Reason, note: String) {
        self.recorder
            .publish(observed.restore.as_ref(), kind, reason, note);
    }
}

/// What users see, unless the next reconcile repeats a step on newer objects.
pub(super) fn shown<'a>(plan: &'a Plan, error: Option<&RestoreError>) -> Option<Cow<'a, Progress>> {
    let Some(error) = error else {
        return Some(Cow::Borrowed(&plan.progress));
    };
    let is_conflict = matches!(
        error,
        RestoreError::Write {
            source: WriteError::Conflict { .. },
            ..
        }
    );
    if is_conflict {
        return None;
    }
    // It says why the VM is not being stopped.
    let is_cause = matches!(error, RestoreError::Stop(_));
    if plan.progress != Progress::Restoring && !is_cause {
        return Some(Cow::Borrowed(&plan.progress));
    }
    Some(Cow::Owned(Progress::Waits {
        reason: error.reason(),
        message: error_chain(error),
    }))
}

fn target(key: &Key, observed: &Observed) -> Key {
    Key::new(
        key.namespace.as_str(),
        observed.restore.spec.target.name.as_str(),
    )
}

fn part(object: &Value, name: &str) -> Value {
    let found = object["metadata"].get(name);
    found
        .cloned()
        .filter(Value::is_object)
        .unwrap_or_else(|| json!({}))
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::AddFinalizer => "virt-controller/restore/add-finalizer",
        Step::RemoveFinalizer => "virt-controller/restore/remove-finalizer",
        Step::Stop => "virt-controller/restore/stop",
        Step::Lock => "virt-controller/restore/lock",
        Step::Unlock => "virt-controller/restore/unlock",
        Step::CreateClaim(_) => "virt-controller/restore/create-claim",
        Step::DeleteClaim(_) => "virt-controller/restore/delete-claim",
        Step::CreateTarget(_) => "virt-controller/restore/create-vm",
        Step::UpdateTarget(_) => "virt-controller/restore/update-vm",
        Step::OwnClaim(_) => "virt-controller/restore/own-claim",
        Step::DropClaim(_) => "virt-controller/restore/drop-claim",
        Step::Complete => "virt-controller/restore/complete",
    }
}
