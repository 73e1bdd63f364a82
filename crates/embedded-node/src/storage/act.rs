//! Carries out what is decided for claims and volumes.

use std::{io, sync::Arc};

use error_chain::error_chain;
use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim},
    storage::v1::StorageClass,
};
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use kubevirt_api::quantity::Amount;
use reasons::Reason;
use reconcile::{EventType, Key, ReconcileError, Reconciler, Requeue, Retry, WriteError};
use serde_json::{Value, json};

use super::{
    CLAIM_PROTECTION, CLASS, PROVISIONER, Storage, VOLUME_PROTECTION,
    backing::{Backing, BackingError, Mode, whole_blocks},
    claim::{self, Consumer, Note, Usage},
    in_use,
    lookup::claim_names,
    volume, volume_name,
};
use crate::{node::Shared, schedule};

const MANAGER: &str = "persistentvolume-controller";
const BOUND_BY_US: &str = "pv.kubernetes.io/bound-by-controller";
/// More than the longest way of a claim from new to bound.
const MOST_STEPS: usize = 12;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Backing(#[from] BackingError),
    #[error("{tried}")]
    Disk {
        tried: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("read the claim of volume {volume}")]
    Read {
        volume: String,
        #[source]
        source: Box<kube::Error>,
    },
}

impl ReconcileError for StorageError {
    fn reason(&self) -> Reason {
        match self {
            Self::Write(error) => error.reason(),
            Self::Backing(_) => Reason::ProvisioningFailed,
            Self::Disk { .. } => Reason::VolumeFailedDelete,
            Self::Read { .. } => Reason::ServerUnavailable,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Write(error) => error.retry(),
            _ => Retry::BackOff,
        }
    }
}

/// Makes the class that claims get that name none, unless somebody made one of that name.
pub(super) async fn ensure_class(shared: &Shared) -> Result<(), WriteError> {
    let class = json!({
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "WaitForFirstConsumer",
        "allowVolumeExpansion": false,
    });
    let api = Api::<StorageClass>::all(shared.settings.client.clone());
    match reconcile::create(&api, MANAGER, &Key::new("", CLASS), &class).await {
        Ok(_) | Err(WriteError::AlreadyExists { .. } | WriteError::Conflict { .. }) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Finishes what an earlier process left half done.
pub(super) async fn take_up(shared: &Shared) {
    let backing = Backing::of_node(&shared.settings.root);
    let claims = shared.storage.claims.list();
    let claimed: Vec<String> = claims
        .iter()
        .filter_map(|claim| claim.metadata.uid.as_deref().map(volume_name))
        .collect();
    let volumes = shared.storage.volumes.list();
    let known: Vec<String> = volumes
        .iter()
        .filter_map(|volume| volume.metadata.name.clone())
        .collect();
    let root = shared.settings.root.clone();
    let work = move || {
        in_use::sweep(&root)?;
        backing.sweep()?;
        for name in backing.unconfirmed() {
            if known.contains(&name) {
                backing.confirm(&name)?;
            } else if !claimed.contains(&name) {
                backing.remove(&name)?;
            }
        }
        Ok(())
    };
    if let Err(error) = blocking("clean up after an earlier process", work).await {
        let error = error_chain(&error);
        tracing::warn!(error, "leftovers of volumes cannot be removed");
    }
}

async fn blocking<T: Send + 'static>(
    tried: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StorageError> {
    tokio::task::spawn_blocking(work)
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|source| StorageError::Disk { tried, source })
}

/// Drives claims.
pub(super) struct Claims(pub(super) Arc<Shared>);

impl Reconciler for Claims {
    const NAME: &'static str = "persistent-volume-claim";
    type Error = StorageError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, StorageError> {
        let storage = &self.0.storage;
        let Some(claim) = storage.claims.get(key) else {
            storage.said.lock().remove(key);
            self.make_ephemeral(key).await?;
            return Ok(Requeue::OnChange);
        };
        let mut claim = Arc::unwrap_or_clone(claim);
        for _ in 0..MOST_STEPS {
            let Some(step) = self.next(key, &claim) else {
                storage.said.lock().remove(key);
                break;
            };
            let name = claim_place(&step);
            let after = self.act(key, &claim, step).await?;
            if let Some(name) = name {
                failpoints::after(name);
            }
            match after {
                Some(after) => {
                    storage.claims.wrote(&claim, after.clone());
                    claim = after;
                }
                None => break,
            }
        }
        Ok(Requeue::OnChange)
    }
}

/// Where nothing is said that others did.
fn claim_place(step: &claim::Step) -> Option<&'static str> {
    use claim::Step;
    Some(match step {
        Step::Protect => "embedded-node/storage/protect-claim",
        Step::Unprotect => "embedded-node/storage/unprotect-claim",
        Step::SetClass(_) => "embedded-node/storage/set-class",
        Step::SelectNode => "embedded-node/storage/select-node",
        Step::Provision { .. } => "embedded-node/storage/provision",
        Step::TakeVolume(_) => "embedded-node/storage/take-volume",
        Step::Bind(_) => "embedded-node/storage/bind",
        Step::ShowBound(_) => "embedded-node/storage/show-bound",
        Step::ShowLost(..) | Step::Say(_) => return None,
    })
}

