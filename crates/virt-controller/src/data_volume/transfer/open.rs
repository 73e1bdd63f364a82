//! Creates the export of a source in another namespace, and deletes one that was not made to the end.

use k8s_openapi::api::core::v1::{ConfigMap, PersistentVolumeClaim, Secret};
use kube::ResourceExt as _;
use kubevirt_api::annotations;
use kubevirt_api::data_volume_status::DataVolume as Whole;
use kubevirt_api::export::VirtualMachineExport;
use kubevirt_api::quantity::Amount;
use kubevirt_api::volume_snapshot::VolumeSnapshot;
use reconcile::{Key, WriteError, create, delete, merge};
use serde_json::{Value, json};
use uuid::Uuid;

use super::{Link, Transfer, marked, name, read};
use crate::MANAGER;
use crate::data_source::Target;
use crate::data_volume::observe::Observed;
use crate::data_volume::request::{Request, Source};
use crate::data_volume::{Controller, DataVolumeError, claim};

/// The header of export servers.
const HEADER: &str = "x-kubevirt-export-token";
/// The export is deleted with its data volume; this is for an installation that does not come back.
const LIFETIME: &str = "168h";
/// Characters of a name that nothing else has.
const SUFFIX: usize = 10;

impl Controller {
    pub(in crate::data_volume) async fn transfer(
        &self,
        key: &Key,
        uid: &str,
        target: &Target,
    ) -> Result<Transfer, DataVolumeError> {
        let at = Key::new(&target.key().namespace, name(uid));
        let found = self
            .api::<VirtualMachineExport>(&at)
            .get_opt(&at.name)
            .await;
        let found = found.map_err(DataVolumeError::read)?;
        Ok(read(found.as_ref(), key, uid))
    }

    /// The export comes first, as all else in its namespace belongs to it. It counts from its last annotation on.
    pub(in crate::data_volume) async fn open_source(
        &self,
        key: &Key,
        observed: &Observed,
        whole: &Whole,
    ) -> Result<(), DataVolumeError> {
        let Some(target) = elsewhere(observed) else {
            return Ok(());
        };
        let uid = whole.uid().unwrap_or_default();
        let at = Key::new(&target.key().namespace, name(&uid));
        let (token, suffix) = (random(), random());
        let suffix: String = suffix.chars().take(SUFFIX).collect();
        let secret = format!("{}-{suffix}", at.name);
        let exported = match target {
            Target::Claim(claim) => claim.name.as_str(),
            Target::Snapshot(_) => at.name.as_str(),
        };
        let body = export(&at, (exported, &secret), &marked(key, &uid));
        let exports = self.api::<VirtualMachineExport>(&at);
        let made = match create(&exports, MANAGER, &at, &body).await {
            Ok(made) => made,
            // The next pass looks at it.
            Err(WriteError::AlreadyExists { .. }) => return Ok(()),
            Err(error) => return Err(DataVolumeError::OpenSource(error)),
        };
        failpoints::after("virt-controller/data-volume/create-export");
        let export_uid = made.metadata.uid;
        let owner = json!({
            "apiVersion": VirtualMachineExport::API_VERSION,
            "kind": VirtualMachineExport::KIND,
            "name": at.name,
            "uid": export_uid,
            "controller": true,
            "blockOwnerDeletion": true,
        });
        let open = DataVolumeError::OpenSource;
        let (of_server, of_importer) = (
            Key::new(&at.namespace, &secret),
            Key::new(&key.namespace, &secret),
        );
        let body = secret_of(&of_server, &owner, &json!({"token": token}));
        let made = create(&self.api::<Secret>(&of_server), MANAGER, &of_server, &body).await;
        made.map_err(open)?;
        failpoints::after("virt-controller/data-volume/create-export-token");
        let header = json!({"header": format!("{HEADER}: {token}")});
        let body = secret_of(&of_importer, &claim::owner(whole), &header);
        let made = create(
            &self.api::<Secret>(&of_importer),
            MANAGER,
            &of_importer,
            &body,
        )
        .await;
        made.map_err(open)?;
        if let Target::Snapshot(snapshot) = target {
            let body = self.exported_claim(key, observed, (snapshot, &at), &owner);
            let claims = self.api::<PersistentVolumeClaim>(&at);
            create(&claims, MANAGER, &at, &body).await.map_err(open)?;
        }
        // Another export of the name, which was made meanwhile, has other Secrets: a UID cannot be changed.
        let body = json!({"metadata": {
            "uid": export_uid,
            "annotations": {annotations::COPY_COMPLETE: "true"},
        }});
        let marked = merge(&exports, MANAGER, &at, &body).await;
        marked.map(drop).map_err(open)
    }

