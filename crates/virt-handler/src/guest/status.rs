//! The part of a VMI's status that virt-handler owns: pure.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::{
    VirtualMachineInstance,
    conditions::{self, ConditionValue},
    domain::Machine,
    vmi_status::{
        VirtualMachineInstanceCondition, VirtualMachineInstanceConditionType as Condition,
        VirtualMachineInstanceNetworkInterface, VirtualMachineInstancePhase as Phase,
        VirtualMachineInstancePhaseTransitionTimestamp, VirtualMachineInstanceStatus, VolumeStatus,
    },
};
use launcher_channel::{DomainState, GuestState};
use model::RegisteredBindings;
use reasons::Reason;

use super::{
    agent, backups,
    interfaces::{self, Attached},
    migratable::{self, Reach, StateSharing},
    nics::{self, Nics},
    observe::Unready,
    outcome::{self, MemoryState, failure, next_phase},
    plan::phase,
    plugged::{self, Plugged},
    resize,
};
use crate::migration::set_progress;

/// Status that is computed while the pod is prepared.
#[derive(Debug, Clone, Default)]
pub(crate) struct PreparedStatus {
    pub(crate) interfaces: Vec<VirtualMachineInstanceNetworkInterface>,
    /// Those whose link in the pod cannot be in a second pod of the node.
    pub(crate) bound_interfaces: Vec<String>,
    pub(crate) volumes: Vec<VolumeStatus>,
}

/// The input of a VMI's status, besides the VMI.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StatusInput<'a> {
    pub(crate) state: Option<&'a GuestState>,
    pub(crate) prepared: Option<&'a PreparedStatus>,
    pub(crate) plugged: Option<&'a Plugged>,
    pub(crate) attached: Option<&'a Attached>,
    pub(crate) memory: MemoryState,
    /// Why the guest does not get the processors or the memory of its spec.
    pub(crate) resize_failure: Option<&'a str>,
    /// Interfaces that come and go.
    pub(super) nics: Option<&'a Nics>,
    /// Set if the pod runs and is not ready.
    pub(crate) unready: Option<Unready<'a>>,
    /// The CPU model of this host is obsolete, so no other node offers it.
    pub(crate) host_model_is_obsolete: bool,
    pub(crate) reach: Reach,
    /// Which pods can have the state that the guest keeps besides its disks.
    pub(crate) kept_state: StateSharing,
    /// The network bindings that the cluster has.
    pub(crate) bindings: &'a RegisteredBindings,
}

#[cfg(test)]
impl Default for StatusInput<'_> {
    fn default() -> Self {
        static NO_BINDINGS: RegisteredBindings = RegisteredBindings::new();
        Self {
            state: None,
            prepared: None,
            plugged: None,
            attached: None,
            memory: MemoryState::default(),
            resize_failure: None,
            nics: None,
            unready: None,
            host_model_is_obsolete: false,
            reach: Reach::default(),
            kept_state: StateSharing::default(),
            bindings: &NO_BINDINGS,
        }
    }
}

/// Why a guest cannot be started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StartRefusal {
    pub(crate) reason: String,
    pub(crate) message: String,
    /// The start is tried again; otherwise the VMI fails.
    pub(crate) transient: bool,
}

