//! Causes that the VM itself shows.

use kubevirt_api::{
    conditions::{self, Condition as _},
    vm::VirtualMachineRunStrategy as Strategy,
    vm_status::VirtualMachineConditionType,
    vmi_status::VirtualMachineInstancePhase as Phase,
};
use reasons::Reason;

use crate::{Finding, Observed, observed::time_of, pods};

/// How long virt-controller may take to process a new VM, in seconds.
const FIRST_RECONCILE: i64 = 30;

pub(crate) fn name_taken(observed: &Observed) -> Vec<Finding> {
    let (Some(vm), Some(vmi)) = (&observed.vm, &observed.vmi) else {
        return Vec::new();
    };
    if observed.own_vmi().is_some() || vm.metadata.uid.is_none() {
        return Vec::new();
    }
    let owners = vmi.metadata.owner_references.iter().flatten();
    let owners: Vec<String> = owners
        .map(|owner| format!("{} {}", owner.kind, owner.name))
        .collect();
    let owner = owners.join(", ");
    let sentence = format!(
        "A VMI of this name belongs to {owner}, so the VM cannot create its own; delete that VMI or \
         rename the VM."
    );
    vec![
        Finding::new(sentence)
            .evidence(observed.vmi_object(), "metadata.ownerReferences", owner)
            .next(observed.kubectl(&format!("delete vmi {}", observed.name))),
    ]
}

pub(crate) fn controller_silent(observed: &Observed) -> Vec<Finding> {
    let Some(vm) = &observed.vm else {
        return Vec::new();
    };
    let status = vm.status.as_ref();
    let is_processed = status.is_some_and(|status| !status.conditions.is_empty());
    if is_processed || !observed.is_older(vm.metadata.creation_timestamp.as_ref(), FIRST_RECONCILE)
    {
        return Vec::new();
    }
    vec![
        Finding::new("No controller has processed the VM; virt-controller does not run.")
            .evidence(observed.vm_object(), "status.conditions", "none")
            .next(observed.in_installation("get pods  # on a single host: ferrovirt status")),
    ]
}

pub(crate) fn manual_recovery(observed: &Observed) -> Vec<Finding> {
    let Some(condition) = observed.vm_condition("ManualRecoveryRequired") else {
        return Vec::new();
    };
    let sentence = "The guest ended while its volumes were copied to other claims, which may be incomplete; it does not start on them.";
    vec![
        Finding::new(sentence)
            .because(Reason::ManualRecoveryRequired)
            .evidence(
                observed.vm_object(),
                "status.conditions[ManualRecoveryRequired]",
                condition.message(),
            )
            .next(observed.kubectl(&format!("edit vm {}", observed.name))),
    ]
}

pub(crate) fn crash_loop(observed: &Observed) -> Vec<Finding> {
    let status = observed.vm.as_ref().and_then(|vm| vm.status.as_ref());
    let Some(failure) = status.and_then(|status| status.start_failure.as_ref()) else {
        return Vec::new();
    };
    let count = failure.consecutive_fail_count.unwrap_or(0);
    // The other strategies start a guest at a user's request only.
    let is_restarted = matches!(
        observed.strategy(),
        Some(Strategy::Always | Strategy::RerunOnFailure)
    );
    if count == 0 || !is_restarted || observed.phase() == Some(Phase::Running) {
        return Vec::new();
    }
    let retry = failure.retry_after_timestamp.as_ref();
    let retry = match retry {
        Some(time) if observed.is_older(Some(time), FIRST_RECONCILE) => {
            format!("the next attempt was due at {} and did not happen", time.0)
        }
        Some(time) => format!("the next attempt is due at {}", time.0),
        None => "no time is set for the next attempt".to_owned(),
    };
    let times = if count == 1 { "once" } else { "repeatedly" };
    let sentence = format!("The guest ended {times} before it ran ({count} in a row); {retry}.");
    let mut finding = Finding::new(sentence).evidence(
        observed.vm_object(),
        "status.startFailure.consecutiveFailCount",
        count.to_string(),
    );
    if let Some(event) = observed.warnings().last() {
        let object = event.involved_object.name.as_deref().unwrap_or_default();
        finding = finding.evidence(
            format!("event of {object}"),
            event.reason.as_deref().unwrap_or_default(),
            event.message.as_deref().unwrap_or_default(),
        );
    }
    let selector = format!("-l vm.kubevirt.io/name={} --tail 50", observed.name);
    vec![finding.next(observed.kubectl(&format!("logs {selector}")))]
}