impl Claims {
    fn next(&self, key: &Key, claim: &PersistentVolumeClaim) -> Option<claim::Step> {
        let (volumes, classes) = (self.0.storage.volumes.list(), self.0.storage.classes.list());
        let (has_consumer, usage) = self.pods(key);
        claim::next(&claim::Seen {
            claim,
            volumes: &volumes,
            classes: &classes,
            has_consumer,
            usage,
            node: &self.0.settings.node_name,
        })
    }

    /// What the pods that name the claim mean for it.
    fn pods(&self, key: &Key) -> (Consumer, Usage) {
        let shared = &self.0;
        let node = Key::new("", shared.settings.node_name.as_str());
        let node = shared.node.get(&node);
        let (mut consumer, mut usage) = (Consumer::None, Usage::Unused);
        for pod in shared.pods.list() {
            let names_it = pod.metadata.namespace.as_deref() == Some(key.namespace.as_str())
                && claim_names(&pod).any(|(_, name)| name == key.name);
            if !names_it {
                continue;
            }
            let bound = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
            if bound {
                usage = Usage::InUse;
            }
            let fits = schedule::is_ours_to_bind(&pod)
                && node
                    .as_ref()
                    .is_some_and(|node| schedule::obstacle(&pod, node).is_none());
            if pod.metadata.deletion_timestamp.is_none() && (bound || fits) {
                consumer = Consumer::Waiting;
            }
        }
        (consumer, usage)
    }

    /// The claim afterwards; none when there is nothing to look at until something changes.
    async fn act(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        step: claim::Step,
    ) -> Result<Option<PersistentVolumeClaim>, StorageError> {
        use claim::Step;
        let write = |body: Value| self.write(key, claim, body);
        let after = match step {
            Step::Protect => {
                let finalizers = with(claim.metadata.finalizers.as_ref(), CLAIM_PROTECTION);
                write(json!({"metadata": {"finalizers": finalizers}})).await?
            }
            Step::Unprotect => {
                let finalizers = without(claim.metadata.finalizers.as_ref(), CLAIM_PROTECTION);
                write(json!({"metadata": {"finalizers": finalizers}})).await?;
                return Ok(None);
            }
            Step::SetClass(class) => write(json!({"spec": {"storageClassName": class}})).await?,
            Step::SelectNode => {
                let body = json!({"metadata": {"annotations": {
                    claim::SELECTED_NODE: self.0.settings.node_name,
                    "volume.kubernetes.io/storage-provisioner": PROVISIONER,
                    "volume.beta.kubernetes.io/storage-provisioner": PROVISIONER,
                }}});
                write(body).await?
            }
            Step::Provision { class, mode } => {
                self.provision(key, claim, &class, mode).await?;
                return Ok(None);
            }
            Step::TakeVolume(name) => {
                self.take_volume(claim, &name).await?;
                claim.clone()
            }
            Step::Bind(name) => {
                let body = json!({
                    "metadata": {"annotations": {
                        claim::BIND_COMPLETED: "yes", BOUND_BY_US: "yes",
                    }},
                    "spec": {"volumeName": name},
                });
                write(body).await?
            }
            Step::ShowBound(name) => self.show_bound(key, &name).await?,
            Step::ShowLost(reason, message) => {
                self.say(
                    key,
                    claim,
                    Note {
                        kind: EventType::Warning,
                        reason,
                        message,
                    },
                );
                self.show(key, json!({"phase": "Lost"})).await?
            }
            Step::Say(note) => {
                self.say(key, claim, note);
                return Ok(None);
            }
        };
        Ok(Some(after))
    }

