//! The part of a VMI's status that this node agent owns: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, ConditionValue},
    domain::Machine,
    vmi_status::{
        VirtualMachineInstanceConditionType as Condition, VirtualMachineInstanceNetworkInterface,
        VirtualMachineInstancePhase as Phase, VirtualMachineInstancePhaseTransitionTimestamp,
        VirtualMachineInstanceStatus, VolumeStatus,
    },
};
use launcher_channel::{DomainState, GuestState};
use reasons::Reason;
use serde_json::{Value, json};

use super::{
    agent,
    ending::{Memory, cause, next_phase},
    migratable,
    plan::phase,
};

/// What this process knows of a guest besides the launcher's word.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    pub(crate) volumes: Vec<VolumeStatus>,
}

/// All that is known of a guest now.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Seen<'a> {
    pub(crate) state: Option<&'a GuestState>,
    pub(crate) known: Option<&'a Known>,
    pub(crate) memory: Memory,
    /// Reason and message of a pod that runs and is not ready.
    pub(crate) unready: Option<(Option<&'a str>, Option<&'a str>)>,
    /// No other node would take the model of this host.
    pub(crate) host_model_is_obsolete: bool,
}

/// The status as it should be. The phase moves on to Running only from Scheduled, which the
/// controller writes; final phases are reached from anywhere.
pub(crate) fn desired(
    vmi: &VirtualMachineInstance,
    seen: &Seen<'_>,
    now: &Time,
) -> VirtualMachineInstanceStatus {
    let Seen { state, known, .. } = *seen;
    let mut status = vmi.status.clone().unwrap_or_default();
    let domain = state.and_then(|state| state.domain);
    let next = next_phase(vmi, domain);
    let cause = cause(&next, state, seen.memory);
    if next != phase(vmi) {
        if let Some((reason, _)) = &cause {
            status.reason = Some((*reason).into());
        }
        status.phase = Some(next.clone());
        status
            .phase_transition_timestamps
            .push(VirtualMachineInstancePhaseTransitionTimestamp {
                phase: Some(next.clone()),
                phase_transition_timestamp: Some(now.clone()),
            });
    }
    let why = cause.map(|(_, sentence)| sentence);
    set_conditions(&mut status, (&next, why), seen, now);
    if next == Phase::Running {
        let input = migratable::Input {
            vmi,
            host_model_is_obsolete: seen.host_model_is_obsolete,
        };
        migratable::set(&mut status, &input, now);
        let agent = state.and_then(|state| state.agent.as_deref());
        status.guest_os_info = Some(
            agent
                .and_then(|agent| agent.os.clone())
                .map(agent::os)
                .unwrap_or_default(),
        );
        status.fs_freeze_status = agent.and_then(|agent| agent.freeze.clone());
        if let Some(machine) = state.and_then(|state| state.machine.clone()) {
            status.machine = Some(Machine {
                type_: Some(machine),
            });
        }
        if let Some(known) = known {
            status.interfaces = agent::interfaces(vmi, &known.interfaces, agent);
            status.volume_status.clone_from(&known.volumes);
        }
    }
    status
}

fn set_conditions(
    status: &mut VirtualMachineInstanceStatus,
    (phase, why): (&Phase, Option<String>),
    seen: &Seen<'_>,
    now: &Time,
) {
    let Seen { state, unready, .. } = *seen;
    let list = &mut status.conditions;
    let domain = state.and_then(|state| state.domain);
    if *phase != Phase::Running {
        conditions::remove(list, &Condition::Paused);
        agent::set_conditions(list, None, now);
        if matches!(phase, Phase::Succeeded | Phase::Failed) {
            let message = why.as_deref().unwrap_or("the guest has ended");
            let says = ConditionValue::fails(Reason::GuestNotRunning, message);
            conditions::set(list, Condition::Ready, &says, now);
        }
        return;
    }
    let paused = match domain {
        Some(DomainState::PausedByUser) => {
            Some((Reason::PausedByUser, "VMI was paused by user".to_owned()))
        }
        Some(DomainState::PausedByIoError) => {
            let mut message = "VMI was paused, low-level IO error detected".to_owned();
            if let Some(note) = state.and_then(|state| state.note.as_deref()) {
                message.push_str(": ");
                message.push_str(note);
            }
            Some((Reason::PausedIOError, message))
        }
        _ => None,
    };
    if let Some((reason, message)) = paused {
        let says = ConditionValue {
            status: conditions::TRUE,
            reason: reason.as_str(),
            message: &message,
        };
        conditions::set(list, Condition::Paused, &says, now);
        let says = ConditionValue::fails(Reason::GuestNotRunning, "the guest is paused");
        conditions::set(list, Condition::Ready, &says, now);
    } else {
        conditions::remove(list, &Condition::Paused);
        let says = unready.map_or_else(ConditionValue::holds, |(reason, message)| {
            ConditionValue::like_its_pod(reason, message)
        });
        conditions::set(list, Condition::Ready, &says, now);
    }
    conditions::remove(list, &Condition::Synchronized);
    agent::set_conditions(list, state.and_then(|state| state.agent.as_deref()), now);
}