/// The desired status. The phase becomes `Running` only from `Scheduled`, which virt-controller
/// writes; a final phase may follow any other.
pub(crate) fn desired(
    vmi: &VirtualMachineInstance,
    input: &StatusInput<'_>,
    now: &Time,
) -> VirtualMachineInstanceStatus {
    let StatusInput {
        state, prepared, ..
    } = *input;
    let mut status = vmi.status.clone().unwrap_or_default();
    let domain = state.and_then(|state| state.domain);
    let next = next_phase(vmi, domain);
    let failure = failure(&next, state, input.memory);
    if next != phase(vmi) {
        if let Some(failure) = &failure {
            status.reason = Some(failure.reason.into());
        }
        if outcome::is_suspended(vmi, domain) {
            status.reason = Some(Reason::Suspended.as_str().to_owned());
        }
        status.phase = Some(next.clone());
        status
            .phase_transition_timestamps
            .push(VirtualMachineInstancePhaseTransitionTimestamp {
                phase: Some(next.clone()),
                phase_transition_timestamp: Some(now.clone()),
            });
    }
    // A guest that was refused at its start has no domain, and its VMI says why already.
    let is_explained = next == phase(vmi) && domain.is_none();
    if matches!(next, Phase::Succeeded | Phase::Failed) && !is_explained {
        let message = failure.map(|failure| failure.message);
        set_final_ready(&mut status, message.as_deref(), now);
    }
    set_conditions(&mut status, &next, input, now);
    if next == Phase::Running {
        let migratable_input = migratable::Input {
            vmi,
            host_model_is_obsolete: input.host_model_is_obsolete,
            reach: input.reach,
            state: input.kept_state,
            bound_interfaces: prepared.map(|prepared| &*prepared.bound_interfaces),
            bindings: input.bindings,
        };
        migratable::set(&mut status, &migratable_input, now);
        let agent = state.and_then(|state| state.agent.as_deref());
        status.guest_os_info = agent
            .and_then(|agent| agent.os.clone())
            .and_then(agent::os_info);
        status.fs_freeze_status = agent.and_then(|agent| agent.freeze.clone());
        if let Some(machine) = state.and_then(|state| state.machine.clone()) {
            status.machine = Some(Machine {
                type_: Some(machine),
            });
        }
        let size = state.and_then(|state| state.size);
        resize::set_status(&mut status, vmi, size, input.resize_failure, now);
        if let Some(prepared) = prepared {
            let none = Attached::default();
            let attached = input.attached.unwrap_or(&none);
            let known = &prepared.interfaces;
            let live = state.and_then(|state| nics::shown(vmi, state, attached, input.nics));
            status.interfaces = interfaces::list(vmi, known, agent, attached, live.as_ref());
            if let Some(state) = state {
                interfaces::set_links(&mut status.interfaces, &state.links);
            }
            let plugged = input.plugged.cloned().unwrap_or_default();
            let unknown = GuestState::default();
            let known = state;
            let state = known.unwrap_or(&unknown);
            let at_start = &prepared.volumes;
            status.volume_status = plugged::volume_status(vmi, at_start, &plugged, state, now);
            backups::advance(vmi, &mut status, &plugged, known, now);
        }
    }
    status
}

/// Reasons of a running guest that lacks a part of its spec.
const LACKS: [Reason; 4] = [
    Reason::FilesystemLost,
    Reason::InterfaceNotInPod,
    Reason::InterfaceNotPlugged,
    Reason::InterfaceNotReleased,
];

fn set_final_ready(status: &mut VirtualMachineInstanceStatus, message: Option<&str>, now: &Time) {
    let message = message.unwrap_or("the guest has ended");
    let ending = status.reason.as_deref().unwrap_or_default();
    let advised = reasons::advise(ending, message);
    let ready = ConditionValue::fails(Reason::GuestNotRunning, &advised);
    conditions::set(&mut status.conditions, Condition::Ready, &ready, now);
}