    async fn write(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        mut body: Value,
    ) -> Result<PersistentVolumeClaim, WriteError> {
        body["metadata"]["uid"] = json!(claim.metadata.uid);
        body["metadata"]["resourceVersion"] = json!(claim.metadata.resource_version);
        reconcile::merge(&self.api(key), MANAGER, key, &body).await
    }

    async fn show(&self, key: &Key, status: Value) -> Result<PersistentVolumeClaim, WriteError> {
        show(&self.api(key), key, status).await
    }

    fn api(&self, key: &Key) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.0.settings.client.clone(), &key.namespace)
    }

    fn say(&self, key: &Key, claim: &PersistentVolumeClaim, note: Note) {
        let Storage { said, recorder, .. } = &self.0.storage;
        let before = said.lock().insert(key.clone(), note.clone());
        if before.as_ref() != Some(&note) {
            recorder.publish(claim, note.kind, note.reason, note.message);
            // Pods that wait for the claim say why.
            self.0.node_changed.send_replace(());
        }
    }

    async fn provision(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        class: &str,
        mode: Mode,
    ) -> Result<(), StorageError> {
        let normal = |reason: Reason, message: String| {
            let kind = EventType::Normal;
            self.0
                .storage
                .recorder
                .publish(claim, kind, reason, message);
        };
        let first = self.0.storage.said.lock().get(key).is_none_or(|note| {
            // A try that failed before is not announced again.
            note.reason != Reason::ProvisioningFailed
        });
        if first {
            let message =
                format!("External provisioner is provisioning volume for claim \"{key}\"");
            normal(Reason::Provisioning, message);
        }
        let name = volume_name(claim.metadata.uid.as_deref().unwrap_or_default());
        let bytes = whole_blocks(claim::requested(claim).map_or(0, Amount::units));
        let backing = Backing::of_node(&self.0.settings.root);
        let (maker, making) = (backing.clone(), name.clone());
        let made =
            tokio::task::spawn_blocking(move || making_one(&maker, &making, mode, bytes)).await;
        let made = match made {
            Ok(made) => made,
            Err(error) => Err(BackingError::Make {
                dir: self.0.settings.root.clone(),
                source: io::Error::other(error),
            }),
        };
        if let Err(error) = made {
            let message = format!(
                "failed to provision volume with StorageClass {class:?}: {}",
                error_chain(&error)
            );
            let kind = EventType::Warning;
            self.say(
                key,
                claim,
                Note {
                    kind,
                    reason: Reason::ProvisioningFailed,
                    message,
                },
            );
            return Err(error.into());
        }
        failpoints::after("embedded-node/storage/make-backing");
        let object = self.volume_object(claim, class, (&name, mode, bytes), &backing);
        let api = Api::<PersistentVolume>::all(self.0.settings.client.clone());
        let volume_key = Key::new("", name.as_str());
        match reconcile::create(&api, MANAGER, &volume_key, &object).await {
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        failpoints::after("embedded-node/storage/create-volume");
        let confirmed = name.clone();
        blocking("note that the volume is known", move || {
            backing.confirm(&confirmed)
        })
        .await?;
        normal(
            Reason::ProvisioningSucceeded,
            format!("Successfully provisioned volume {name}"),
        );
        Ok(())
    }

    fn volume_object(
        &self,
        claim: &PersistentVolumeClaim,
        class_name: &str,
        (name, mode, bytes): (&str, Mode, u64),
        backing: &Backing,
    ) -> Value {
        let class = self
            .0
            .storage
            .classes
            .get(&Key::new("", class_name))
            .map(Arc::unwrap_or_clone);
        let policy = class.and_then(|class| class.reclaim_policy);
        let spec = claim.spec.clone().unwrap_or_default();
        let mode = match mode {
            Mode::Filesystem => ("Filesystem", backing.path(name, mode)),
            Mode::Block => ("Block", backing.path(name, mode)),
        };
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "annotations": {volume::PROVISIONED_BY: PROVISIONER},
                "finalizers": [VOLUME_PROTECTION],
            },
            "spec": {
                "capacity": {"storage": capacity(claim, bytes)},
                "accessModes": spec.access_modes,
                "volumeMode": mode.0,
                "persistentVolumeReclaimPolicy": policy.as_deref().unwrap_or("Delete"),
                "storageClassName": class_name,
                "claimRef": reference(claim),
                "local": {"path": mode.1},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{
                    "key": "kubernetes.io/hostname", "operator": "In",
                    "values": [self.0.settings.node_name],
                }]}]}},
            },
        })
    }

    async fn take_volume(
        &self,
        claim: &PersistentVolumeClaim,
        name: &str,
    ) -> Result<(), StorageError> {
        let key = Key::new("", name);
        let Some(volume) = self.0.storage.volumes.get(&key) else {
            return Ok(());
        };
        let body = json!({
            "metadata": {
                "resourceVersion": volume.metadata.resource_version,
                "annotations": {BOUND_BY_US: "yes"},
            },
            "spec": {"claimRef": reference(claim)},
        });
        let api = Api::<PersistentVolume>::all(self.0.settings.client.clone());
        let after = reconcile::merge(&api, MANAGER, &key, &body).await?;
        self.0.storage.volumes.wrote(&volume, after);
        Ok(())
    }

    async fn show_bound(
        &self,
        key: &Key,
        name: &str,
    ) -> Result<PersistentVolumeClaim, StorageError> {
        let volume = self.0.storage.volumes.get(&Key::new("", name));
        let spec = volume.and_then(|volume| volume.spec.clone());
        let spec = spec.unwrap_or_default();
        let status = json!({
            "phase": "Bound", "accessModes": spec.access_modes, "capacity": spec.capacity,
        });
        Ok(self.show(key, status).await?)
    }

    /// Claims of volumes that live as long as their pod are made by us.
    async fn make_ephemeral(&self, key: &Key) -> Result<(), StorageError> {
        for pod in self.0.pods.list() {
            if pod.metadata.namespace.as_deref() != Some(key.namespace.as_str())
                || pod.metadata.deletion_timestamp.is_some()
            {
                continue;
            }
            let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
            let template = volumes
                .filter(|one| super::lookup::ephemeral_name(&pod, &one.name) == key.name)
                .find_map(|one| one.ephemeral.as_ref()?.volume_claim_template.clone());
            let Some(template) = template else { continue };
            let metadata = template.metadata.unwrap_or_default();
            let object = json!({
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": {
                    "name": key.name, "namespace": key.namespace,
                    "labels": metadata.labels, "annotations": metadata.annotations,
                    "ownerReferences": [{
                        "apiVersion": "v1", "kind": "Pod", "name": pod.metadata.name,
                        "uid": pod.metadata.uid, "controller": true, "blockOwnerDeletion": true,
                    }],
                },
                "spec": template.spec,
            });
            match reconcile::create(&self.api(key), MANAGER, key, &object).await {
                Ok(_) | Err(WriteError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
            failpoints::after("embedded-node/storage/create-ephemeral");
        }
        Ok(())
    }
}