/// Says why the guest cannot be started. `last` when it never will be.
pub(crate) fn start_refused(
    vmi: &VirtualMachineInstance,
    refusal: (&str, &str),
    last: bool,
    now: &Time,
) -> VirtualMachineInstanceStatus {
    let mut status = vmi.status.clone().unwrap_or_default();
    let (reason, message) = refusal;
    let advised = reason.parse::<Reason>().map(|known| known.advise(message));
    let says = ConditionValue::fails(reason, advised.as_deref().unwrap_or(message));
    conditions::set(&mut status.conditions, Condition::Synchronized, &says, now);
    if last {
        status.phase = Some(Phase::Failed);
        status.reason = Some(reason.to_owned());
        status
            .phase_transition_timestamps
            .push(VirtualMachineInstancePhaseTransitionTimestamp {
                phase: Some(Phase::Failed),
                phase_transition_timestamp: Some(now.clone()),
            });
    }
    status
}

/// The members of a VMI's status that this component applies.
const OURS: [&str; 10] = [
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

/// What of `status` is ours to apply, or `None` if the VMI says it already.
pub(crate) fn fragment(
    vmi: &VirtualMachineInstance,
    status: &VirtualMachineInstanceStatus,
) -> Option<Value> {
    let current = vmi.status.clone().unwrap_or_default();
    if *status == current {
        return None;
    }
    let whole = serde_json::to_value(status).unwrap_or_default();
    let ours: serde_json::Map<String, Value> = OURS
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
        "status": ours,
    }))
}

#[cfg(test)]
mod tests {
    use launcher_channel::StopReason;

    use super::*;

    fn vmi(phase: Phase, grace: Option<i64>) -> VirtualMachineInstance {
        let mut vmi = VirtualMachineInstance::default();
        vmi.spec.termination_grace_period_seconds = grace;
        vmi.status = Some(VirtualMachineInstanceStatus {
            phase: Some(phase),
            ..Default::default()
        });
        vmi
    }

    fn after(phase: Phase, domain: Option<DomainState>) -> VirtualMachineInstanceStatus {
        let state = GuestState {
            domain,
            ..GuestState::default()
        };
        desired(&vmi(phase, None), &seen(&state), &now())
    }

    fn seen(state: &GuestState) -> Seen<'_> {
        Seen {
            state: Some(state),
            ..Seen::default()
        }
    }

    fn now() -> Time {
        Time(jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_failed_guest_says_why_and_a_disk_that_fails_is_named() {
        let state = GuestState {
            domain: Some(DomainState::Stopped(StopReason::Panicked)),
            ..GuestState::default()
        };
        let status = desired(&vmi(Phase::Running, None), &seen(&state), &now());
        assert_eq!(status.phase, Some(Phase::Failed));
        assert_eq!(status.reason.as_deref(), Some("GuestPanicked"));
        let ready = conditions::find(&status.conditions, &Condition::Ready).unwrap();
        assert_eq!(
            ready.message.as_deref(),
            Some("the guest's kernel panicked")
        );

        let state = GuestState {
            domain: Some(DomainState::PausedByIoError),
            note: Some("disk root: its storage is full".to_owned()),
            ..GuestState::default()
        };
        let status = desired(&vmi(Phase::Running, None), &seen(&state), &now());
        let paused = conditions::find(&status.conditions, &Condition::Paused).unwrap();
        assert_eq!(paused.reason.as_deref(), Some("PausedIOError"));
        let message = paused.message.as_deref().unwrap();
        assert!(
            message.ends_with("IO error detected: disk root: its storage is full"),
            "{message}"
        );
    }

    #[test]
    fn running_is_reported_only_once_the_controller_has_handed_over() {
        let running = Some(DomainState::Running);
        assert_eq!(
            after(Phase::Scheduling, running).phase,
            Some(Phase::Scheduling)
        );
        assert_eq!(after(Phase::Scheduled, running).phase, Some(Phase::Running));
    }

    #[test]
    fn a_paused_guest_is_not_ready_and_a_resumed_one_is() {
        let paused = after(Phase::Running, Some(DomainState::PausedByUser));
        assert!(conditions::is_true(&paused.conditions, &Condition::Paused));
        assert!(conditions::is_false(&paused.conditions, &Condition::Ready));
        let resumed = after(Phase::Running, Some(DomainState::Running));
        assert!(conditions::find(&resumed.conditions, &Condition::Paused).is_none());
        assert!(conditions::is_true(&resumed.conditions, &Condition::Ready));
    }

    #[test]
    fn a_guest_is_ready_when_its_pod_is() {
        let state = GuestState {
            domain: Some(DomainState::Running),
            ..GuestState::default()
        };
        let cut_off = Seen {
            unready: Some((None, None)),
            ..seen(&state)
        };
        let status = desired(&vmi(Phase::Running, None), &cut_off, &now());
        let ready = conditions::find(&status.conditions, &Condition::Ready).unwrap();
        assert_eq!(ready.status, conditions::FALSE);
        assert_eq!(ready.message.as_deref(), Some(conditions::OUT_OF_REACH));
        let back = VirtualMachineInstance {
            status: Some(status),
            ..vmi(Phase::Running, None)
        };
        let status = desired(&back, &seen(&state), &now());
        assert!(conditions::is_true(&status.conditions, &Condition::Ready));
    }

    #[test]
    fn nothing_new_is_not_written() {
        let mut vmi = vmi(Phase::Scheduled, None);
        let state = GuestState {
            domain: Some(DomainState::Running),
            ..GuestState::default()
        };
        let status = desired(&vmi, &seen(&state), &now());
        assert!(fragment(&vmi, &status).is_some());
        vmi.status = Some(status);
        let again = desired(&vmi, &seen(&state), &now());
        assert_eq!(fragment(&vmi, &again), None);
    }
}