fn set_conditions(
    status: &mut VirtualMachineInstanceStatus,
    phase: &Phase,
    input: &StatusInput<'_>,
    now: &Time,
) {
    let StatusInput {
        state,
        unready,
        nics,
        reach,
        ..
    } = *input;
    let list = &mut status.conditions;
    let domain = state.and_then(|state| state.domain);
    let migration = state.and_then(|state| state.migration.as_deref());
    set_progress(list, migration.filter(|_| *phase == Phase::Running), now);
    if *phase != Phase::Running {
        conditions::remove(list, &Condition::Paused);
        conditions::remove(list, &Condition::MigrationRequired);
        let synchronized = conditions::find(list, &Condition::Synchronized);
        let reason = synchronized.and_then(|condition| condition.reason.as_deref());
        // What a guest lacked does not explain its end.
        if LACKS.iter().any(|lack| reason == Some(lack.as_str())) {
            conditions::remove(list, &Condition::Synchronized);
        }
        agent::set_conditions(list, None, now);
        return;
    }
    let paused = match domain {
        // libvirt shows it as a pause of the copy, and only one from before the copy as one of the user.
        Some(DomainState::PausedByUser | DomainState::PausedOther)
            if migration.is_some_and(|one| one.paused) =>
        {
            Some((
                Reason::PausedByMigrationMonitor,
                "VMI was paused by the migration monitor".to_owned(),
            ))
        }
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
        let paused = ConditionValue {
            status: conditions::TRUE,
            reason: reason.as_str(),
            message: &reason.advise(&message),
        };
        conditions::set(list, Condition::Paused, &paused, now);
        let message = reason.advise("the guest is paused");
        let ready = ConditionValue::fails(Reason::GuestNotRunning, &message);
        conditions::set(list, Condition::Ready, &ready, now);
    } else {
        conditions::remove(list, &Condition::Paused);
        match unready {
            None => conditions::set(list, Condition::Ready, &ConditionValue::holds(), now),
            Some(unready) => {
                let ready = ConditionValue::like_its_pod(unready.reason, unready.message);
                let message = &reasons::advise(ready.reason, ready.message);
                let ready = ConditionValue { message, ..ready };
                conditions::set(list, Condition::Ready, &ready, now);
            }
        }
    }
    set_synchronized(list, state, nics, now);
    // It stays as it is while the guest's interfaces are not known.
    if state.is_some_and(|state| state.interfaces().is_some()) {
        set_migration_required(list, nics.filter(|_| reach == Reach::OtherNodes), now);
    }
    agent::set_conditions(list, state.and_then(|state| state.agent.as_deref()), now);
}

/// True while the guest needs another pod for its networks. On a single host another one would join no more than this.
fn set_migration_required(
    list: &mut Vec<VirtualMachineInstanceCondition>,
    nics: Option<&Nics>,
    now: &Time,
) {
    let kind = Condition::MigrationRequired;
    let is_known = conditions::is_true(list, &kind);
    if nics.is_some_and(|nics| nics.needs_move(is_known)) {
        let required = ConditionValue {
            reason: Reason::AutoMigrationDueToLiveUpdate.as_str(),
            ..ConditionValue::holds()
        };
        conditions::set(list, kind, &required, now);
    } else {
        conditions::remove(list, &kind);
    }
}

/// False while the guest lacks a part of its spec.
fn set_synchronized(
    list: &mut Vec<VirtualMachineInstanceCondition>,
    state: Option<&GuestState>,
    nics: Option<&Nics>,
    now: &Time,
) {
    let lost = state.map_or(&[][..], |state| state.lost_filesystems.as_slice());
    if lost.is_empty() {
        match nics.and_then(Nics::failure) {
            None => conditions::remove(list, &Condition::Synchronized),
            Some(failure) => {
                let message = failure.reason.advise(&failure.message);
                let lacks = ConditionValue::fails(failure.reason, &message);
                conditions::set(list, Condition::Synchronized, &lacks, now);
            }
        }
        return;
    }
    let message = format!(
        "the guest cannot use the filesystem {} any more: its server has ended",
        lost.join(", ")
    );
    let reason = Reason::FilesystemLost;
    let message = reason.advise(&message);
    let lost = ConditionValue::fails(reason, &message);
    conditions::set(list, Condition::Synchronized, &lost, now);
}

/// The status of a VMI whose guest cannot be started: waiting with the reason in its condition after
/// a transient refusal, failed after a permanent one.
pub(crate) fn start_refused(
    vmi: &VirtualMachineInstance,
    refusal: &StartRefusal,
    now: &Time,
) -> VirtualMachineInstanceStatus {
    let mut status = vmi.status.clone().unwrap_or_default();
    let StartRefusal {
        reason,
        message,
        transient,
    } = refusal;
    let advised = reasons::advise(reason, message);
    let synchronized = ConditionValue::fails(reason.as_str(), &advised);
    let list = &mut status.conditions;
    conditions::set(list, Condition::Synchronized, &synchronized, now);
    if !transient {
        status.phase = Some(Phase::Failed);
        status.reason = Some(reason.clone());
        status
            .phase_transition_timestamps
            .push(VirtualMachineInstancePhaseTransitionTimestamp {
                phase: Some(Phase::Failed),
                phase_transition_timestamp: Some(now.clone()),
            });
        set_final_ready(&mut status, Some(message), now);
    }
    status
}

