//! Carries out a step, and writes the status.

use error_chain::error_chain;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kubevirt_api::snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent};
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use kubevirt_api::{finalizers, labels};
use reasons::Reason;
use reconcile::{
    EventType, Key, ReconcileError as _, WriteError, apply_reported, create, delete_named, merge,
    merge_status,
};
use serde_json::{Value, json};

use super::hold::{ANNOTATION, By, Hold};
use super::observe::{Observed, Vm};
use super::plan::{Plan, Progress, Step, has_agent, is_paused};
use super::source::{DiskState, content_name, volume_snapshot_name};
use super::{Controller, SnapshotError, status};
use crate::MANAGER;
use crate::operation::{set_finalizers, status_fragment};
use crate::subresources::{self, Of, SubresourceError};

/// Of virt-api: the VM of a paused guest is locked by another snapshot.
const STILL_LOCKED: &str = "snapshot is in progress";

/// Seconds after which a request to pause a guest has succeeded or failed, and its VMI shows which.
const SETTLED_AFTER: i64 = 90;

type Snapshot = VirtualMachineSnapshot;

fn update(tried: &'static str) -> impl Fn(WriteError) -> SnapshotError {
    move |source| SnapshotError::Update { tried, source }
}

impl Controller {
    /// Returns the snapshot if it was changed.
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        step: &Step,
    ) -> Result<Option<Snapshot>, SnapshotError> {
        let after = match step {
            Step::AddFinalizer => {
                let mut all = observed
                    .snapshot
                    .metadata
                    .finalizers
                    .clone()
                    .unwrap_or_default();
                all.push(finalizers::SNAPSHOT.to_owned());
                Some(self.set_finalizers(key, observed, &all).await?)
            }
            Step::RemoveFinalizer => {
                let all = observed.snapshot.metadata.finalizers.iter().flatten();
                let others = all.filter(|one| *one != finalizers::SNAPSHOT);
                let others: Vec<String> = others.cloned().collect();
                Some(self.set_finalizers(key, observed, &others).await?)
            }
            Step::Lock => {
                self.lock(key, observed).await?;
                None
            }
            Step::Unlock => {
                self.unlock(key, observed).await?;
                None
            }
            Step::CreateContent => {
                self.create_content(key, observed).await?;
                None
            }
            Step::Pause(hold) => Some(self.pause(key, observed, hold).await?),
            Step::Copy(hold) => self.copy(key, observed, hold).await?,
            Step::NoteCreated => {
                self.note_created(key, observed).await?;
                None
            }
            Step::Release(hold) => Some(self.release(key, observed, hold).await?),
            Step::DeleteContent => {
                let name = Key::new(key.namespace.as_str(), content_name(&observed.snapshot));
                let deleted = delete_named(&self.contents(key), &name).await;
                deleted.map_err(update("delete the content"))?;
                None
            }
            Step::KeepContent => {
                let name = Key::new(key.namespace.as_str(), content_name(&observed.snapshot));
                let body = json!({"spec": {"virtualMachineSnapshotName": null}});
                let kept = merge(&self.contents(key), MANAGER, &name, &body).await;
                kept.map_err(update("keep the content"))?;
                None
            }
        };
        failpoints::after(name(step));
        Ok(after)
    }

    fn api(&self, key: &Key) -> Api<Snapshot> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    fn contents(&self, key: &Key) -> Api<VirtualMachineSnapshotContent> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    async fn set_finalizers(
        &self,
        key: &Key,
        observed: &Observed,
        all: &[String],
    ) -> Result<Snapshot, SnapshotError> {
        let metadata = &observed.snapshot.metadata;
        let written = set_finalizers(&self.api(key), key, metadata, all).await;
        written.map_err(update("change the finalizers"))
    }

    /// The finalizer first: a VM that is locked cannot go.
    async fn lock(&self, key: &Key, observed: &Observed) -> Result<(), SnapshotError> {
        let Some(vm) = &observed.vm else {
            return Ok(());
        };
        let failed = update("lock the VM");
        let named = Key::new(
            key.namespace.as_str(),
            observed.snapshot.spec.source.name.as_str(),
        );
        let api = self.vm_api(&key.namespace);
        let mut version = json!(vm.resource_version);
        if !vm
            .finalizers
            .iter()
            .any(|one| one == finalizers::SNAPSHOT_SOURCE)
        {
            let mut all = vm.finalizers.clone();
            all.push(finalizers::SNAPSHOT_SOURCE.to_owned());
            let body = json!({"metadata": {"resourceVersion": version, "finalizers": all}});
            let written = merge(&api, MANAGER, &named, &body).await.map_err(&failed)?;
            version = json!(written.metadata.resource_version);
            failpoints::after("virt-controller/snapshot/protect-vm");
        }
        let body = json!({
            "metadata": {"resourceVersion": version},
            "status": {"snapshotInProgress": key.name},
        });
        merge_status(&api, MANAGER, &named, &body)
            .await
            .map_err(failed)?;
        Ok(())
    }

    async fn unlock(&self, key: &Key, observed: &Observed) -> Result<(), SnapshotError> {
        let Some(Vm {
            resource_version,
            finalizers: all,
            ..
        }) = &observed.vm
        else {
            return Ok(());
        };
        let failed = update("unlock the VM");
        let named = Key::new(
            key.namespace.as_str(),
            observed.snapshot.spec.source.name.as_str(),
        );
        let api = self.vm_api(&key.namespace);
        // The lock is the last to go, so that a later process continues. A VM that is being deleted may
        // go with the finalizer.
        let others = all.iter().filter(|one| *one != finalizers::SNAPSHOT_SOURCE);
        let others: Vec<&String> = others.collect();
        let mut version = json!(resource_version);
        if others.len() < all.len() {
            let body = json!({"metadata": {"resourceVersion": version, "finalizers": others}});
            let written = merge(&api, MANAGER, &named, &body).await.map_err(&failed)?;
            version = json!(written.metadata.resource_version);
            failpoints::after("virt-controller/snapshot/unprotect-vm");
        }
        let body = json!({
            "metadata": {"resourceVersion": version},
            "status": {"snapshotInProgress": null},
        });
        match merge_status(&api, MANAGER, &named, &body).await {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(failed(error)),
        }
    }

    async fn create_content(&self, key: &Key, observed: &Observed) -> Result<(), SnapshotError> {
        let Some(vm) = &observed.vm else {
            return Ok(());
        };
        let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &key.namespace);
        let mut backups = Vec::new();
        for disk in &observed.disks {
            if !matches!(disk.state, DiskState::Copyable(_)) {
                continue;
            }
            let claim = claims.get(&disk.claim).await;
            let mut claim = claim.map_err(|source| SnapshotError::Read {
                what: "a claim",
                source: Box::new(source),
            })?;
            claim.metadata.managed_fields = None;
            backups.push(json!({
                "volumeName": disk.volume,
                "persistentVolumeClaim": {"metadata": claim.metadata, "spec": claim.spec},
                "volumeSnapshotName": volume_snapshot_name(&observed.snapshot, &disk.volume),
            }));
        }
        let mut source = vm.object.clone();
        source["spec"] = vm.spec.clone();
        let name = content_name(&observed.snapshot);
        let body = json!({
            "apiVersion": VirtualMachineSnapshotContent::API_VERSION,
            "kind": VirtualMachineSnapshotContent::KIND,
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "finalizers": [finalizers::SNAPSHOT_CONTENT],
            },
            "spec": {
                "virtualMachineSnapshotName": key.name,
                "source": {"virtualMachine": {
                    "metadata": source["metadata"],
                    "spec": source["spec"],
                    "status": source["status"],
                }},
                "volumeBackups": backups,
            },
        });
        let named = Key::new(key.namespace.as_str(), name.as_str());
        match create(&self.contents(key), MANAGER, &named, &body).await {
            Ok(_) => {
                self.publish(
                    observed,
                    EventType::Normal,
                    Reason::SuccessfulVirtualMachineSnapshotContentCreate,
                    format!("Created VirtualMachineSnapshotContent {name}"),
                );
                Ok(())
            }
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(source) => Err(SnapshotError::Create {
                what: "the content",
                source,
            }),
        }
    }

    /// The record first, so that a later process releases the guest.
    async fn pause(
        &self,
        key: &Key,
        observed: &Observed,
        hold: &Hold,
    ) -> Result<Snapshot, SnapshotError> {
        let after = self.note_hold(key, observed, Some(hold)).await?;
        let guest = Key::new(
            key.namespace.as_str(),
            observed.snapshot.spec.source.name.as_str(),
        );
        match self.guest_verb(&guest, "pause").await {
            // Paused already, by an earlier attempt, or not running any more: the next observation shows which.
            Ok(()) | Err(SubresourceError::Refused { .. }) => Ok(after),
            Err(source) => Err(SnapshotError::Guest {
                tried: "pause",
                source,
            }),
        }
    }

    /// Holds the guest, and copies within the hold. Both may be repeated.
    async fn copy(
        &self,
        key: &Key,
        observed: &Observed,
        hold: &Hold,
    ) -> Result<Option<Snapshot>, SnapshotError> {
        let mut after = None;
        if observed.hold().as_ref() != Some(hold) {
            after = Some(self.note_hold(key, observed, Some(hold)).await?);
        }
        let guest = Key::new(
            key.namespace.as_str(),
            observed.snapshot.spec.source.name.as_str(),
        );
        // In other ways it is held already.
        if hold.by == By::Agent {
            let left = hold.until - observed.now.as_second();
            let body = json!({"unfreezeTimeout": format!("{}s", left.max(1))});
            let frozen = subresources::put(&self.client, Of::Vmi, &guest, "freeze", &body);
            if let Err(error) = frozen.await {
                let note = format!(
                    "the guest agent did not freeze the guest, which is paused instead: {}",
                    error_chain(&error)
                );
                self.publish(observed, EventType::Warning, Reason::FreezeError, note);
                let pause = Hold {
                    by: By::Pause,
                    since: observed.now.as_second(),
                    agent_failed: true,
                    ..hold.clone()
                };
                let paused = self.note_hold(key, observed, Some(&pause)).await?;
                return Ok(Some(paused));
            }
        }
        failpoints::after("virt-controller/snapshot/hold");
        let copies = observed.content.iter().flat_map(|content| &content.copies);
        for copy in copies.filter(|copy| copy.object.is_none()) {
            self.create_volume_snapshot(key, observed, (&copy.name, &copy.claim))
                .await?;
        }
        Ok(after)
    }

    async fn create_volume_snapshot(
        &self,
        key: &Key,
        observed: &Observed,
        (name, claim): (&str, &str),
    ) -> Result<(), SnapshotError> {
        let Some(content) = &observed.content else {
            return Ok(());
        };
        let failed = |what, source| SnapshotError::Create { what, source };
        let claims = Api::<crate::view::Claim>::namespaced(self.client.clone(), &key.namespace);
        let found = claims.get_opt(claim).await;
        let found = found.map_err(|source| SnapshotError::Read {
            what: "a claim",
            source: Box::new(source),
        })?;
        // Without a class the snapshotter chooses one, or reports why it cannot.
        let class = found.and_then(|found| self.classes.of(&found).ok());
        let metadata = &content.object.metadata;
        let body = json!({
            "apiVersion": VolumeSnapshot::API_VERSION,
            "kind": VolumeSnapshot::KIND,
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "labels": {
                    labels::SNAPSHOT_SOURCE_VM_NAME:
                        launcher_pod::label_value(&observed.snapshot.spec.source.name),
                    labels::SNAPSHOT_SOURCE_VM_NAMESPACE: key.namespace,
                },
                "ownerReferences": [{
                    "apiVersion": VirtualMachineSnapshotContent::API_VERSION,
                    "kind": VirtualMachineSnapshotContent::KIND,
                    "name": metadata.name, "uid": metadata.uid,
                    "controller": true,
                }],
            },
            "spec": {
                "source": {"persistentVolumeClaimName": claim},
                "volumeSnapshotClassName": class,
            },
        });
        let body = without_null_class(body);
        let api = Api::<VolumeSnapshot>::namespaced(self.client.clone(), &key.namespace);
        let named = Key::new(key.namespace.as_str(), name);
        match create(&api, MANAGER, &named, &body).await {
            Ok(_) => {
                failpoints::after("virt-controller/snapshot/create-volume-snapshot");
                let reason = Reason::SuccessfulVolumeSnapshotCreate;
                let note = format!("Created VolumeSnapshot {name}");
                self.publish(observed, EventType::Normal, reason, note);
                Ok(())
            }
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(source) => Err(failed("a volume snapshot", source)),
        }
    }

    async fn note_hold(
        &self,
        key: &Key,
        observed: &Observed,
        hold: Option<&Hold>,
    ) -> Result<Snapshot, SnapshotError> {
        let text = hold.map(|hold| json!(hold).to_string());
        // Without a version: only this controller writes the annotation.
        let body = json!({"metadata": {
            "uid": observed.snapshot.metadata.uid,
            "annotations": {ANNOTATION: text},
        }});
        let written = merge(&self.api(key), MANAGER, key, &body).await;
        let written: Snapshot = written.map_err(update("record how the guest is held"))?;
        self.snapshots
            .wrote(observed.snapshot.as_ref(), written.clone());
        if hold.is_some() {
            failpoints::after("virt-controller/snapshot/note-hold");
        }
        Ok(written)
    }

    async fn note_created(&self, key: &Key, observed: &Observed) -> Result<(), SnapshotError> {
        let Some(content) = &observed.content else {
            return Ok(());
        };
        let copies: Vec<Value> = content
            .copies
            .iter()
            .map(|copy| {
                let status = copy.object.as_ref().and_then(|one| one.status.clone());
                let status = status.unwrap_or_default();
                json!({
                    "volumeSnapshotName": copy.name,
                    "creationTime": status.creation_time,
                    "readyToUse": status.ready_to_use,
                })
            })
            .collect();
        let now = k8s_openapi::apimachinery::pkg::apis::meta::v1::Time(observed.now);
        let body = json!({"status": {
            "creationTime": now,
            "readyToUse": content.copies.iter().all(super::observe::Copy::is_ready),
            "volumeSnapshotStatus": copies,
        }});
        let named = Key::new(key.namespace.as_str(), content_name(&observed.snapshot));
        let written = merge_status(&self.contents(key), MANAGER, &named, &body).await;
        written.map_err(update("record that all disks are copied"))?;
        Ok(())
    }

    async fn guest_verb(&self, guest: &Key, verb: &str) -> Result<(), SubresourceError> {
        subresources::put(&self.client, Of::Vmi, guest, verb, &json!({})).await
    }

    /// Lets the guest go on, and forgets the hold.
    async fn release(
        &self,
        key: &Key,
        observed: &Observed,
        hold: &Hold,
    ) -> Result<Snapshot, SnapshotError> {
        let guest = observed.guest.as_ref().filter(|guest| {
            hold.uid.is_empty() || guest.metadata.uid.as_deref() == Some(hold.uid.as_str())
        });
        if guest.is_some() {
            let named = Key::new(
                key.namespace.as_str(),
                observed.snapshot.spec.source.name.as_str(),
            );
            let verb = match hold.by {
                By::Agent => "unfreeze",
                By::Lock | By::User | By::Pause => "unpause",
            };
            match self.guest_verb(&named, verb).await {
                Ok(()) => {}
                // It is not paused or frozen any more.
                Err(SubresourceError::Refused { message })
                    if !message.contains(STILL_LOCKED) && is_settled(observed, hold) => {}
                Err(source) => {
                    return Err(SnapshotError::Guest {
                        tried: "release",
                        source,
                    });
                }
            }
            if hold.agent_failed
                && let Err(error) = self.guest_verb(&named, "unfreeze").await
            {
                // A late freeze ends by itself, at the time that the request named.
                let error = error_chain(&error);
                tracing::warn!(snapshot = %key, error, "a guest that may be frozen was not thawed");
            }
            failpoints::after("virt-controller/snapshot/release-guest");
        }
        self.note_hold(key, observed, None).await
    }

    /// Returns the snapshot if its status has changed.
    pub(super) async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
        error: Option<&SnapshotError>,
    ) -> Result<Option<Snapshot>, SnapshotError> {
        let failed;
        let progress = match (error, &plan.progress) {
            (
                Some(SnapshotError::Update {
                    source: WriteError::Conflict { .. },
                    ..
                }),
                _,
            ) => {
                return Ok(None);
            }
            // The guest does not wait for what the server would refuse again.
            (
                Some(
                    error @ SnapshotError::Create {
                        source: WriteError::Refused { .. },
                        ..
                    },
                ),
                Progress::Copying,
            ) if observed.hold().is_some_and(|hold| hold.is_ours()) => {
                failed = Progress::Failed {
                    reason: error.reason(),
                    message: error_chain(error),
                };
                &failed
            }
            (Some(error), Progress::Copying) => {
                failed = Progress::Waits {
                    reason: error.reason(),
                    message: error_chain(error),
                };
                &failed
            }
            (_, progress) => progress,
        };
        let status = status::render(observed, progress);
        let snapshot = observed.snapshot.as_ref();
        let Some(fragment) = status_fragment(snapshot, snapshot.status.as_ref(), key, &status)
        else {
            return Ok(None);
        };
        if let Progress::Failed { reason, message } | Progress::Waits { reason, message } = progress
        {
            let before = snapshot
                .status
                .as_ref()
                .and_then(|status| status.error.as_ref());
            if before.and_then(|error| error.message.as_deref()) != Some(message.as_str()) {
                self.publish(observed, EventType::Warning, *reason, message.clone());
            }
        }
        match apply_reported(&self.api(key), &fragment, snapshot, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/snapshot/write-status");
                self.snapshots.wrote(snapshot, written.clone());
                Ok(Some(written))
            }
            Err(WriteError::NotFound { .. }) => Ok(None),
            Err(error) => Err(SnapshotError::Status(error)),
        }
    }

    fn publish(&self, observed: &Observed, kind: EventType, reason: Reason, note: String) {
        self.recorder
            .publish(observed.snapshot.as_ref(), kind, reason, note);
    }
}

