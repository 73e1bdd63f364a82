//! Runs once before the reconcilers: the storage class, and recovery after an earlier process.

use error_chain::error_chain;
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use reconcile::{Key, WriteError};
use serde_json::json;

use super::{
    super::{CLASS, PROVISIONER, backing::Backing, in_use, snapshots::Files, volume_name},
    MANAGER, blocking,
};
use crate::node::Shared;

/// Creates the default storage class, unless one of that name exists.
pub(in super::super) async fn ensure_class(shared: &Shared) -> Result<(), WriteError> {
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

/// Completes volumes and removals that an earlier process left unfinished.
pub(in super::super) async fn recover(shared: &Shared) {
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
        Files::of_node(&root).sweep()?;
        for dir in backing.unrecorded() {
            tracing::warn!(
                dir = %dir.display(),
                "volume.json of a volume is missing or unreadable; its data is kept"
            );
        }
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
        tracing::warn!(error, "unfinished volumes cannot be cleaned up");
    }
}
