//! What a pod has that waits for a guest to come from another pod.

use k8s_openapi::api::core::v1::{EnvVar, Pod, PodSpec};
use kubevirt_api::{VirtualMachineInstance, annotations};
use model::VolumeMoves;

use crate::{CONTAINER, probes};

/// Variable of the launcher: the number of volumes that are on other claims in its pod.
const MOVED_VOLUMES: &str = "VIRT_LAUNCHER_MOVED_VOLUMES";

/// The pod of a VMI whose guest comes from another VMI: it waits for the guest, and its claims get the contents of
/// those there.
pub(crate) fn receive_from_elsewhere(pod: &mut Pod, vmi: &VirtualMachineInstance) {
    let moves = model::written_claims(vmi);
    pod.metadata.annotations.get_or_insert_default().insert(
        annotations::MIGRATED_VOLUMES.to_owned(),
        model::pod_annotation(&moves),
    );
    if let Some(spec) = &mut pod.spec {
        await_guest(spec, &moves);
    }
}

/// Has nothing start in the pod before the guest has come.
pub(crate) fn await_guest(spec: &mut PodSpec, moves: &VolumeMoves) {
    spec.containers.iter_mut().for_each(probes::await_guest);
    if moves.is_empty() {
        return;
    }
    // The launcher takes no guest if virt-handler of the node is too old to have its disks copied.
    let mut all = spec.containers.iter_mut();
    if let Some(compute) = all.find(|container| container.name == CONTAINER) {
        compute.env.get_or_insert_default().push(EnvVar {
            name: MOVED_VOLUMES.to_owned(),
            value: Some(moves.len().to_string()),
            ..EnvVar::default()
        });
    }
}
