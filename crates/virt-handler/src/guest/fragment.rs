//! The fragment of a VMI's status that virt-handler applies: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, ConditionValue},
    vmi_status::{VirtualMachineInstanceConditionType as Condition, VirtualMachineInstanceStatus},
};
use reasons::Reason;
use reconcile::{Fragment, Key};
use serde_json::{Map, Value, json};

/// The field manager of the VMI's status.
const MANAGER: &str = "virt-handler";

/// The fields of a VMI's status that virt-handler applies.
const OWNED_FIELDS: [&str; 13] = [
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
    "changedBlockTracking",
    "currentCPUTopology",
    "memory",
];

/// The members of `memory` that others own.
const FOREIGN_MEMORY: [&str; 2] = ["guestAtBoot", "memoryOverhead"];

/// The fields without which a guest cannot be operated.
const ESSENTIAL_FIELDS: [&str; 4] = ["phase", "reason", "phaseTransitionTimestamps", "conditions"];

/// The owned fields of `status` to apply; `None` if the VMI has this status already.
pub(crate) fn fragment<'a>(
    key: &'a Key,
    vmi: &VirtualMachineInstance,
    status: &VirtualMachineInstanceStatus,
) -> Option<Fragment<'a>> {
    let is_unchanged = match &vmi.status {
        Some(current) => current == status,
        None => *status == VirtualMachineInstanceStatus::default(),
    };
    (!is_unchanged).then(|| render(key, vmi, &members(status, &OWNED_FIELDS)))
}

/// The fields to apply after the API server has rejected the whole with `message`: without the fields
/// that the message names, or the essential ones alone if it names none or one of them. `None` if the
/// VMI has them already. The condition `Synchronized` shows the message.
pub(crate) fn accepted_fragment<'a>(
    key: &'a Key,
    vmi: &VirtualMachineInstance,
    status: &VirtualMachineInstanceStatus,
    message: &str,
    now: &Time,
) -> Option<Fragment<'a>> {
    let current = vmi.status.clone().unwrap_or_default();
    let mut reduced = status.clone();
    // The known condition keeps its transition time.
    let list = &mut reduced.conditions;
    if let Some(known) = conditions::find(&current.conditions, &Condition::Synchronized) {
        conditions::remove(list, &Condition::Synchronized);
        list.push(known.clone());
        conditions::sort(list);
    }
    let advised = Reason::FailedStatusUpdate.advise(message);
    let rejected = ConditionValue::fails(Reason::FailedStatusUpdate, &advised);
    conditions::set(list, Condition::Synchronized, &rejected, now);
    let wanted = members(&reduced, &accepted_fields(message));
    (wanted != members(&current, &OWNED_FIELDS)).then(|| render(key, vmi, &wanted))
}

fn accepted_fields(message: &str) -> Vec<&'static str> {
    let is_named = |field: &&str| message.contains(&format!("status.{field}"));
    let unnamed = OWNED_FIELDS.into_iter().filter(|field| !is_named(field));
    let unnamed: Vec<&str> = unnamed.collect();
    if unnamed.len() == OWNED_FIELDS.len() || ESSENTIAL_FIELDS.iter().any(is_named) {
        ESSENTIAL_FIELDS.to_vec()
    } else {
        unnamed
    }
}

fn members(status: &VirtualMachineInstanceStatus, names: &[&str]) -> Map<String, Value> {
    let whole = serde_json::to_value(status).unwrap_or_default();
    let members = names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), whole.get(name)?.clone())));
    let mut members: Map<String, Value> = members.collect();
    if let Some(Value::Object(memory)) = members.get_mut("memory") {
        memory.retain(|name, _| !FOREIGN_MEMORY.contains(&name.as_str()));
        if memory.is_empty() {
            members.remove("memory");
        }
    }
    members
}

fn render<'a>(
    key: &'a Key,
    vmi: &VirtualMachineInstance,
    status: &Map<String, Value>,
) -> Fragment<'a> {
    let body = json!({
        "apiVersion": kubevirt_api::API_VERSION,
        "kind": "VirtualMachineInstance",
        "metadata": {
            "name": vmi.metadata.name,
            "namespace": vmi.metadata.namespace,
            "uid": vmi.metadata.uid,
            "resourceVersion": vmi.metadata.resource_version,
        },
        "status": status,
    });
    Fragment::new(MANAGER, key, body)
}

#[cfg(test)]
mod tests {
    use kubevirt_api::conditions::Condition as _;
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

    fn key() -> Key {
        Key::new("default", "a")
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
        assert!(fragment(&key(), &vmi, &status).is_some());
        vmi.status = Some(status);
        let again = desired(&vmi, &input(&state), &now());
        assert!(fragment(&key(), &vmi, &again).is_none());
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
            bound_interfaces: Vec::new(),
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
        let key = key();
        let applied = fragment(&key, &vmi, &status).unwrap();
        assert_eq!(applied.body()["status"]["guestOSInfo"]["name"], "Debian");
        vmi.status = Some(status);
        for state in [&silent_agent, &empty_report, &without_agent] {
            let status = desired(&vmi, &prepared_input(state), &now());
            let applied = fragment(&key, &vmi, &status).unwrap();
            let applied = &applied.body()["status"];
            assert_eq!(applied.get("guestOSInfo"), None, "{state:?}");
            let is_empty = |value: &Value| *value == json!({}) || *value == json!([]);
            let empty = OWNED_FIELDS
                .iter()
                .filter(|field| applied.get(**field).is_some_and(is_empty));
            assert_eq!(empty.count(), 0, "{applied}");
        }
    }
    #[test]
    fn rejected_fields_are_left_out_so_that_the_rest_is_written() {
        let key = key();
        let mut vmi = scheduled_vmi();
        let paused = GuestState {
            domain: Some(DomainState::PausedByUser),
            machine: Some("q35".to_owned()),
            ..GuestState::default()
        };
        let status = desired(&vmi, &input(&paused), &now());
        let applied = |vmi: &VirtualMachineInstance, message: &str| {
            let fragment = accepted_fragment(&key, vmi, &status, message, &now());
            fragment.map(|fragment| fragment.body()["status"].clone())
        };
        for (message, has_machine) in [
            ("status.guestOSInfo: Invalid value: \"null\"", true),
            ("status.machine.type: Invalid value", false),
            ("it is rejected without a field", false),
            ("status.conditions[0].type: Unsupported value", false),
        ] {
            let written = applied(&vmi, message).unwrap();
            assert_eq!(written["phase"], "Running", "{message}");
            assert_eq!(written.get("machine").is_some(), has_machine, "{message}");
            let written: VirtualMachineInstanceStatus = serde_json::from_value(written).unwrap();
            let list = &written.conditions;
            assert!(conditions::is_true(list, &Condition::Paused), "{message}");
            let synchronized = conditions::find(list, &Condition::Synchronized).unwrap();
            assert_eq!(synchronized.reason(), Reason::FailedStatusUpdate.as_str());
            assert!(synchronized.message().contains(message));
            // The next rejection writes nothing new.
            let before = vmi.status.replace(written);
            assert_eq!(applied(&vmi, message), None, "{message}");
            vmi.status = before;
        }
    }
}
