//! Releases contents that are deleted: their volume snapshots go with them.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use kubevirt_api::finalizers;
use kubevirt_api::snapshot::VirtualMachineSnapshotContent;
use reconcile::{Key, Reconciler, Requeue, Store, WriteError};
use serde::Deserialize;

use super::SnapshotError;
use crate::gate::Gate;
use crate::operation::set_finalizers;
use crate::view::Labels;
use crate::wiring::Wiring;

const CONTENT: &str = "virtualmachinesnapshotcontent";

/// A content, as far as this controller reads it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "VirtualMachineSnapshotContent")]
struct Content {
    metadata: ObjectMeta,
    snapshot: Option<String>,
}

impl From<VirtualMachineSnapshotContent> for Content {
    fn from(whole: VirtualMachineSnapshotContent) -> Self {
        Self {
            metadata: crate::view::slim(whole.metadata, Labels::Dropped, &[]),
            snapshot: whole.spec.virtual_machine_snapshot_name,
        }
    }
}

reconcile::resource_view!(
    Content,
    VirtualMachineSnapshotContent,
    NamespaceResourceScope
);

#[derive(Clone)]
struct Controller {
    client: Client,
    contents: Store<Content>,
}

/// A change of a content triggers its snapshot through `snapshots`.
pub(super) fn register(wiring: &mut Wiring<'_>, snapshots: &Gate) {
    let gate = Gate::default();
    let contents: Store<Content> = Store::new();
    let (queue, owner) = (gate.clone(), snapshots.clone());
    let on_change = move |content: &Content| {
        let key = Key::of(content);
        if let Some(name) = &content.snapshot {
            owner.add(Key::new(key.namespace.as_str(), name.as_str()), CONTENT);
        }
        queue.add(key, CONTENT);
    };
    wiring.watch_if_defined(watcher::Config::default(), &contents, on_change);
    let controller = Controller {
        client: wiring.settings.client.clone(),
        contents: contents.clone(),
    };
    wiring.controller(&gate, &contents, move || controller.clone());
}

impl Reconciler for Controller {
    const NAME: &'static str = "snapshot-content";
    type Error = SnapshotError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, SnapshotError> {
        let Some(content) = self.contents.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let all = content.metadata.finalizers.clone().unwrap_or_default();
        let is_ours = |one: &String| one == finalizers::SNAPSHOT_CONTENT;
        if content.metadata.deletion_timestamp.is_none() || !all.iter().any(is_ours) {
            return Ok(Requeue::OnChange);
        }
        let others: Vec<String> = all.iter().filter(|one| !is_ours(one)).cloned().collect();
        let api = Api::<Content>::namespaced(self.client.clone(), &key.namespace);
        match set_finalizers(&api, key, &content.metadata, &others).await {
            Ok(_) | Err(WriteError::NotFound { .. }) => {}
            Err(source) => {
                return Err(SnapshotError::Update {
                    tried: "release the content",
                    source,
                });
            }
        }
        failpoints::after("virt-controller/snapshot/release-content");
        Ok(Requeue::OnChange)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.contents.get(key)?.metadata.uid.clone()
    }
}
