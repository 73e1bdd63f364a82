//! Makes a volume for a claim: its backing on disk, then its object.

use std::{io, sync::Arc};

use error_chain::error_chain;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use kube::Api;
use kubevirt_api::quantity::Amount;
use reasons::Reason;
use reconcile::{EventType, Key, WriteError};
use serde_json::{Value, json};

use super::{
    super::{
        PROVISIONER, VOLUME_PROTECTION,
        backing::{Backing, BackingError, Mode, whole_blocks},
        claim::{self, Event},
        volume::PROVISIONED_BY,
        volume_name,
    },
    Claims, MANAGER, StorageError, blocking,
};

/// A volume to make.
#[derive(Debug, Clone)]
struct NewVolume {
    name: String,
    mode: Mode,
    bytes: u64,
}

impl Claims {
    /// Makes the volume's backing and its object.
    pub(super) async fn provision(
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
        let first = self
            .0
            .storage
            .published
            .lock()
            .get(key)
            .is_none_or(|event| {
                // A retry is not announced again.
                event.reason != Reason::ProvisioningFailed
            });
        if first {
            let message =
                format!("External provisioner is provisioning volume for claim \"{key}\"");
            normal(Reason::Provisioning, message);
        }
        let name = volume_name(claim.metadata.uid.as_deref().unwrap_or_default());
        let bytes = whole_blocks(claim::requested(claim).map_or(0, Amount::units));
        let backing = Backing::of_node(&self.0.settings.root);
        let volume = NewVolume { name, mode, bytes };
        if let Err(error) = self.make_backing(&backing, &volume).await {
            let message = format!(
                "failed to provision volume with StorageClass {class:?}: {}",
                error_chain(&error)
            );
            let event = Event {
                kind: EventType::Warning,
                reason: Reason::ProvisioningFailed,
                message,
            };
            self.publish(key, claim, event);
            return Err(error.into());
        }
        failpoints::after("embedded-node/storage/make-backing");
        let object = self.volume_object(claim, class, &volume, &backing);
        let api = Api::<PersistentVolume>::all(self.0.settings.client.clone());
        let volume_key = Key::new("", volume.name.as_str());
        match reconcile::create(&api, MANAGER, &volume_key, &object).await {
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => {}
            Err(error) => return Err(error.into()),
        }
        failpoints::after("embedded-node/storage/create-volume");
        let confirmed = volume.name.clone();
        blocking("record that the volume is published", move || {
            backing.confirm(&confirmed)
        })
        .await?;
        normal(
            Reason::ProvisioningSucceeded,
            format!("Successfully provisioned volume {}", volume.name),
        );
        Ok(())
    }

    async fn make_backing(
        &self,
        backing: &Backing,
        volume: &NewVolume,
    ) -> Result<(), BackingError> {
        let (backing, volume) = (backing.clone(), volume.clone());
        let made = tokio::task::spawn_blocking(move || make_exclusively(&backing, &volume)).await;
        made.unwrap_or_else(|error| {
            Err(BackingError::Make {
                dir: self.0.settings.root.clone(),
                source: io::Error::other(error),
            })
        })
    }

    fn volume_object(
        &self,
        claim: &PersistentVolumeClaim,
        class_name: &str,
        volume: &NewVolume,
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
        let NewVolume { name, mode, bytes } = volume;
        let mode_name = match mode {
            Mode::Filesystem => "Filesystem",
            Mode::Block => "Block",
        };
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {
                "name": name,
                "annotations": {PROVISIONED_BY: PROVISIONER},
                "finalizers": [VOLUME_PROTECTION],
            },
            "spec": {
                "capacity": {"storage": capacity(claim, *bytes)},
                "accessModes": spec.access_modes,
                "volumeMode": mode_name,
                "persistentVolumeReclaimPolicy": policy.as_deref().unwrap_or("Delete"),
                "storageClassName": class_name,
                "claimRef": reference(claim),
                "local": {"path": backing.path(name, *mode)},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [{
                    "key": "kubernetes.io/hostname", "operator": "In",
                    "values": [self.0.settings.node_name],
                }]}]}},
            },
        })
    }
}

/// Makes one volume at a time, so that the space check counts all reservations.
fn make_exclusively(backing: &Backing, volume: &NewVolume) -> Result<(), BackingError> {
    static MAKING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
    let _one_at_a_time = MAKING.lock();
    backing.make(&volume.name, volume.mode, volume.bytes)
}

/// The requested quantity as written if it is exactly the size, else the size in bytes.
fn capacity(claim: &PersistentVolumeClaim, bytes: u64) -> Value {
    let exact = claim::requested(claim).is_some_and(|requested| requested.units() == bytes);
    let requests = claim.spec.as_ref().and_then(|s| s.resources.as_ref());
    let text = requests.and_then(|r| r.requests.as_ref()?.get("storage"));
    match text {
        Some(text) if exact => json!(text),
        _ => json!(bytes.to_string()),
    }
}

/// The `claimRef` of a volume.
pub(super) fn reference(claim: &PersistentVolumeClaim) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "namespace": claim.metadata.namespace,
        "name": claim.metadata.name,
        "uid": claim.metadata.uid,
        "resourceVersion": claim.metadata.resource_version,
    })
}
