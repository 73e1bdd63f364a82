//! Creates a profile, and writes its status.

use kube::api::Api;
use kubevirt_api::storage_profile::{StorageProfile, StorageProfileStatus};
use reconcile::{Fragment, Key, WriteError, apply_reported, create};
use serde_json::{Value, json};

use super::plan::{Observed, Plan};
use super::{Controller, StorageProfileError};
use crate::MANAGER;
use crate::view::StorageClass;

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<(), StorageProfileError> {
        match plan {
            Plan::Nothing => Ok(()),
            Plan::Create => {
                let body = profile(&observed.name, &observed.class);
                let api = Api::<StorageProfile>::all(self.client.clone());
                let created = create(&api, MANAGER, key, &body).await;
                failpoints::after("virt-controller/storage-profile/create");
                match created {
                    // Created by an earlier reconcile: the watch will deliver it.
                    Ok(_) | Err(WriteError::AlreadyExists { .. }) => Ok(()),
                    Err(error) => Err(StorageProfileError::Create(error)),
                }
            }
            Plan::WriteStatus(status) => match &observed.profile {
                Some(profile) => self.write_status(key, profile, status).await,
                None => Ok(()),
            },
        }
    }

    async fn write_status(
        &self,
        key: &Key,
        profile: &StorageProfile,
        status: &StorageProfileStatus,
    ) -> Result<(), StorageProfileError> {
        let body = json!({
            "apiVersion": StorageProfile::API_VERSION,
            "kind": StorageProfile::KIND,
            "metadata": {
                "name": key.name,
                "resourceVersion": profile.metadata.resource_version,
            },
            "status": status,
        });
        let fragment = Fragment::of_status(MANAGER, key, body);
        let api = Api::<StorageProfile>::all(self.client.clone());
        match apply_reported(&api, &fragment, profile, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/storage-profile/write-status");
                self.profiles.wrote(profile, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(StorageProfileError::Status(error)),
        }
    }
}

/// It is deleted together with its class.
fn profile(name: &str, class: &StorageClass) -> Value {
    json!({
        "apiVersion": StorageProfile::API_VERSION,
        "kind": StorageProfile::KIND,
        "metadata": {
            "name": name,
            "labels": {"app": "containerized-data-importer", "cdi.kubevirt.io": ""},
            "ownerReferences": [{
                "apiVersion": "storage.k8s.io/v1",
                "kind": "StorageClass",
                "name": name,
                "uid": class.metadata.uid,
                "controller": true,
            }],
        },
        "spec": {},
    })
}
