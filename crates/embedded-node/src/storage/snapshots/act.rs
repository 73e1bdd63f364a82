//! Performs the planned steps of snapshots and contents.

use std::sync::Arc;

use error_chain::error_chain;
use k8s_openapi::{
    api::core::v1::PersistentVolumeClaim, apimachinery::pkg::apis::meta::v1::ObjectMeta,
};
use kube::{Api, api::ListParams};
use kubevirt_api::{
    annotations::DEFAULT_SNAPSHOT_CLASS,
    volume_snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent},
};
use reasons::Reason;
use reconcile::{EventType, Key, Reconciler, Requeue, WriteError};
use serde_json::{Value, json};

use super::{
    super::{
        CLASS, PROVISIONER,
        act::{StorageError, blocking, with_finalizer, without_finalizer, write_status},
        claim,
    },
    CONTENT_PROTECTION, SNAPSHOT_PROTECTION,
    content::{self, Data, Owner},
    files::Files,
    is_wanted, plan, usage,
};
use crate::node::Shared;

/// Field manager of snapshots and contents.
const MANAGER: &str = "snapshot-controller";
/// More steps than any snapshot needs in one reconcile.
const MAX_STEPS: usize = 8;

/// Reconciles snapshots.
pub(super) struct Snapshotter(pub(super) Arc<Shared>);

/// Reconciles contents.
pub(super) struct Contents(pub(super) Arc<Shared>);