pub(crate) fn restart_required(observed: &Observed) -> Vec<Finding> {
    let Some(condition) = observed.vm_condition("RestartRequired") else {
        return Vec::new();
    };
    if observed.phase() != Some(Phase::Running) {
        return Vec::new();
    }
    vec![
        Finding::new("The VM was changed, and the change takes effect after a restart.")
            .evidence(
                observed.vm_object(),
                "status.conditions[RestartRequired]",
                condition.message(),
            )
            .next(observed.virtctl(&format!("restart {}", observed.name))),
    ]
}

/// The VMI follows a change of the VM later.
pub(crate) fn change_pending(observed: &Observed) -> Vec<Finding> {
    let shown = observed.vm_condition("ChangePending");
    let shown = shown.filter(|_| observed.phase() == Some(Phase::Running));
    let found = shown.map(|condition| {
        let message = condition.message();
        Finding::new(format!(
            "The VM was changed, and the running guest has not followed yet: {message}"
        ))
        .evidence(
            observed.vm_object(),
            "status.conditions[ChangePending]",
            message,
        )
        .next(observed.kubectl("get virtualmachineinstancemigrations"))
    });
    found.into_iter().collect()
}

/// A finding about the condition `Suspended`, if it has that reason.
fn of_saved_state(observed: &Observed, reason: Reason, sentence: &str, next: &str) -> Vec<Finding> {
    let status = observed.vm.as_ref().and_then(|vm| vm.status.as_ref());
    let kind = VirtualMachineConditionType::from("Suspended");
    let condition = status.and_then(|status| conditions::find(&status.conditions, &kind));
    let Some(condition) = condition.filter(|one| one.reason() == reason.as_str()) else {
        return Vec::new();
    };
    vec![
        Finding::new(sentence)
            .because(reason)
            .evidence(
                observed.vm_object(),
                "status.conditions[Suspended]",
                reason.without_advice(condition.message()),
            )
            .next(observed.virtctl(&format!("{next} {}", observed.name))),
    ]
}

pub(crate) fn resume_failed(observed: &Observed) -> Vec<Finding> {
    let sentence = "The guest could not go on from its saved state, which is kept.";
    of_saved_state(observed, Reason::ResumeFailed, sentence, "resume")
}

pub(crate) fn suspend_failed(observed: &Observed) -> Vec<Finding> {
    let sentence = "The state of the guest could not be saved.";
    of_saved_state(observed, Reason::SuspendFailed, sentence, "suspend")
}

pub(crate) fn suspending(observed: &Observed) -> Vec<Finding> {
    let sentence = "The state of the guest is being saved; then the guest ends.";
    of_saved_state(observed, Reason::Suspending, sentence, "why")
}

pub(crate) fn suspended(observed: &Observed) -> Vec<Finding> {
    let sentence =
        "A user suspended the VM: its state is saved, and it does not run until it is resumed.";
    of_saved_state(observed, Reason::Suspended, sentence, "resume")
}

/// Whether the run strategy does not matter, as the guest goes on from its saved state only.
fn is_suspended(observed: &Observed) -> bool {
    observed.vm_condition("Suspended").is_some()
}

pub(crate) fn halted(observed: &Observed) -> Vec<Finding> {
    let is_halted = observed.strategy() == Some(Strategy::Halted) && !is_suspended(observed);
    if observed.vmi.is_some() || !is_halted {
        return Vec::new();
    }
    let vm = observed.vm.as_ref();
    let running = vm.is_some_and(|vm| vm.spec.running == Some(false));
    let (field, value) = if running {
        ("spec.running", "false")
    } else {
        ("spec.runStrategy", "Halted")
    };
    vec![
        Finding::new("The VM is off, as its spec requests.")
            .evidence(observed.vm_object(), field, value)
            .next(observed.virtctl(&format!("start {}", observed.name))),
    ]
}

