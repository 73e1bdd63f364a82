//! The fragment of a VMI's status that virt-handler applies: pure.

use kubevirt_api::{VirtualMachineInstance, vmi_status::VirtualMachineInstanceStatus};
use serde_json::{Value, json};

/// The fields of a VMI's status that virt-handler applies.
const OWNED_FIELDS: [&str; 10] = [
    "phase",
    "reason",
    "phaseTransitionTimestamps",
    "conditions",
    "interfaces",
    "machine",
    "guestOSInfo",
    "fsFreezeStatus",
    "migrationMethod",
    "volumeStatus",
];

/// The owned fields of `status` to apply; `None` if the VMI has this status already.
pub(crate) fn fragment(
    vmi: &VirtualMachineInstance,
    status: &VirtualMachineInstanceStatus,
) -> Option<Value> {
    let current = vmi.status.clone().unwrap_or_default();
    if *status == current {
        return None;
    }
    let whole = serde_json::to_value(status).unwrap_or_default();
    let owned: serde_json::Map<String, Value> = OWNED_FIELDS
        .into_iter()
        .filter_map(|field| Some((field.to_owned(), whole.get(field)?.clone())))
        .collect();
    Some(json!({
        "apiVersion": kubevirt_api::API_VERSION,
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": vmi.metadata.name,
            "namespace": vmi.metadata.namespace,
            "uid": vmi.metadata.uid,
            "resourceVersion": vmi.metadata.resource_version,
        },
        "status": owned,
    }))
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
    use launcher_channel::{DomainState, GuestState};

    use super::{
        super::status::{StatusInput, desired},
        *,
    };

    fn scheduled_vmi() -> VirtualMachineInstance {
        VirtualMachineInstance {
            status: Some(VirtualMachineInstanceStatus {
                phase: Some(Phase::Scheduled),
                ..VirtualMachineInstanceStatus::default()
            }),
            ..VirtualMachineInstance::default()
        }
    }

    fn input(state: &GuestState) -> StatusInput<'_> {
        StatusInput {
            state: Some(state),
            ..StatusInput::default()
        }
    }

    fn now() -> Time {
        Time(jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn unchanged_status_is_not_written() {
        let mut vmi = scheduled_vmi();
        let state = GuestState {
            domain: Some(DomainState::Running),
            ..GuestState::default()
        };
        let status = desired(&vmi, &input(&state), &now());
        assert!(fragment(&vmi, &status).is_some());
        vmi.status = Some(status);
        let again = desired(&vmi, &input(&state), &now());
        assert_eq!(fragment(&vmi, &again), None);
    }
}