/// Creates the snapshot class, unless one of that name exists.
pub(super) async fn ensure_class(shared: &Shared) -> Result<(), WriteError> {
    let class = json!({
        "apiVersion": VolumeSnapshot::API_VERSION,
        "kind": "VolumeSnapshotClass",
        "metadata": {"name": CLASS, "annotations": {DEFAULT_SNAPSHOT_CLASS: "true"}},
        "driver": PROVISIONER,
        "deletionPolicy": "Delete",
    });
    let api = Api::<VolumeSnapshotClass>::all(shared.settings.client.clone());
    match reconcile::create(&api, MANAGER, &Key::new("", CLASS), &class).await {
        Ok(_) | Err(WriteError::AlreadyExists { .. } | WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

fn finalizers(metadata: &ObjectMeta, finalizers: &[String]) -> Value {
    json!({"metadata": {
        "uid": metadata.uid,
        "resourceVersion": metadata.resource_version,
        "finalizers": finalizers,
    }})
}

/// A status for a merge, which removes the last error.
fn whole(status: &impl serde::Serialize) -> Value {
    let mut status = json!(status);
    if status["error"].is_null() {
        status["error"] = Value::Null;
    }
    status
}

impl Reconciler for Snapshotter {
    const NAME: &'static str = "volume-snapshot";
    type Error = StorageError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, StorageError> {
        let snapshots = &self.0.storage.snapshots;
        let Some(snapshot) = snapshots.objects.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let mut snapshot = Arc::unwrap_or_clone(snapshot);
        for _ in 0..MAX_STEPS {
            let Some(step) = self.next(&snapshot) else {
                break;
            };
            let name = failpoint(&step);
            let after = self.act(key, &snapshot, step).await?;
            failpoints::after(name);
            match after {
                Some(after) => {
                    snapshots.objects.wrote(&snapshot, after.clone());
                    snapshot = after;
                }
                None => break,
            }
        }
        Ok(Requeue::OnChange)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        let snapshot = self.0.storage.snapshots.objects.get(key)?;
        snapshot.metadata.uid.clone()
    }
}

fn failpoint(step: &plan::Step) -> &'static str {
    use plan::Step;
    match step {
        Step::Protect => "embedded-node/snapshot/protect",
        Step::Unprotect => "embedded-node/snapshot/unprotect",
        Step::CreateContent(_) => "embedded-node/snapshot/create-content",
        Step::TakeContent => "embedded-node/snapshot/take-content",
        Step::DeleteContent => "embedded-node/snapshot/delete-content",
        Step::SetStatus(_) => "embedded-node/snapshot/show",
    }
}

impl Snapshotter {
    fn next(&self, snapshot: &VolumeSnapshot) -> Option<plan::Step> {
        let storage = &self.0.storage;
        let source = &snapshot.spec.source;
        let content = source
            .volume_snapshot_content_name
            .clone()
            .unwrap_or_else(|| plan::content_name(snapshot));
        let content = storage.snapshots.contents.get(&Key::new("", content));
        let namespace = snapshot.metadata.namespace.as_deref().unwrap_or_default();
        let claim = source
            .persistent_volume_claim_name
            .as_deref()
            .and_then(|name| storage.claims.get(&Key::new(namespace, name)));
        let volume = claim
            .as_deref()
            .and_then(claim::volume_name)
            .and_then(|name| storage.volumes.get(&Key::new("", name)));
        plan::next(&plan::Observed {
            snapshot,
            content: content.as_deref(),
            classes: &storage.snapshots.classes.list(),
            claim: claim.as_deref(),
            volume: volume.as_deref(),
            usage: usage(&self.0, snapshot),
            now: self.0.settings.clock.now(),
        })
    }

    /// The data is about to be deleted, and the cache may not have a claim that was just created; its event
    /// triggers the snapshot again.
    async fn is_wanted(&self, key: &Key, snapshot: &VolumeSnapshot) -> Result<bool, StorageError> {
        let client = self.0.settings.client.clone();
        let claims = Api::<PersistentVolumeClaim>::namespaced(client, &key.namespace);
        let found = claims.list(&ListParams::default()).await;
        let found = found.map_err(|source| StorageError::ReadClaims {
            snapshot: key.to_string(),
            source: Box::new(source),
        })?;
        Ok(found.iter().any(|claim| is_wanted(claim, snapshot)))
    }

    /// Returns the changed snapshot; `None` when the next step waits for a change from outside.
    async fn act(
        &self,
        key: &Key,
        snapshot: &VolumeSnapshot,
        step: plan::Step,
    ) -> Result<Option<VolumeSnapshot>, StorageError> {
        use plan::Step;
        let client = &self.0.settings.client;
        let api = Api::<VolumeSnapshot>::namespaced(client.clone(), &key.namespace);
        let contents = Api::<VolumeSnapshotContent>::all(client.clone());
        let metadata = &snapshot.metadata;
        match step {
            Step::Protect => {
                let list = with_finalizer(metadata.finalizers.as_ref(), SNAPSHOT_PROTECTION);
                let body = finalizers(metadata, &list);
                Ok(Some(reconcile::merge(&api, MANAGER, key, &body).await?))
            }
            Step::Unprotect => {
                let list = without_finalizer(metadata.finalizers.as_ref(), SNAPSHOT_PROTECTION);
                let body = finalizers(metadata, &list);
                let _gone: VolumeSnapshot = reconcile::merge(&api, MANAGER, key, &body).await?;
                Ok(None)
            }
            Step::CreateContent(new) => {
                let body = content_object(snapshot, &new);
                let named = Key::new("", plan::content_name(snapshot));
                match reconcile::create(&contents, MANAGER, &named, &body).await {
                    Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
            Step::TakeContent => {
                let name = snapshot.spec.source.volume_snapshot_content_name.clone();
                let named = Key::new("", name.unwrap_or_default());
                let body = json!({"spec": {"volumeSnapshotRef": {"uid": metadata.uid}}});
                reconcile::merge(&contents, MANAGER, &named, &body).await?;
                Ok(None)
            }
            Step::DeleteContent => {
                if self.is_wanted(key, snapshot).await? {
                    return Ok(None);
                }
                let named = Key::new("", plan::content_name(snapshot));
                let named = snapshot
                    .spec
                    .source
                    .volume_snapshot_content_name
                    .as_ref()
                    .map_or(named, |name| Key::new("", name.as_str()));
                reconcile::delete_named(&contents, &named).await?;
                Ok(None)
            }
            Step::SetStatus(status) => {
                let before = snapshot.status.as_ref().and_then(|s| s.error.clone());
                if let Some(error) = &status.error
                    && before.is_none_or(|before| before.message != error.message)
                {
                    self.0.storage.recorder.publish(
                        snapshot,
                        EventType::Warning,
                        Reason::SnapshotCreationFailed,
                        error.message.clone().unwrap_or_default(),
                    );
                }
                Ok(Some(write_status(&api, key, whole(&status)).await?))
            }
        }
    }
}

fn content_object(snapshot: &VolumeSnapshot, new: &plan::NewContent) -> Value {
    json!({
        "apiVersion": VolumeSnapshotContent::API_VERSION,
        "kind": VolumeSnapshotContent::KIND,
        "metadata": {
            "name": plan::content_name(snapshot),
            "finalizers": [CONTENT_PROTECTION],
        },
        "spec": {
            "deletionPolicy": new.deletion_policy,
            "driver": PROVISIONER,
            "source": {"volumeHandle": new.volume},
            "sourceVolumeMode": new.mode,
            "volumeSnapshotClassName": new.class,
            "volumeSnapshotRef": {
                "apiVersion": VolumeSnapshot::API_VERSION,
                "kind": VolumeSnapshot::KIND,
                "namespace": snapshot.metadata.namespace,
                "name": snapshot.metadata.name,
                "uid": snapshot.metadata.uid,
                "resourceVersion": snapshot.metadata.resource_version,
            },
        },
    })
}

impl Reconciler for Contents {
    const NAME: &'static str = "volume-snapshot-content";
    type Error = StorageError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, StorageError> {
        let contents = &self.0.storage.snapshots.contents;
        let Some(content) = contents.get(key) else {
            return Ok(Requeue::OnChange);
        };
        if content.spec.driver != PROVISIONER {
            return Ok(Requeue::OnChange);
        }
        let mut content = Arc::unwrap_or_clone(content);
        for _ in 0..MAX_STEPS {
            let owner = self.owner(&content).await?;
            let now = self.0.settings.clock.now();
            let step = match self.data(&content).await {
                Ok(data) => content::next(&content, owner, &data, now),
                Err(error) => content::failed(&content, &error_chain(&error), now),
            };
            let Some(step) = step else {
                break;
            };
            let name = content_failpoint(&step);
            let after = self.act(key, &content, step).await?;
            failpoints::after(name);
            match after {
                Some(after) => {
                    contents.wrote(&content, after.clone());
                    content = after;
                }
                None => break,
            }
        }
        Ok(Requeue::OnChange)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        let content = self.0.storage.snapshots.contents.get(key)?;
        content.metadata.uid.clone()
    }
}

fn content_failpoint(step: &content::Step) -> &'static str {
    use content::Step;
    match step {
        Step::Protect => "embedded-node/snapshot/protect-content",
        Step::Unprotect => "embedded-node/snapshot/unprotect-content",
        Step::Take(_) => "embedded-node/snapshot/take",
        Step::Delete => "embedded-node/snapshot/delete-orphan",
        Step::Erase => "embedded-node/snapshot/erase",
        Step::SetStatus(_) => "embedded-node/snapshot/show-content",
    }
}

impl Contents {
    /// The snapshot of the content. The data may be deleted, so a snapshot that the cache does not have
    /// is read from the API server.
    async fn owner(&self, content: &VolumeSnapshotContent) -> Result<Owner, StorageError> {
        let reference = &content.spec.volume_snapshot_ref;
        let Some(uid) = reference.uid.as_deref().filter(|uid| !uid.is_empty()) else {
            return Ok(Owner::Unknown);
        };
        let key = Key::new(
            reference.namespace.clone().unwrap_or_default(),
            reference.name.clone().unwrap_or_default(),
        );
        let is_it = |one: &VolumeSnapshot| one.metadata.uid.as_deref() == Some(uid);
        let known = self.0.storage.snapshots.objects.get(&key);
        let snapshot = if let Some(snapshot) = known.filter(|one| is_it(one)) {
            Some(Arc::unwrap_or_clone(snapshot))
        } else {
            let client = self.0.settings.client.clone();
            let api = Api::<VolumeSnapshot>::namespaced(client, &key.namespace);
            let found = api.get_opt(&key.name).await;
            found
                .map_err(|source| StorageError::ReadSnapshot {
                    snapshot: key.to_string(),
                    source: Box::new(source),
                })?
                .filter(is_it)
        };
        Ok(match snapshot {
            None => Owner::Gone,
            Some(one) if one.metadata.deletion_timestamp.is_some() => Owner::Deleting,
            Some(_) => Owner::There,
        })
    }

    async fn data(&self, content: &VolumeSnapshotContent) -> Result<Data, StorageError> {
        let handle = content::handle(content);
        let files = Files::of_node(&self.0.settings.root);
        let found = blocking("read the record of a snapshot", move || files.find(&handle)).await?;
        Ok(found.map_or(Data::Missing, Data::Complete))
    }

    async fn act(
        &self,
        key: &Key,
        content: &VolumeSnapshotContent,
        step: content::Step,
    ) -> Result<Option<VolumeSnapshotContent>, StorageError> {
        use content::Step;
        let api = Api::<VolumeSnapshotContent>::all(self.0.settings.client.clone());
        let metadata = &content.metadata;
        match step {
            Step::Protect => {
                let list = with_finalizer(metadata.finalizers.as_ref(), CONTENT_PROTECTION);
                let body = finalizers(metadata, &list);
                Ok(Some(reconcile::merge(&api, MANAGER, key, &body).await?))
            }
            Step::Unprotect => self.unprotect(&api, key, metadata).await,
            Step::Take(volume) => {
                self.take(&api, key, content, volume).await?;
                Ok(Some(content.clone()))
            }
            Step::Delete => {
                let uid = metadata.uid.clone().unwrap_or_default();
                reconcile::delete(&api, key, &uid, None).await?;
                Ok(None)
            }
            Step::Erase => {
                let (files, handle) = (
                    Files::of_node(&self.0.settings.root),
                    content::handle(content),
                );
                blocking("delete the data of a snapshot", move || {
                    files.remove(&handle)
                })
                .await?;
                failpoints::after("embedded-node/snapshot/erase-data");
                self.unprotect(&api, key, metadata).await
            }
            Step::SetStatus(status) => {
                let written = write_status(&api, key, whole(&status)).await?;
                Ok(Some(written))
            }
        }
    }

    async fn unprotect(
        &self,
        api: &Api<VolumeSnapshotContent>,
        key: &Key,
        metadata: &ObjectMeta,
    ) -> Result<Option<VolumeSnapshotContent>, StorageError> {
        let list = without_finalizer(metadata.finalizers.as_ref(), CONTENT_PROTECTION);
        let body = finalizers(metadata, &list);
        let _gone: VolumeSnapshotContent = reconcile::merge(api, MANAGER, key, &body).await?;
        Ok(None)
    }

    /// Copies the volume. A failure is shown in the status and retried.
    async fn take(
        &self,
        api: &Api<VolumeSnapshotContent>,
        key: &Key,
        content: &VolumeSnapshotContent,
        volume: String,
    ) -> Result<(), StorageError> {
        let (files, handle) = (
            Files::of_node(&self.0.settings.root),
            content::handle(content),
        );
        let now = self.0.settings.clock.now();
        let nanos = i64::try_from(now.as_nanosecond()).unwrap_or(i64::MAX);
        let copied = blocking("copy a volume", move || files.take(&handle, &volume, nanos)).await;
        let Err(error) = copied else {
            return Ok(());
        };
        if let Some(content::Step::SetStatus(status)) =
            content::failed(content, &error_chain(&error), now)
        {
            let written = write_status(api, key, whole(&status)).await?;
            self.0.storage.snapshots.contents.wrote(content, written);
        }
        Err(error)
    }
}