/// The VM gets the guest of another VM.
pub(crate) fn awaits_guest(observed: &Observed) -> Vec<Finding> {
    let Some(vmi) = observed.own_vmi() else {
        return Vec::new();
    };
    let status = vmi.status.as_ref();
    let phase = status.and_then(|status| status.phase.as_ref());
    if phase != Some(&Phase::WaitingForSync) {
        return Vec::new();
    }
    let state = status.and_then(|status| status.migration_state.as_ref());
    let last = state.filter(|state| state.failed == Some(true));
    let last = last.and_then(|state| state.failure_reason.as_deref());
    let last = last.map_or_else(String::new, |why| {
        format!(" The last one did not come: {why}.")
    });
    vec![
        Finding::new(format!(
            "The VM waits for the guest of another VM: one migration has to receive it here, and another one, with \
             the same migrationID, has to send it.{last}"
        ))
        .evidence(
            observed.vmi_object(),
            "status.phase",
            Phase::WaitingForSync.as_str(),
        )
        .next(observed.kubectl("get virtualmachineinstancemigrations")),
    ]
}

pub(crate) fn not_started(observed: &Observed) -> Vec<Finding> {
    let is_manual = observed.strategy() == Some(Strategy::Manual) && !is_suspended(observed);
    if observed.vmi.is_some() || !is_manual || observed.is_start_requested() {
        return Vec::new();
    }
    vec![
        Finding::new("The VM is started by users only, and no user has started it.")
            .evidence(observed.vm_object(), "spec.runStrategy", "Manual")
            .next(observed.virtctl(&format!("start {}", observed.name))),
    ]
}

/// The guest shut itself down, and the run strategy does not start it again.
pub(crate) fn ended_well(observed: &Observed) -> Vec<Finding> {
    let start = observed.virtctl(&format!("start {}", observed.name));
    match (observed.strategy(), observed.phase()) {
        (Some(Strategy::Always) | None, Some(Phase::Succeeded)) if observed.vm.is_some() => Vec::new(),
        // An eviction asks the guest to shut down.
        (_, Some(Phase::Succeeded)) if !pods::evicted(observed).is_empty() => Vec::new(),
        (strategy, Some(Phase::Succeeded)) => {
            let finding = Finding::new("The guest shut itself down.").evidence(
                observed.vmi_object(),
                "status.phase",
                "Succeeded",
            );
            let next = match strategy {
                None => observed.kubectl(&format!("delete vmi {}", observed.name)),
                Some(Strategy::Once) => observed.kubectl(&format!(
                    "delete vmi {}  # the VM then runs it once more",
                    observed.name
                )),
                Some(_) => start,
            };
            vec![finding.next(next)]
        }
        (Some(Strategy::RerunOnFailure), None) if has_run(observed) => vec![
            Finding::new("The guest shut itself down, and its run strategy starts it again only after a failure.")
                .evidence(observed.vm_object(), "spec.runStrategy", "RerunOnFailure")
                .next(start),
        ],
        _ => Vec::new(),
    }
}

fn has_run(observed: &Observed) -> bool {
    let status = observed.vm.as_ref().and_then(|vm| vm.status.as_ref());
    observed.vmi.is_none()
        && status.is_some_and(|status| {
            status.run_strategy == Some(Strategy::RerunOnFailure)
                && status.state_change_requests.is_empty()
                && status.start_failure.is_none()
        })
}

/// The latest warning event.
pub(crate) fn warned(observed: &Observed) -> Vec<Finding> {
    let warnings = observed.warnings();
    let Some(event) = warnings.last().filter(|_| !observed.is_as_requested()) else {
        return Vec::new();
    };
    let object = &event.involved_object;
    let kind = object.kind.as_deref().unwrap_or_default();
    let name = object.name.as_deref().unwrap_or_default();
    let reason = event.reason.as_deref().unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default();
    vec![
        Finding::new(format!(
            "The latest warning about {kind} {name} is {reason}: {message}"
        ))
        .reason(reason)
        .evidence(format!("event of {name}"), reason, message)
        .evidence(
            format!("event of {name}"),
            "lastTimestamp",
            time_of(event).to_string(),
        )
        .next(observed.kubectl(&format!("describe {kind} {name}"))),
    ]
}

pub(crate) fn unexplained(observed: &Observed) -> Vec<Finding> {
    if observed.is_as_requested() {
        return Vec::new();
    }
    let (object, name) = match &observed.vm {
        Some(_) => (observed.vm_object(), "vm"),
        None => (observed.vmi_object(), "vmi"),
    };
    vec![
        Finding::new("The guest does not run, and no object that can be read has an explanation.")
            .evidence(object, "", "no condition or event explains it")
            .next(observed.kubectl(&format!("describe {name} {}", observed.name))),
    ]
}
