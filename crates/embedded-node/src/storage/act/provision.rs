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
        backing::{Backing, BackingError, Bound, Mode, Origin, whole_blocks},
        claim::{self, DataSource, Event, Usage},
        snapshots::Files,
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
    /// Copied into the volume.
    origin: Option<Origin>,
}

impl Claims {
    /// Makes the volume's backing and its object.
    pub(super) async fn provision(
        &self,
        key: &Key,
        claim: &PersistentVolumeClaim,
        class: &str,
        mode: Mode,
        data: &DataSource,
    ) -> Result<(), StorageError> {
        let bytes = whole_blocks(claim::requested(claim).map_or(0, Amount::units));
        let origin = match self.origin(key, data).await {
            Ok(origin) => origin,
            Err(message) => {
                self.publish(key, claim, failed_provisioning(class, &message));
                return Ok(());
            }
        };
        if let Some(message) = origin
            .as_ref()
            .and_then(|origin| misfit(origin, mode, bytes))
        {
            self.publish(key, claim, failed_provisioning(class, &message));
            return Ok(());
        }
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
        let backing = Backing::of_node(&self.0.settings.root);
        let volume = NewVolume {
            name,
            mode,
            bytes,
            origin,
        };
        let bound = match self.make_backing(&backing, &volume).await {
            Ok(bound) => bound,
            Err(error) => {
                let message = error_chain(&error);
                self.publish(key, claim, failed_provisioning(class, &message));
                return Err(error.into());
            }
        };
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
            provisioned(&volume.name, bound),
        );
        Ok(())
    }

    /// The data on this host that the claim is to have, or what it waits for.
    async fn origin(&self, key: &Key, data: &DataSource) -> Result<Option<Origin>, String> {
        let storage = &self.0.storage;
        match data {
            DataSource::None => Ok(None),
            DataSource::Snapshot(name) => {
                let named = Key::new(key.namespace.as_str(), name.as_str());
                let handle = storage.snapshots.handle(&named)?;
                let files = Files::of_node(&self.0.settings.root);
                let found = blocking("read a snapshot", move || files.origin(&handle)).await;
                let found = found.map_err(|error| error_chain(&error))?;
                found
                    .map(Some)
                    .ok_or_else(|| format!("the data of snapshot {named} is not on this host"))
            }
            DataSource::Claim(name) => {
                let named = Key::new(key.namespace.as_str(), name.as_str());
                let source = storage.claims.get(&named);
                let source = source.ok_or_else(|| format!("claim {named} does not exist"))?;
                let volume = claim::volume_name(&source)
                    .filter(|_| claim::phase(&source) == "Bound")
                    .ok_or_else(|| format!("claim {named} is not bound yet"))?;
                if self.users(&named).usage == Usage::InUse {
                    return Err(format!(
                        "claim {named} is in use by a pod: stop the pod, or use a snapshot of the \
                         claim as the data source"
                    ));
                }
                let (backing, volume) =
                    (Backing::of_node(&self.0.settings.root), volume.to_owned());
                let found = blocking("read a volume", move || Ok(backing.origin(&volume))).await;
                let found = found.map_err(|error| error_chain(&error))?;
                found.map(Some).ok_or_else(|| {
                    format!("the volume of claim {named} is not of provisioner {PROVISIONER}")
                })
            }
        }
    }

    async fn make_backing(
        &self,
        backing: &Backing,
        volume: &NewVolume,
    ) -> Result<Bound, BackingError> {
        let (backing, volume) = (backing.clone(), volume.clone());
        let make = move || {
            let NewVolume {
                name,
                mode,
                bytes,
                origin,
            } = &volume;
            backing.make(name, *mode, *bytes, origin.as_ref())
        };
        let made = tokio::task::spawn_blocking(make).await;
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
        let NewVolume {
            name, mode, bytes, ..
        } = volume;
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
                "volumeMode": mode.name(),
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

/// The message of a volume that was made, with what its capacity means.
fn provisioned(name: &str, bound: Bound) -> String {
    let bound = match bound {
        Bound::Size => "",
        Bound::Quota => "; the file system of the host limits its files to its capacity",
        Bound::Nothing => {
            "; the file system of the host does not limit its files: an event tells if they take more than its capacity"
        }
    };
    format!("Successfully provisioned volume {name}{bound}")
}

fn failed_provisioning(class: &str, message: &str) -> Event {
    Event {
        kind: EventType::Warning,
        reason: Reason::ProvisioningFailed,
        message: format!("failed to provision volume with StorageClass {class:?}: {message}"),
    }
}

/// Why a volume of this mode and size cannot have a copy of the origin.
fn misfit(origin: &Origin, mode: Mode, bytes: u64) -> Option<String> {
    if origin.mode != mode {
        return Some(format!(
            "the data source has volumeMode {}: use the same volumeMode",
            origin.mode.name()
        ));
    }
    (bytes < origin.bytes).then(|| {
        format!(
            "requested volume size {bytes} is less than the size {} of the data source: request \
             at least that size",
            origin.bytes
        )
    })
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
