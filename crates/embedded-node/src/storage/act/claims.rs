//! The reconciler of persistent volume claims.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use reconcile::{Key, Reconciler, Requeue, WriteError};
use serde_json::{Value, json};

use super::{
    super::{
        CLAIM_PROTECTION, PROVISIONER, Storage,
        claim::{self, Consumer, Event, Usage},
        lookup::{claim_names, ephemeral_name},
    },
    BOUND_BY_US, MANAGER, MAX_STEPS, StorageError,
    provision::reference,
    with_finalizer, without_finalizer, write_status,
};
use crate::{node::Shared, schedule};

/// Reconciles claims.
pub(in super::super) struct Claims(pub(in super::super) Arc<Shared>);

impl Reconciler for Claims {
    const NAME: &'static str = "persistent-volume-claim";
    type Error = StorageError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, StorageError> {
        let storage = &self.0.storage;
        let Some(claim) = storage.claims.get(key) else {
            storage.published.lock().remove(key);
            self.create_ephemeral(key).await?;
            return Ok(Requeue::OnChange);
        };
        let mut claim = Arc::unwrap_or_clone(claim);
        for _ in 0..MAX_STEPS {
            let Some(step) = self.next(key, &claim) else {
                storage.published.lock().remove(key);
                break;
            };
            let name = failpoint(&step);
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

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.0.storage.claims.get(key)?.metadata.uid.clone()
    }
}

/// Steps that only publish have none.
fn failpoint(step: &claim::Step) -> Option<&'static str> {
    use claim::Step;
    Some(match step {
        Step::Protect => "embedded-node/storage/protect-claim",
        Step::Unprotect => "embedded-node/storage/unprotect-claim",
        Step::SetClass(_) => "embedded-node/storage/set-class",
        Step::SelectNode => "embedded-node/storage/select-node",
        Step::Provision { .. } => "embedded-node/storage/provision",
        Step::TakeVolume(_) => "embedded-node/storage/take-volume",
        Step::Bind(_) => "embedded-node/storage/bind",
        Step::SetBound(_) => "embedded-node/storage/show-bound",
        Step::SetLost(_) | Step::Publish(_) => return None,
    })
}

/// Pods that use a claim.
pub(super) struct Users {
    consumer: Consumer,
    pub(super) usage: Usage,
}

impl Claims {
    fn next(&self, key: &Key, claim: &PersistentVolumeClaim) -> Option<claim::Step> {
        let (volumes, classes) = (self.0.storage.volumes.list(), self.0.storage.classes.list());
        let users = self.users(key);
        claim::next(&claim::Observed {
            claim,
            volumes: &volumes,
            classes: &classes,
            consumer: users.consumer,
            usage: users.usage,
            node: &self.0.settings.node_name,
        })
    }

    /// The pods that use the claim or wait for it.
    pub(super) fn users(&self, key: &Key) -> Users {
        let shared = &self.0;
        let node = Key::new("", shared.settings.node_name.as_str());
        let node = shared.node.get(&node);
        let mut users = Users {
            consumer: Consumer::None,
            usage: Usage::Unused,
        };
        for pod in shared.pods.list() {
            let uses_claim = pod.metadata.namespace.as_deref() == Some(key.namespace.as_str())
                && claim_names(&pod).any(|(_, name)| name == key.name);
            if !uses_claim {
                continue;
            }
            let bound = pod.spec.as_ref().is_some_and(|s| s.node_name.is_some());
            if bound {
                users.usage = Usage::InUse;
            }
            let fits = schedule::is_ours_to_bind(&pod)
                && node
                    .as_ref()
                    .is_some_and(|node| schedule::obstacle(&pod, node).is_none());
            if pod.metadata.deletion_timestamp.is_none() && (bound || fits) {
                users.consumer = Consumer::Waiting;
            }
        }
        users
    }

    /// Returns the changed claim; `None` when the next step waits for a change from outside.
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
                let finalizers =
                    with_finalizer(claim.metadata.finalizers.as_ref(), CLAIM_PROTECTION);
                write(json!({"metadata": {"finalizers": finalizers}})).await?
            }
            Step::Unprotect => {
                let finalizers =
                    without_finalizer(claim.metadata.finalizers.as_ref(), CLAIM_PROTECTION);
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
            Step::Provision { class, mode, data } => {
                self.provision(key, claim, &class, mode, &data).await?;
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
            Step::SetBound(name) => self.set_bound(key, &name).await?,
            Step::SetLost(event) => {
                self.publish(key, claim, event);
                self.write_status(key, json!({"phase": "Lost"})).await?
            }
            Step::Publish(event) => {
                self.publish(key, claim, event);
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

    async fn write_status(
        &self,
        key: &Key,
        status: Value,
    ) -> Result<PersistentVolumeClaim, WriteError> {
        write_status(&self.api(key), key, status).await
    }

    fn api(&self, key: &Key) -> Api<PersistentVolumeClaim> {
        Api::namespaced(self.0.settings.client.clone(), &key.namespace)
    }

    /// Publishes an event once, until the next one differs.
    pub(super) fn publish(&self, key: &Key, claim: &PersistentVolumeClaim, event: Event) {
        let Storage {
            published,
            recorder,
            ..
        } = &self.0.storage;
        let before = published.lock().insert(key.clone(), event.clone());
        if before.as_ref() != Some(&event) {
            recorder.publish(claim, event.kind, event.reason, event.message);
            // The conditions of waiting pods show the message.
            self.0.node_changed.send_replace(());
        }
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

    async fn set_bound(
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
        Ok(self.write_status(key, status).await?)
    }

    /// Creates the claim of a pod's ephemeral volume.
    async fn create_ephemeral(&self, key: &Key) -> Result<(), StorageError> {
        for pod in self.0.pods.list() {
            if pod.metadata.namespace.as_deref() != Some(key.namespace.as_str())
                || pod.metadata.deletion_timestamp.is_some()
            {
                continue;
            }
            let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
            let template = volumes
                .filter(|one| ephemeral_name(&pod, &one.name) == key.name)
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