#[cfg(test)]
mod tests {
    use launcher_channel::{MigrationReport, MigrationStage, StopReason};

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
        desired(&vmi(phase, None), &input(&state), &now())
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
    fn lost_filesystem_is_reported_until_the_guest_has_ended() {
        let after = |before: &VirtualMachineInstance, domain, lost: &[&str]| {
            let state = GuestState {
                domain: Some(domain),
                lost_filesystems: lost.iter().map(ToString::to_string).collect(),
                ..GuestState::default()
            };
            desired(before, &input(&state), &now())
        };
        let message = |status: &VirtualMachineInstanceStatus| {
            let found = conditions::find(&status.conditions, &Condition::Synchronized);
            found.and_then(|condition| condition.message.clone())
        };
        let running = vmi(Phase::Running, None);
        let lost = after(&running, DomainState::Running, &["a", "b"]);
        let text = message(&lost).unwrap();
        assert!(text.contains("the filesystem a, b any more"), "{text}");
        let whole = after(&running, DomainState::Running, &[]);
        assert_eq!(message(&whole), None);
        let losing = VirtualMachineInstance {
            status: Some(lost),
            ..running
        };
        let ended = DomainState::Stopped(StopReason::Shutdown);
        assert_eq!(message(&after(&losing, ended, &[])), None);
    }

    #[test]
    fn failed_guest_has_a_reason_and_io_error_names_the_disk() {
        let state = GuestState {
            domain: Some(DomainState::Stopped(StopReason::Panicked)),
            ..GuestState::default()
        };
        let status = desired(&vmi(Phase::Running, None), &input(&state), &now());
        assert_eq!(status.phase, Some(Phase::Failed));
        assert_eq!(status.reason.as_deref(), Some("GuestPanicked"));
        let ready = conditions::find(&status.conditions, &Condition::Ready).unwrap();
        let message = ready.message.as_deref().unwrap();
        let expected = format!(
            "the guest kernel panicked. {}",
            Reason::GuestPanicked.remedy()
        );
        assert_eq!(message, expected);

        let state = GuestState {
            domain: Some(DomainState::PausedByIoError),
            note: Some("disk root: its storage is full".to_owned()),
            ..GuestState::default()
        };
        let status = desired(&vmi(Phase::Running, None), &input(&state), &now());
        let paused = conditions::find(&status.conditions, &Condition::Paused).unwrap();
        assert_eq!(paused.reason.as_deref(), Some("PausedIOError"));
        let message = paused.message.as_deref().unwrap();
        assert!(
            message.contains("IO error detected: disk root: its storage is full. "),
            "{message}"
        );
    }

    #[test]
    fn vmi_whose_start_was_refused_keeps_the_reason() {
        let refusal = StartRefusal {
            reason: "DomainNotRenderable".to_owned(),
            message: "no such slot".to_owned(),
            transient: false,
        };
        let mut refused = vmi(Phase::Scheduled, None);
        refused.status = Some(start_refused(&refused, &refusal, &now()));
        let status = desired(&refused, &input(&GuestState::default()), &now());
        let ready = conditions::find(&status.conditions, &Condition::Ready).unwrap();
        let message = ready.message.as_deref().unwrap_or_default();
        assert!(message.starts_with("no such slot"), "{message}");
    }

    #[test]
    fn running_is_reported_only_after_hand_over() {
        let running = Some(DomainState::Running);
        assert_eq!(
            after(Phase::Scheduling, running).phase,
            Some(Phase::Scheduling)
        );
        assert_eq!(after(Phase::Scheduled, running).phase, Some(Phase::Running));
    }

    #[test]
    fn paused_guest_is_not_ready_and_resumed_guest_is() {
        let paused = after(Phase::Running, Some(DomainState::PausedByUser));
        assert!(conditions::is_true(&paused.conditions, &Condition::Paused));
        assert!(conditions::is_false(&paused.conditions, &Condition::Ready));
        let resumed = after(Phase::Running, Some(DomainState::Running));
        assert!(conditions::find(&resumed.conditions, &Condition::Paused).is_none());
        assert!(conditions::is_true(&resumed.conditions, &Condition::Ready));
    }