/// One volume at a time is made: what is promised is counted before.
fn making_one(backing: &Backing, name: &str, mode: Mode, bytes: u64) -> Result<(), BackingError> {
    static MAKING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _one_at_a_time = MAKING.lock();
    backing.make(name, mode, bytes)
}

/// As it was asked for where that is what there is.
fn capacity(claim: &PersistentVolumeClaim, bytes: u64) -> Value {
    let exact = claim::requested(claim).is_some_and(|asked| asked.units() == bytes);
    let requests = claim.spec.as_ref().and_then(|s| s.resources.as_ref());
    let text = requests.and_then(|r| r.requests.as_ref()?.get("storage"));
    match text {
        Some(text) if exact => json!(text),
        _ => json!(bytes.to_string()),
    }
}

fn reference(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    })
}

fn with(finalizers: Option<&Vec<String>>, one: &str) -> Vec<String> {
    let mut all = finalizers.cloned().unwrap_or_default();
    all.push(one.to_owned());
    all
}

fn without(finalizers: Option<&Vec<String>>, one: &str) -> Vec<String> {
    let all = finalizers.into_iter().flatten();
    all.filter(|name| *name != one).cloned().collect()
}

async fn show<K>(api: &Api<K>, key: &Key, status: Value) -> Result<K, WriteError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&key.name, &parameters, &patch)
        .await
        .map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => WriteError::NotFound {
                what: key.to_string(),
            },
            _ => WriteError::Unavailable {
                what: key.to_string(),
                source: Box::new(error),
            },
        })
}

/// Drives volumes.
pub(super) struct Volumes(pub(super) Arc<Shared>);