/// Whether a guest whose release was refused is not held any more, as its VMI shows: the cause of a refusal may also
/// be an agent or a hypervisor that is busy.
pub(super) fn is_settled(observed: &Observed, hold: &Hold) -> bool {
    let now = observed.now.as_second();
    match hold.by {
        // A request to pause it may still be under way, or carried out and not shown yet.
        By::Pause => now >= hold.since.saturating_add(SETTLED_AFTER) && !is_paused(observed),
        // Without the agent, the launcher thaws it at the limit of the hold.
        By::Agent => now >= hold.until || !has_agent(observed),
        By::Lock | By::User => true,
    }
}

fn without_null_class(mut body: Value) -> Value {
    if body["spec"]["volumeSnapshotClassName"].is_null()
        && let Some(spec) = body["spec"].as_object_mut()
    {
        spec.remove("volumeSnapshotClassName");
    }
    body
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::AddFinalizer => "virt-controller/snapshot/add-finalizer",
        Step::RemoveFinalizer => "virt-controller/snapshot/remove-finalizer",
        Step::Lock => "virt-controller/snapshot/lock",
        Step::Unlock => "virt-controller/snapshot/unlock",
        Step::CreateContent => "virt-controller/snapshot/create-content",
        Step::Pause(_) => "virt-controller/snapshot/pause",
        Step::Copy(_) => "virt-controller/snapshot/copy",
        Step::NoteCreated => "virt-controller/snapshot/note-created",
        Step::Release(_) => "virt-controller/snapshot/release",
        Step::DeleteContent => "virt-controller/snapshot/delete-content",
        Step::KeepContent => "virt-controller/snapshot/keep-content",
    }
}
