//! The part of a VMI's status that this node agent owns: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, Statement},
    domain::Machine,
    reasons::vmi as reasons,
    vmi_status::{
        VirtualMachineInstanceConditionType as Condition, VirtualMachineInstanceGuestOsInfo,
        VirtualMachineInstanceNetworkInterface, VirtualMachineInstancePhase as Phase,
        VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus, VolumeStatus,
    },
};
use launcher_channel::{DomainState, GuestState, StopReason};
use serde_json::{Value, json};

use super::plan::{grace_seconds, phase};

/// What this process knows of a guest besides the launcher's word.
#[derive(Debug, Clone, Default)]
pub(crate) struct Known {
    pub(crate) interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    pub(crate) volumes: Vec<VolumeStatus>,
}

/// The status as it should be. The phase moves on to Running only from Scheduled, which the
/// controller writes; final phases are reached from anywhere.
pub(crate) fn desired(
    vmi: &VirtualMachineInstance,
    state: Option<&GuestState>,
    known: Option<&Known>,
    now: &Time,
) -> VirtualMachineInstanceStatus {
    let mut status = vmi.status.clone().unwrap_or_default();
    let domain = state.and_then(|state| state.domain);
    let next = next_phase(vmi, domain);
    if next != phase(vmi) {
        status.phase = Some(next.clone());
        status
            .phase_transition_timestamps
            .push(VirtualMachineInstancePhaseTransitionTimestamp {
                phase: Some(next.clone()),
                phase_transition_timestamp: Some(now.clone()),
            });
    }
    set_conditions(&mut status, &next, domain, now);
    if next == Phase::Running {
        status
            .guest_os_info
            .get_or_insert_with(VirtualMachineInstanceGuestOsInfo::default);
        if let Some(machine) = state.and_then(|state| state.machine.clone()) {
            status.machine = Some(Machine {
                type_: Some(machine),
            });
        }
        if let Some(known) = known {
            status.interfaces.clone_from(&known.interfaces);
            status.volume_status.clone_from(&known.volumes);
        }
    }
    status
}

fn next_phase(vmi: &VirtualMachineInstance, domain: Option<DomainState>) -> Phase {
    let deleted = vmi.metadata.deletion_timestamp.is_some();
    match (phase(vmi), domain) {
        (_, Some(DomainState::Stopped(reason))) => final_phase(vmi, reason),
        (_, None) if deleted => Phase::Failed,
        (Phase::Scheduled, Some(_)) => Phase::Running,
        (current, _) => current,
    }
}

/// How an ended guest is judged.
fn final_phase(vmi: &VirtualMachineInstance, reason: StopReason) -> Phase {
    match reason {
        // Destroyed although it had the chance to power off by itself: it did not end well.
        StopReason::Destroyed if acpi(vmi) && grace_seconds(vmi) > 0 => Phase::Failed,
        StopReason::Shutdown | StopReason::Migrated | StopReason::Destroyed => Phase::Succeeded,
        StopReason::Crashed
        | StopReason::Panicked
        | StopReason::StartFailed
        | StopReason::Unknown => Phase::Failed,
    }
}

fn acpi(vmi: &VirtualMachineInstance) -> bool {
    let features = vmi.spec.domain.features.as_ref();
    let acpi = features.and_then(|features| features.acpi.as_ref());
    acpi.and_then(|acpi| acpi.enabled).unwrap_or(true)
}

fn set_conditions(
    status: &mut VirtualMachineInstanceStatus,
    phase: &Phase,
    domain: Option<DomainState>,
    now: &Time,
) {
    let list = &mut status.conditions;
    if *phase != Phase::Running {
        conditions::remove(list, &Condition::Paused);
        if matches!(phase, Phase::Succeeded | Phase::Failed) {
            let says = Statement::fails(reasons::GUEST_NOT_RUNNING, "the guest has ended");
            conditions::set(list, Condition::Ready, &says, now);
        }
        return;
    }
    let paused = match domain {
        Some(DomainState::PausedByUser) => {
            Some((reasons::PAUSED_BY_USER, "VMI was paused by user"))
        }
        Some(DomainState::PausedByIoError) => Some((
            reasons::PAUSED_IO_ERROR,
            "VMI was paused, low-level IO error detected",
        )),
        _ => None,
    };
    if let Some((reason, message)) = paused {
        let says = Statement {
            status: conditions::TRUE,
            reason,
            message,
        };
        conditions::set(list, Condition::Paused, &says, now);
        let says = Statement::fails(reasons::GUEST_NOT_RUNNING, "the guest is paused");
        conditions::set(list, Condition::Ready, &says, now);
    } else {
        conditions::remove(list, &Condition::Paused);
        conditions::set(list, Condition::Ready, &Statement::holds(), now);
    }
    conditions::remove(list, &Condition::Synchronized);
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
    let says = Statement::fails(reason, message);
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
const OURS: [&str; 8] = [
    "phase",
    "reason",
    "phaseTransitionTimestamps",
    "conditions",
    "interfaces",
    "machine",
    "guestOSInfo",
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
        desired(&vmi(phase, None), Some(&state), None, &now())
    }

    fn now() -> Time {
        Time(jiff::Timestamp::UNIX_EPOCH)
    }

    #[test]
    fn a_guest_that_ended_is_judged_by_how_it_ended() {
        let table = [
            (StopReason::Shutdown, None, Phase::Succeeded),
            (StopReason::Destroyed, None, Phase::Failed),
            (StopReason::Destroyed, Some(0), Phase::Succeeded),
            (StopReason::Crashed, None, Phase::Failed),
            (StopReason::Panicked, None, Phase::Failed),
            (StopReason::StartFailed, None, Phase::Failed),
        ];
        for (reason, grace, expected) in table {
            let state = DomainState::Stopped(reason);
            let vmi = vmi(Phase::Running, grace);
            assert_eq!(
                next_phase(&vmi, Some(state)),
                expected,
                "{reason:?} {grace:?}"
            );
        }
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
    fn nothing_new_is_not_written() {
        let mut vmi = vmi(Phase::Scheduled, None);
        let state = GuestState {
            domain: Some(DomainState::Running),
            ..GuestState::default()
        };
        let status = desired(&vmi, Some(&state), None, &now());
        assert!(fragment(&vmi, &status).is_some());
        vmi.status = Some(status);
        let again = desired(&vmi, Some(&state), None, &now());
        assert_eq!(fragment(&vmi, &again), None);
    }
}