    /// The claim of a snapshot is like the one that the snapshot was made of.
    fn exported_claim(
        &self,
        key: &Key,
        observed: &Observed,
        (snapshot, at): (&Key, &Key),
        owner: &Value,
    ) -> Value {
        let found = self.snapshots.get(snapshot, key);
        let original = found.as_ref().and_then(|found| {
            let name = found.spec.source.persistent_volume_claim_name.as_deref()?;
            self.volumes.claims.get(&Key::new(&at.namespace, name), key)
        });
        let request = observed.request.as_ref().ok();
        let asked = request.and_then(|request| request.form.storage_class());
        let class = match &original {
            Some(original) => original.storage_class.as_deref(),
            None => asked,
        };
        let is_block = original.as_deref().is_some_and(claim::is_block);
        let least = found.and_then(|found| found.status.as_ref()?.restore_size.clone());
        let least = least.and_then(|size| Amount::parse(&size).ok());
        let size = least
            .map(Amount::units)
            .filter(|bytes| *bytes > 0)
            .or_else(|| original.as_deref().and_then(claim::capacity))
            .or_else(|| request.and_then(claim::requested))
            .unwrap_or(1);
        json!({
            "apiVersion": "v1",
            "kind": "PersistentVolumeClaim",
            "metadata": {
                "name": at.name,
                "namespace": at.namespace,
                "annotations": {annotations::CDI_CONTENT_TYPE: "kubevirt"},
                "ownerReferences": [owner],
            },
            "spec": {
                "accessModes": ["ReadWriteOnce"],
                "volumeMode": if is_block { "Block" } else { "Filesystem" },
                "storageClassName": class,
                "dataSource": {
                    "apiGroup": VolumeSnapshot::GROUP,
                    "kind": VolumeSnapshot::KIND,
                    "name": snapshot.name,
                },
                "resources": {"requests": {"storage": Amount::of(size).to_binary()}},
            },
        })
    }

    pub(in crate::data_volume) async fn close_source(
        &self,
        observed: &Observed,
        whole: &Whole,
    ) -> Result<(), DataVolumeError> {
        let (Some(target), Transfer::Incomplete { uid }) =
            (elsewhere(observed), &observed.transfer)
        else {
            return Ok(());
        };
        let own = whole.uid().unwrap_or_default();
        let at = Key::new(&target.key().namespace, name(&own));
        let deleted = delete(&self.api::<VirtualMachineExport>(&at), &at, uid, None).await;
        deleted.map_err(DataVolumeError::CloseSource)
    }

    /// The authority that the importer trusts; its name follows from its contents.
    pub(in crate::data_volume) async fn create_authority(
        &self,
        key: &Key,
        whole: &Whole,
        link: &Link,
    ) -> Result<(), DataVolumeError> {
        let name = link.authority_name(whole.uid().as_deref().unwrap_or_default());
        let at = Key::new(&key.namespace, &name);
        let body = json!({
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": name,
                "namespace": key.namespace,
                "ownerReferences": [claim::owner(whole)],
            },
            "data": {"ca.pem": link.authority},
        });
        match create(&self.api::<ConfigMap>(&at), MANAGER, &at, &body).await {
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => {
                failpoints::after("virt-controller/data-volume/create-authority");
                Ok(())
            }
            Err(error) => Err(DataVolumeError::CreatePod(error)),
        }
    }
}

/// The source in another namespace.
fn elsewhere(observed: &Observed) -> Option<&Target> {
    match &observed.request {
        Ok(Request {
            source: Source::Elsewhere(target),
            ..
        }) => Some(target),
        _ => None,
    }
}

fn export(at: &Key, (claim, secret): (&str, &str), marked: &str) -> Value {
    json!({
        "apiVersion": VirtualMachineExport::API_VERSION,
        "kind": VirtualMachineExport::KIND,
        "metadata": {
            "name": at.name,
            "namespace": at.namespace,
            "annotations": {annotations::COPY_FOR: marked},
        },
        "spec": {
            "source": {"apiGroup": "", "kind": "PersistentVolumeClaim", "name": claim},
            "tokenSecretRef": secret,
            "ttlDuration": LIFETIME,
        },
    })
}

fn secret_of(at: &Key, owner: &Value, data: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "type": "Opaque",
        "metadata": {
            "name": at.name,
            "namespace": at.namespace,
            "ownerReferences": [owner],
        },
        "stringData": data,
    })
}

/// More than can be guessed.
fn random() -> String {
    format!("{}{}", Uuid::new_v4().simple(), Uuid::new_v4().simple())
}
