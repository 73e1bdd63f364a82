//! Carries out a step, and writes the status.

use std::fmt::Debug;

use error_chain::error_chain;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Api;
use kubevirt_api::clone::{
    VirtualMachineClone, VirtualMachineClonePhase as Phase, VirtualMachineCloneStatus,
};
use kubevirt_api::restore::VirtualMachineRestore;
use kubevirt_api::snapshot::VirtualMachineSnapshot;
use kubevirt_api::{GROUP, VirtualMachine};
use reasons::Reason;
use reconcile::{EventType, Key, ReconcileError as _, WriteError, apply_reported, create, delete};
use serde::de::DeserializeOwned;
use serde_json::json;

use super::copy::{own_snapshot_name, owner, restore_name};
use super::observe::{Observed, is_of_vm};
use super::plan::{Plan, Progress, Step, source_kind};
use super::{CloneError, Controller, status};
use crate::MANAGER;
use crate::operation::status_fragment;

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        step: &Step,
    ) -> Result<(), CloneError> {
        match step {
            Step::CreateSnapshot => self.create_snapshot(key, observed).await?,
            Step::CreateRestore(restore) => self.create_restore(key, observed, restore).await?,
            Step::DeleteRestore => {
                let metadata = observed.restore.as_ref().map(|one| &one.metadata);
                remove(&self.restores(key), metadata, "the restore").await?;
            }
            Step::DeleteSnapshot => {
                let metadata = observed.snapshot.as_ref().map(|one| &one.metadata);
                remove(&self.snapshots(key), metadata, "the snapshot").await?;
            }
            Step::DeleteClone => {
                let metadata = Some(&observed.clone.metadata);
                remove(&self.api(key), metadata, "the clone").await?;
            }
        }
        failpoints::after(name(step));
        Ok(())
    }

    fn api(&self, key: &Key) -> Api<VirtualMachineClone> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn restores(&self, key: &Key) -> Api<VirtualMachineRestore> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn snapshots(&self, key: &Key) -> Api<VirtualMachineSnapshot> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn create_snapshot(&self, key: &Key, observed: &Observed) -> Result<(), CloneError> {
        let name = own_snapshot_name(&observed.clone);
        let body = json!({
            "apiVersion": VirtualMachineSnapshot::API_VERSION,
            "kind": VirtualMachineSnapshot::KIND,
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "ownerReferences": [owner(&observed.clone)],
            },
            "spec": {"source": {
                "apiGroup": GROUP,
                "kind": VirtualMachine::KIND,
                "name": observed.clone.spec.source.name,
            }},
        });
        let named = Key::new(key.namespace.as_str(), name.as_str());
        match create(&self.snapshots(key), MANAGER, &named, &body).await {
            Ok(_) => {
                let note = format!("Created VirtualMachineSnapshot {name}");
                self.publish(observed, EventType::Normal, Reason::SnapshotCreated, note);
                Ok(())
            }
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(CloneError::CreateSnapshot(error)),
        }
    }

    async fn create_restore(
        &self,
        key: &Key,
        observed: &Observed,
        restore: &VirtualMachineRestore,
    ) -> Result<(), CloneError> {
        let name = restore_name(&observed.clone);
        let body = json!({
            "apiVersion": VirtualMachineRestore::API_VERSION,
            "kind": VirtualMachineRestore::KIND,
            "metadata": restore.metadata,
            "spec": restore.spec,
        });
        let named = Key::new(key.namespace.as_str(), name.as_str());
        match create(&self.restores(key), MANAGER, &named, &body).await {
            Ok(_) => {
                let snapshot = &restore.spec.virtual_machine_snapshot_name;
                let note = format!("VirtualMachineSnapshot {snapshot} is ready");
                self.publish(observed, EventType::Normal, Reason::SnapshotReady, note);
                let note = format!("Created VirtualMachineRestore {name}");
                self.publish(observed, EventType::Normal, Reason::RestoreCreated, note);
                Ok(())
            }
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(CloneError::CreateRestore(error)),
        }
    }

    /// Returns the clone if its status has changed.
    pub(super) async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
        error: Option<&CloneError>,
    ) -> Result<Option<VirtualMachineClone>, CloneError> {
        let failed = error.map(|error| (error.reason(), error_chain(error)));
        let progress = match (failed, &plan.progress) {
            (Some(cause), Progress::Snapshotting(_)) => Progress::Snapshotting(Some(cause)),
            (Some(cause), Progress::Restoring(_)) => Progress::Restoring(Some(cause)),
            (_, progress) => progress.clone(),
        };
        let clone = observed.clone.as_ref();
        let status = status::render(observed, &progress);
        let Some(fragment) = status_fragment(clone, clone.status.as_ref(), key, &status) else {
            return Ok(None);
        };
        match apply_reported(&self.api(key), &fragment, clone, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/clone/write-status");
                self.clones.wrote(clone, written.clone());
                self.publish_progress(observed, &progress, &status);
                Ok(Some(written))
            }
            Err(WriteError::NotFound { .. }) => Ok(None),
            Err(error) => Err(CloneError::Status(error)),
        }
    }

    /// Events of a status that has just been written.
    fn publish_progress(
        &self,
        observed: &Observed,
        progress: &Progress,
        status: &VirtualMachineCloneStatus,
    ) {
        let before = observed.clone.status.clone().unwrap_or_default();
        let normal = EventType::Normal;
        match progress {
            Progress::Pending((reason, message)) | Progress::Failed((reason, message)) => {
                self.publish(observed, EventType::Warning, *reason, message.clone());
            }
            Progress::Succeeded(_) if before.phase != Some(Phase::Succeeded) => {
                let restore = restore_name(&observed.clone);
                let note = format!("VirtualMachineRestore {restore} is complete");
                self.publish(observed, normal, Reason::RestoreReady, note);
                let target = status.target_name.as_deref().unwrap_or_default();
                let (kind, source) = (source_kind(observed), &observed.clone.spec.source.name);
                let note = format!("Created VirtualMachine {target} of {kind} {source}");
                self.publish(observed, normal, Reason::TargetVMCreated, note);
            }
            Progress::Succeeded(_)
                if before.restore_name.is_some() && status.restore_name.is_none() =>
            {
                let helpers = if is_of_vm(&observed.clone) {
                    "snapshot and restore"
                } else {
                    "restore"
                };
                let note = format!("All claims are bound: {helpers} are deleted");
                self.publish(observed, normal, Reason::PVCBound, note);
            }
            _ => {}
        }
    }

    fn publish(&self, observed: &Observed, kind: EventType, reason: Reason, note: String) {
        self.recorder
            .publish(observed.clone.as_ref(), kind, reason, note);
    }
}

/// Deletes the observed object.
async fn remove<K>(
    api: &Api<K>,
    observed: Option<&ObjectMeta>,
    what: &'static str,
) -> Result<(), CloneError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let Some(ObjectMeta {
        name: Some(name),
        namespace: Some(namespace),
        uid: Some(uid),
        ..
    }) = observed
    else {
        return Ok(());
    };
    let named = Key::new(namespace.as_str(), name.as_str());
    let deleted = delete(api, &named, uid, None).await;
    deleted.map_err(|source| CloneError::Delete { what, source })
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::CreateSnapshot => "virt-controller/clone/create-snapshot",
        Step::CreateRestore(_) => "virt-controller/clone/create-restore",
        Step::DeleteRestore => "virt-controller/clone/delete-restore",
        Step::DeleteSnapshot => "virt-controller/clone/delete-snapshot",
        Step::DeleteClone => "virt-controller/clone/delete-clone",
    }
}
