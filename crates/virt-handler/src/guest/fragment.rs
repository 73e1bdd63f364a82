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
///
/// A field that should be removed is left out and never sent as an empty map or list: the API server
/// turns an empty map over owned children into null and rejects the whole status.
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
        .filter(|(_, value)| !is_empty(value))
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

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Object(members) => members.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
    use kubevirt_api::vmi_status::{
        PersistentVolumeClaimInfo, VirtualMachineInstanceNetworkInterface,
        VirtualMachineInstancePhase as Phase, VolumeStatus,
    };
    use launcher_channel::{AgentOs, DomainState, GuestState};

    use super::{
        super::status::{PreparedStatus, StatusInput, desired},
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

    /// A real API server rejects an empty map that replaces one with owned children.
    #[test]
    fn removed_fields_are_omitted_and_never_applied_empty() {
        let agent = launcher_channel::Agent {
            os: Some(AgentOs {
                name: Some("Debian".to_owned()),
                ..AgentOs::default()
            }),
            ..launcher_channel::Agent::default()
        };
        let with_agent = GuestState {
            domain: Some(DomainState::Running),
            agent: Some(Box::new(agent)),
            ..GuestState::default()
        };
        let mut silent_agent = with_agent.clone();
        silent_agent.agent = Some(Box::default());
        let mut empty_report = with_agent.clone();
        empty_report.agent = Some(Box::new(launcher_channel::Agent {
            os: Some(AgentOs::default()),
            ..launcher_channel::Agent::default()
        }));
        let mut without_agent = with_agent.clone();
        without_agent.agent = None;
        let prepared = PreparedStatus {
            interfaces: vec![VirtualMachineInstanceNetworkInterface::default()],
            volumes: vec![VolumeStatus {
                name: "root".to_owned(),
                persistent_volume_claim_info: Some(PersistentVolumeClaimInfo::default()),
                ..VolumeStatus::default()
            }],
        };
        let prepared_input = |state| StatusInput {
            prepared: Some(&prepared),
            ..input(state)
        };

        let mut vmi = scheduled_vmi();
        let status = desired(&vmi, &prepared_input(&with_agent), &now());
        let applied = fragment(&vmi, &status).unwrap();
        assert_eq!(applied["status"]["guestOSInfo"]["name"], "Debian");
        vmi.status = Some(status);
        for state in [&silent_agent, &empty_report, &without_agent] {
            let status = desired(&vmi, &prepared_input(state), &now());
            let applied = fragment(&vmi, &status).unwrap();
            assert_eq!(applied["status"].get("guestOSInfo"), None, "{state:?}");
            let empty = OWNED_FIELDS
                .iter()
                .filter(|field| applied["status"].get(**field).is_some_and(is_empty));
            assert_eq!(empty.count(), 0, "{applied}");
        }
    }
}
