//! Reading what there is about one guest.

use std::sync::Arc;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, Client, ResourceExt};
use kubevirt_api::VirtualMachineInstance;
use reconcile::{Key, Store};

use crate::pods_dir::PodUid;

/// The VMI of a key and its pod on this node.
#[derive(Debug)]
pub(crate) struct Pair {
    pub(crate) vmi: Arc<VirtualMachineInstance>,
    pub(crate) pod: Arc<Pod>,
    pub(crate) pod_uid: PodUid,
}

/// Finds the pair; `None` if there is no guest of that key here.
///
/// VMIs that were handed over to this node come from the store. Before that only the pod tells
/// that there will be one, and the VMI is asked for by name.
pub(crate) async fn pair(
    client: &Client,
    vmis: &Store<VirtualMachineInstance>,
    pods: &Store<Pod>,
    key: &Key,
) -> Result<Option<Pair>, kube::Error> {
    let of_key = |pod: &Arc<Pod>| {
        Key::of_controller(pod.as_ref(), "VirtualMachineInstance").as_ref() == Some(key)
    };
    let candidates: Vec<_> = pods.list().into_iter().filter(of_key).collect();
    if candidates.is_empty() {
        return Ok(None);
    }
    let vmi = match vmis.get(key) {
        Some(vmi) => Some(vmi),
        None => Api::<VirtualMachineInstance>::namespaced(client.clone(), &key.namespace)
            .get_opt(&key.name)
            .await?
            .map(Arc::new),
    };
    let Some(vmi) = vmi else { return Ok(None) };
    let owned = |pod: &Arc<Pod>| {
        pod.owner_references()
            .iter()
            .any(|owner| Some(&owner.uid) == vmi.metadata.uid.as_ref())
    };
    let Some(pod) = candidates.into_iter().find(owned) else {
        return Ok(None);
    };
    let Ok(pod_uid) = PodUid::parse(&pod.uid().unwrap_or_default()) else {
        return Ok(None);
    };
    Ok(Some(Pair { vmi, pod, pod_uid }))
}

/// Whether no process of the pod is left.
pub(crate) fn ended(pod: &Pod) -> bool {
    let phase = pod
        .status
        .as_ref()
        .and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}