impl Reconciler for Volumes {
    const NAME: &'static str = "persistent-volume";
    type Error = StorageError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, StorageError> {
        let storage = &self.0.storage;
        let Some(volume) = storage.volumes.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let mut volume = Arc::unwrap_or_clone(volume);
        for _ in 0..MOST_STEPS {
            let claim = self.claim_of(&volume).await?;
            let Some(step) = volume::next(&volume, claim) else {
                break;
            };
            let name = volume_place(&step);
            let after = self.act(key, &volume, step).await?;
            if let Some(name) = name {
                failpoints::after(name);
            }
            match after {
                Some(after) => {
                    storage.volumes.wrote(&volume, after.clone());
                    volume = after;
                }
                None => break,
            }
        }
        Ok(Requeue::OnChange)
    }
}

fn volume_place(step: &volume::Step) -> Option<&'static str> {
    use volume::Step;
    Some(match step {
        Step::Protect => "embedded-node/storage/protect-volume",
        Step::Unprotect => "embedded-node/storage/unprotect-volume",
        Step::Show(_) => "embedded-node/storage/show-volume",
        Step::Reclaim => "embedded-node/storage/reclaim",
        Step::Erase => "embedded-node/storage/erase",
        Step::Fail(_) => return None,
    })
}

impl Volumes {
    async fn claim_of(&self, volume: &PersistentVolume) -> Result<volume::Claim, StorageError> {
        let spec = volume.spec.as_ref();
        let Some(reference) = spec.and_then(|spec| spec.claim_ref.as_ref()) else {
            return Ok(volume::Claim::Gone);
        };
        let key = Key::new(
            reference.namespace.clone().unwrap_or_default(),
            reference.name.clone().unwrap_or_default(),
        );
        let ours = |claim: &PersistentVolumeClaim| claim.metadata.uid == reference.uid;
        let known = self.0.storage.claims.get(&key);
        let claim = if let Some(claim) = known.filter(|claim| ours(claim)) {
            Some(Arc::unwrap_or_clone(claim))
        } else {
            // Data hangs on the answer: what the watch has not said yet, the server may know.
            let client = self.0.settings.client.clone();
            let api = Api::<PersistentVolumeClaim>::namespaced(client, &key.namespace);
            let found = api.get_opt(&key.name).await;
            found
                .map_err(|source| StorageError::Read {
                    volume: volume.metadata.name.clone().unwrap_or_default(),
                    source: Box::new(source),
                })?
                .filter(ours)
        };
        Ok(match claim {
            Some(claim) if claim::volume_name(&claim) == volume.metadata.name.as_deref() => {
                volume::Claim::Bound
            }
            Some(_) => volume::Claim::Pending,
            None => volume::Claim::Gone,
        })
    }

    async fn act(
        &self,
        key: &Key,
        object: &PersistentVolume,
        step: volume::Step,
    ) -> Result<Option<PersistentVolume>, StorageError> {
        use volume::Step;
        let api = Api::<PersistentVolume>::all(self.0.settings.client.clone());
        let finalizers = object.metadata.finalizers.as_ref();
        let write = |finalizers: Vec<String>| {
            let body = json!({"metadata": {
                "resourceVersion": object.metadata.resource_version, "finalizers": finalizers,
            }});
            let api = api.clone();
            async move { reconcile::merge(&api, MANAGER, key, &body).await }
        };
        match step {
            Step::Protect => Ok(Some(write(with(finalizers, VOLUME_PROTECTION)).await?)),
            Step::Unprotect => {
                write(without(finalizers, VOLUME_PROTECTION)).await?;
                Ok(None)
            }
            Step::Show(phase) => Ok(Some(show(&api, key, json!({"phase": phase})).await?)),
            Step::Reclaim => {
                self.erase(key).await?;
                let uid = object.metadata.uid.clone().unwrap_or_default();
                reconcile::delete(&api, key, &uid, None).await?;
                // The answer may be the object still held by its finalizer: the watch tells.
                Ok(None)
            }
            Step::Erase => {
                self.erase(key).await?;
                write(without(finalizers, VOLUME_PROTECTION)).await?;
                Ok(None)
            }
            Step::Fail(message) => {
                let recorder = &self.0.storage.recorder;
                let kind = EventType::Warning;
                recorder.publish(object, kind, Reason::VolumeFailedDelete, message.clone());
                let status = json!({"phase": "Failed", "message": message});
                Ok(Some(show(&api, key, status).await?))
            }
        }
    }

    async fn erase(&self, key: &Key) -> Result<(), StorageError> {
        let (backing, name) = (Backing::of_node(&self.0.settings.root), key.name.clone());
        blocking("delete the data of a volume", move || backing.remove(&name)).await?;
        failpoints::after("embedded-node/storage/erase-data");
        Ok(())
    }
}
