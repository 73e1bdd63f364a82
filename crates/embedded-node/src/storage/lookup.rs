//! Resolves the claims of a pod to volumes on this host, and finds claims it has to wait for.

use std::{collections::BTreeMap, path::PathBuf};

use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim, Pod};
use kube::Api;
use pod_supervisor::model::Access;
use reasons::Reason;
use reconcile::Key;

use super::{backing::Mode, claim};
use crate::{Failure, node::Shared, schedule::Obstacle};

const FAILED: Reason = Reason::FailedMount;

/// The persistent volume behind a pod's volume.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ClaimedVolume {
    pub(crate) path: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) access: Access,
}

/// The pod's volumes with a claim, and the names of the claims.
pub(super) fn claim_names(pod: &Pod) -> impl Iterator<Item = (&str, String)> {
    let volumes = pod.spec.iter().flat_map(|s| s.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let name = match (&volume.persistent_volume_claim, &volume.ephemeral) {
            (Some(source), _) => source.claim_name.clone(),
            (None, Some(_)) => ephemeral_name(pod, &volume.name),
            (None, None) => return None,
        };
        Some((volume.name.as_str(), name))
    })
}

/// The name of the claim made for an ephemeral volume.
pub(super) fn ephemeral_name(pod: &Pod, volume: &str) -> String {
    let pod = pod.metadata.name.as_deref().unwrap_or_default();
    format!("{pod}-{volume}")
}

/// The claim that keeps the pod from being bound to this node.
pub(crate) fn obstacle(shared: &Shared, pod: &Pod) -> Option<Obstacle> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let unschedulable = |message: String| {
        Some(Obstacle::Unschedulable(format!(
            "0/1 nodes are available: {message}"
        )))
    };
    let mut waiting = None;
    for (_, name) in claim_names(pod) {
        let key = Key::new(namespace.clone(), name.as_str());
        let Some(claim) = shared.storage.claims.get(&key) else {
            return unschedulable(format!("persistentvolumeclaim {name:?} not found"));
        };
        if claim.metadata.deletion_timestamp.is_some() {
            return unschedulable(format!("persistentvolumeclaim {name:?} is being deleted"));
        }
        if claim::phase(&claim) == "Lost" {
            return unschedulable(format!(
                "persistentvolumeclaim {name:?} bound to non-existent persistentvolume {:?}",
                claim::volume_name(&claim).unwrap_or_default()
            ));
        }
        if let Some(other) = exclusive_user(shared, pod, &claim, &name) {
            return unschedulable(format!(
                "node has pod {other:?} using PersistentVolumeClaim {name:?} with \
                 ReadWriteOncePod access mode"
            ));
        }
        if claim::phase(&claim) == "Bound" {
            continue;
        }
        waiting = Some(match shared.storage.published.lock().get(&key) {
            Some(event) if is_failure(event) => Obstacle::Unschedulable(format!(
                "0/1 nodes are available: persistentvolumeclaim {name:?}: {}",
                event.message
            )),
            _ => Obstacle::Volumes,
        });
    }
    waiting
}

fn is_failure(event: &claim::Event) -> bool {
    event.kind == reconcile::EventType::Warning || event.reason == Reason::FailedBinding
}

/// The other pod that uses a claim which only one pod may use.
fn exclusive_user(
    shared: &Shared,
    pod: &Pod,
    claim: &PersistentVolumeClaim,
    name: &str,
) -> Option<String> {
    let spec = claim.spec.as_ref()?;
    let modes = spec.access_modes.as_deref().unwrap_or_default();
    if !modes.iter().any(|mode| mode == "ReadWriteOncePod") {
        return None;
    }
    let other = shared.pods.list().into_iter().find(|other| {
        let phase = other.status.as_ref().and_then(|s| s.phase.as_deref());
        other.metadata.namespace == pod.metadata.namespace
            && other.metadata.uid != pod.metadata.uid
            && other.spec.as_ref().is_some_and(|s| s.node_name.is_some())
            && !matches!(phase, Some("Succeeded" | "Failed"))
            && claim_names(other).any(|(_, claim)| claim == name)
    })?;
    other.metadata.name.clone()
}

/// The persistent volumes of a pod, by the names of its volumes.
pub(crate) async fn resolve_claims(
    shared: &Shared,
    pod: &Pod,
) -> Result<BTreeMap<String, ClaimedVolume>, Failure> {
    let namespace = pod.metadata.namespace.clone().unwrap_or_default();
    let mut all = BTreeMap::new();
    for (volume, name) in claim_names(pod) {
        let one = resolve(shared, &namespace, &name).await?;
        all.insert(volume.to_owned(), one);
    }
    for volume in pod.spec.iter().flat_map(|s| s.volumes.iter().flatten()) {
        let source = volume.persistent_volume_claim.as_ref();
        if source.and_then(|source| source.read_only) == Some(true)
            && let Some(one) = all.get_mut(&volume.name)
        {
            one.access = Access::ReadOnly;
        }
    }
    Ok(all)
}

async fn resolve(shared: &Shared, namespace: &str, name: &str) -> Result<ClaimedVolume, Failure> {
    let client = &shared.settings.client;
    let wrong = |message: String| {
        Failure::new(
            FAILED,
            format!("error processing PVC {namespace}/{name}: {message}"),
        )
    };
    let unreadable = |error: kube::Error| Failure::of(FAILED, "read a persistent volume", &error);
    let claims = Api::<PersistentVolumeClaim>::namespaced(client.clone(), namespace);
    let claim = claims
        .get_opt(name)
        .await
        .map_err(unreadable)?
        .ok_or_else(|| wrong("not found".into()))?;
    let volume = match claim::volume_name(&claim) {
        Some(volume) if claim::phase(&claim) == "Bound" => volume,
        _ => return Err(wrong("PVC is not bound".into())),
    };
    let volumes = Api::<PersistentVolume>::all(client.clone());
    let found = volumes
        .get_opt(volume)
        .await
        .map_err(unreadable)?
        .ok_or_else(|| wrong(format!("persistentvolume {volume:?} not found")))?;
    let spec = found.spec.unwrap_or_default();
    let owner = spec.claim_ref.and_then(|reference| reference.uid);
    if owner != claim.metadata.uid {
        return Err(wrong(format!(
            "persistentvolume {volume:?} is bound to another claim"
        )));
    }
    let path = match (spec.local, spec.host_path) {
        (Some(local), _) => local.path,
        (None, Some(host)) => host.path,
        (None, None) => {
            return Err(wrong(format!(
                "persistentvolume {volume:?} has a type that this node does not support \
                 (supported: local, hostPath)"
            )));
        }
    };
    Ok(ClaimedVolume {
        path: path.into(),
        mode: claim::volume_mode(spec.volume_mode.as_deref()),
        access: Access::ReadWrite,
    })
}
