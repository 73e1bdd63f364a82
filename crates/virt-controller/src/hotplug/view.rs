//! An attachment pod, reduced to its state and the claims that it mounts.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodSpec, PodStatus};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kubevirt_api::annotations;
use model::paths;
use reconcile::Key;
use serde::Deserialize;

use crate::view::{Labels, slim};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Pod")]
pub(crate) struct AttachmentPod {
    pub(crate) metadata: ObjectMeta,
    pub(crate) state: State,
    /// Why it has ended, if that is known.
    pub(crate) message: String,
    /// Claims by volume of the guest.
    pub(crate) claims: BTreeMap<String, String>,
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) enum State {
    /// What it waits for, if that is known.
    Starting(String),
    Ready,
    /// It has ended.
    #[default]
    Ended,
}

impl AttachmentPod {
    /// The guest that it says it is for.
    pub(super) fn guest(&self) -> Option<Key> {
        let annotated = self.metadata.annotations.as_ref()?;
        let name = annotated.get(annotations::OWNER_VMI_NAME)?;
        Some(Key::new(self.metadata.namespace.as_deref()?, name))
    }
}

impl From<Pod> for AttachmentPod {
    fn from(pod: Pod) -> Self {
        let kept = [annotations::OWNER_VMI_NAME];
        let status = pod.status.unwrap_or_default();
        Self {
            state: state(&status),
            message: status.message.or(status.reason).unwrap_or_default(),
            claims: claims(&pod.spec.unwrap_or_default()),
            metadata: slim(pod.metadata, Labels::Dropped, &kept),
        }
    }
}

fn state(status: &PodStatus) -> State {
    if matches!(status.phase.as_deref(), Some("Succeeded" | "Failed")) {
        return State::Ended;
    }
    let conditions = status.conditions.iter().flatten();
    let mut conditions = conditions.filter(|one| one.status != "True");
    let is_unready = conditions.clone().any(|one| one.type_ == "Ready");
    if status.phase.as_deref() == Some("Running") && !is_unready {
        return State::Ready;
    }
    let containers = status.container_statuses.iter().flatten();
    let waiting = containers.filter_map(|one| one.state.as_ref()?.waiting.as_ref());
    let mut waiting = waiting.filter_map(|one| one.message.clone().or_else(|| one.reason.clone()));
    let unscheduled = conditions.find(|one| one.type_ == "PodScheduled");
    let unscheduled = unscheduled.and_then(|one| one.message.clone());
    State::Starting(
        unscheduled
            .or_else(|| waiting.next_back())
            .unwrap_or_default(),
    )
}

fn claims(spec: &PodSpec) -> BTreeMap<String, String> {
    let volumes = spec.volumes.iter().flatten();
    let claims: BTreeMap<&str, &String> = volumes
        .filter_map(|volume| {
            let source = volume.persistent_volume_claim.as_ref()?;
            Some((volume.name.as_str(), &source.claim_name))
        })
        .collect();
    let mounts = spec.containers.iter().flat_map(|one| &one.volume_mounts);
    mounts
        .flatten()
        .filter_map(|mount| {
            let below = mount.mount_path.strip_prefix(paths::ATTACHED_VOLUMES)?;
            let volume = below.strip_prefix('/')?;
            // What is no claim equals no expected claim.
            let claim = claims.get(mount.name.as_str());
            let claim = claim.map_or_else(String::new, |claim| (*claim).clone());
            Some((volume.to_owned(), claim))
        })
        .collect()
}

reconcile::resource_view!(AttachmentPod, Pod, NamespaceResourceScope);