    /// Issue: libvirt shows the pause for the end of a copy as its own, for which there was no condition.
    #[test]
    fn pause_for_the_end_of_a_copy_is_shown() {
        for (domain, paused, expected) in [
            (
                DomainState::PausedOther,
                true,
                Some(Reason::PausedByMigrationMonitor),
            ),
            (
                DomainState::PausedByUser,
                true,
                Some(Reason::PausedByMigrationMonitor),
            ),
            // The moment at the end of each copy.
            (DomainState::PausedOther, false, None),
            (DomainState::PausedByUser, false, Some(Reason::PausedByUser)),
        ] {
            let report = MigrationReport {
                id: "m".to_owned(),
                stage: MigrationStage::Copying,
                progress: None,
                can_switch: true,
                needs_no_switch: true,
                paused,
            };
            let state = GuestState {
                domain: Some(domain),
                migration: Some(Box::new(report)),
                ..GuestState::default()
            };
            let status = desired(&vmi(Phase::Running, None), &input(&state), &now());
            let shown = conditions::find(&status.conditions, &Condition::Paused);
            let shown = shown.and_then(|one| one.reason.as_deref());
            assert_eq!(shown, expected.map(Reason::as_str), "{domain:?} {paused}");
        }
    }

    #[test]
    fn conditions_end_with_the_remedy_of_their_reason() {
        let message = |status: &VirtualMachineInstanceStatus, kind: &Condition| {
            let condition = conditions::find(&status.conditions, kind).unwrap();
            condition.message.clone().unwrap_or_default()
        };
        for (domain, reason) in [
            (DomainState::PausedByUser, Reason::PausedByUser),
            (DomainState::PausedByIoError, Reason::PausedIOError),
        ] {
            let status = after(Phase::Running, Some(domain));
            for kind in [Condition::Paused, Condition::Ready] {
                let text = message(&status, &kind);
                assert!(text.ends_with(&format!(". {}", reason.remedy())), "{text}");
            }
        }
        for (ending, reason) in [
            (StopReason::Panicked, Reason::GuestPanicked),
            (StopReason::Watchdog, Reason::WatchdogExpired),
            (StopReason::StartFailed, Reason::StartFailed),
            (StopReason::Destroyed, Reason::ShutdownForced),
            (StopReason::Crashed, Reason::QEMUCrashed),
        ] {
            let status = after(Phase::Running, Some(DomainState::Stopped(ending)));
            if status.phase == Some(Phase::Succeeded) {
                continue;
            }
            let text = message(&status, &Condition::Ready);
            assert!(text.ends_with(&format!(". {}", reason.remedy())), "{text}");
        }
        let state = GuestState {
            domain: Some(DomainState::Running),
            ..GuestState::default()
        };
        let unready = StatusInput {
            unready: Some(Unready {
                reason: Some("ContainersNotReady"),
                message: Some("containers with unready status: [compute]"),
            }),
            ..input(&state)
        };
        let status = desired(&vmi(Phase::Running, None), &unready, &now());
        let text = message(&status, &Condition::Ready);
        assert!(
            text.starts_with("containers with unready status: [compute]. "),
            "{text}"
        );
        assert!(
            text.ends_with(Reason::ContainersNotReady.remedy()),
            "{text}"
        );
    }

    #[test]
    fn guest_is_ready_when_its_pod_is() {
        let state = GuestState {
            domain: Some(DomainState::Running),
            ..GuestState::default()
        };
        let unreachable = StatusInput {
            unready: Some(Unready {
                reason: None,
                message: None,
            }),
            ..input(&state)
        };
        let status = desired(&vmi(Phase::Running, None), &unreachable, &now());
        let ready = conditions::find(&status.conditions, &Condition::Ready).unwrap();
        assert_eq!(ready.status, conditions::FALSE);
        assert_eq!(ready.message.as_deref(), Some(conditions::OUT_OF_REACH));
        let recovered = VirtualMachineInstance {
            status: Some(status),
            ..vmi(Phase::Running, None)
        };
        let status = desired(&recovered, &input(&state), &now());
        assert!(conditions::is_true(&status.conditions, &Condition::Ready));
    }
}
