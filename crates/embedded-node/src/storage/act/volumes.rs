//! The reconciler of persistent volumes.

use std::sync::Arc;

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use reasons::Reason;
use reconcile::{EventType, Key, Reconciler, Requeue};
use serde_json::json;

use super::{
    super::{
        VOLUME_PROTECTION,
        backing::Backing,
        claim,
        volume::{self, ClaimState},
    },
    MANAGER, MAX_STEPS, StorageError, blocking, with_finalizer, without_finalizer, write_status,
};
use crate::node::Shared;

/// Reconciles volumes.
pub(in super::super) struct Volumes(pub(in super::super) Arc<Shared>);

impl Reconciler for Volumes {
    const NAME: &'static str = "persistent-volume";
    type Error = StorageError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, StorageError> {
        let storage = &self.0.storage;
        let Some(volume) = storage.volumes.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let mut volume = Arc::unwrap_or_clone(volume);
        for _ in 0..MAX_STEPS {
            let claim = self.claim_of(&volume).await?;
            let Some(step) = volume::next(&volume, claim) else {
                break;
            };
            let name = failpoint(&step);
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

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.0.storage.volumes.get(key)?.metadata.uid.clone()
    }
}

fn failpoint(step: &volume::Step) -> Option<&'static str> {
    use volume::Step;
    Some(match step {
        Step::Protect => "embedded-node/storage/protect-volume",
        Step::Unprotect => "embedded-node/storage/unprotect-volume",
        Step::SetPhase(_) => "embedded-node/storage/show-volume",
        Step::Reclaim => "embedded-node/storage/reclaim",
        Step::Erase => "embedded-node/storage/erase",
        Step::Fail(_) => return None,
    })
}

impl Volumes {
    async fn claim_of(&self, volume: &PersistentVolume) -> Result<ClaimState, StorageError> {
        let spec = volume.spec.as_ref();
        let Some(reference) = spec.and_then(|spec| spec.claim_ref.as_ref()) else {
            return Ok(ClaimState::Gone);
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
            // The data may be deleted: ask the API server, as the watch may lag behind.
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
                ClaimState::Bound
            }
            Some(_) => ClaimState::Pending,
            None => ClaimState::Gone,
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
            Step::Protect => Ok(Some(
                write(with_finalizer(finalizers, VOLUME_PROTECTION)).await?,
            )),
            Step::Unprotect => {
                write(without_finalizer(finalizers, VOLUME_PROTECTION)).await?;
                Ok(None)
            }
            Step::SetPhase(phase) => Ok(Some(
                write_status(&api, key, json!({"phase": phase})).await?,
            )),
            Step::Reclaim => {
                self.erase(key).await?;
                let uid = object.metadata.uid.clone().unwrap_or_default();
                reconcile::delete(&api, key, &uid, None).await?;
                // A finalizer may still hold the object: the watch delivers its end.
                Ok(None)
            }
            Step::Erase => {
                self.erase(key).await?;
                write(without_finalizer(finalizers, VOLUME_PROTECTION)).await?;
                Ok(None)
            }
            Step::Fail(message) => {
                let recorder = &self.0.storage.recorder;
                let kind = EventType::Warning;
                recorder.publish(object, kind, Reason::VolumeFailedDelete, message.clone());
                let status = json!({"phase": "Failed", "message": message});
                Ok(Some(write_status(&api, key, status).await?))
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
