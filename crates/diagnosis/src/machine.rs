//! What is with the machine itself.

use kubevirt_api::{
    conditions::Condition as _, vm::VirtualMachineRunStrategy as Strategy,
    vm_status::StateChangeRequestAction, vmi_status::VirtualMachineInstancePhase as Phase,
};

use crate::{Finding, Observed, observed::time_of};

/// How long a controller may take to look at a new machine.
const FIRST_LOOK: i64 = 30;

pub(crate) fn name_taken(seen: &Observed) -> Vec<Finding> {
    let (Some(vm), Some(vmi)) = (&seen.vm, &seen.vmi) else {
        return Vec::new();
    };
    if seen.own_vmi().is_some() || vm.metadata.uid.is_none() {
        return Vec::new();
    }
    let owners = vmi.metadata.owner_references.iter().flatten();
    let owners: Vec<String> = owners
        .map(|owner| format!("{} {}", owner.kind, owner.name))
        .collect();
    let whose = owners.join(", ");
    let sentence = format!(
        "An instance of this name belongs to {whose}, so the machine cannot have one; remove that \
         instance, or give the machine another name."
    );
    vec![
        Finding::new(sentence)
            .seen(seen.vmi_object(), "metadata.ownerReferences", whose)
            .next(seen.kubectl(&format!("delete vmi {}", seen.name))),
    ]
}

pub(crate) fn controller_silent(seen: &Observed) -> Vec<Finding> {
    let Some(vm) = &seen.vm else {
        return Vec::new();
    };
    let status = vm.status.as_ref();
    let has_looked = status.is_some_and(|status| !status.conditions.is_empty());
    if has_looked || !seen.is_older(vm.metadata.creation_timestamp.as_ref(), FIRST_LOOK) {
        return Vec::new();
    }
    vec![
        Finding::new("No controller has looked at the machine; virt-controller does not run.")
            .seen(seen.vm_object(), "status.conditions", "none")
            .next("kubectl -n kubevirt get pods  # on a single host: ferrovirt status"),
    ]
}

pub(crate) fn manual_recovery(seen: &Observed) -> Vec<Finding> {
    let Some(condition) = seen.vm_condition("ManualRecoveryRequired") else {
        return Vec::new();
    };
    let sentence = "The machine was left half-way and waits for a person to put its volumes right.";
    vec![
        Finding::new(sentence)
            .seen(
                seen.vm_object(),
                "status.conditions[ManualRecoveryRequired]",
                condition.message(),
            )
            .next(seen.kubectl(&format!("describe vm {}", seen.name))),
    ]
}

pub(crate) fn crash_loop(seen: &Observed) -> Vec<Finding> {
    let status = seen.vm.as_ref().and_then(|vm| vm.status.as_ref());
    let Some(failure) = status.and_then(|status| status.start_failure.as_ref()) else {
        return Vec::new();
    };
    let count = failure.consecutive_fail_count.unwrap_or(0);
    if count == 0 || seen.phase() == Some(Phase::Running) {
        return Vec::new();
    }
    let due = failure.retry_after_timestamp.as_ref();
    let again = match due {
        Some(time) if seen.is_older(Some(time), FIRST_LOOK) => {
            format!(
                "the next try was due at {}, and nothing has come of it",
                time.0
            )
        }
        Some(time) => format!("the next try is due at {}", time.0),
        None => "no time is set for the next try".to_owned(),
    };
    let times = if count == 1 {
        "once"
    } else {
        "again and again"
    };
    let sentence = format!("The guest ended {times} before it ran ({count} in a row); {again}.");
    let mut finding = Finding::new(sentence).seen(
        seen.vm_object(),
        "status.startFailure.consecutiveFailCount",
        count.to_string(),
    );
    if let Some(event) = seen.warnings().last() {
        let object = event.involved_object.name.as_deref().unwrap_or_default();
        finding = finding.seen(
            format!("event of {object}"),
            event.reason.as_deref().unwrap_or_default(),
            event.message.as_deref().unwrap_or_default(),
        );
    }
    let selector = format!("-l vm.kubevirt.io/name={} --tail 50", seen.name);
    vec![finding.next(seen.kubectl(&format!("logs {selector}")))]
}

pub(crate) fn restart_required(seen: &Observed) -> Vec<Finding> {
    let Some(condition) = seen.vm_condition("RestartRequired") else {
        return Vec::new();
    };
    if seen.phase() != Some(Phase::Running) {
        return Vec::new();
    }
    vec![
        Finding::new("The machine was changed, and the change counts from the next start on.")
            .seen(
                seen.vm_object(),
                "status.conditions[RestartRequired]",
                condition.message(),
            )
            .next(seen.virtctl(&format!("restart {}", seen.name))),
    ]
}

pub(crate) fn halted(seen: &Observed) -> Vec<Finding> {
    if seen.vmi.is_some() || seen.strategy() != Some(Strategy::Halted) {
        return Vec::new();
    }
    let vm = seen.vm.as_ref();
    let running = vm.is_some_and(|vm| vm.spec.running == Some(false));
    let (field, says) = if running {
        ("spec.running", "false")
    } else {
        ("spec.runStrategy", "Halted")
    };
    vec![
        Finding::new("The machine is off, as its spec says.")
            .seen(seen.vm_object(), field, says)
            .next(seen.virtctl(&format!("start {}", seen.name))),
    ]
}

pub(crate) fn not_started(seen: &Observed) -> Vec<Finding> {
    let status = seen.vm.as_ref().and_then(|vm| vm.status.as_ref());
    let requests = status.map_or(&[][..], |status| &status.state_change_requests);
    let is_asked = requests
        .iter()
        .any(|request| request.action == StateChangeRequestAction::Start);
    if seen.vmi.is_some() || seen.strategy() != Some(Strategy::Manual) || is_asked {
        return Vec::new();
    }
    vec![
        Finding::new("The machine is started by hand only, and nobody has asked for a start.")
            .seen(seen.vm_object(), "spec.runStrategy", "Manual")
            .next(seen.virtctl(&format!("start {}", seen.name))),
    ]
}

/// Shut down from inside, and the strategy does not start it again.
pub(crate) fn ended_well(seen: &Observed) -> Vec<Finding> {
    let again = seen.virtctl(&format!("start {}", seen.name));
    match (seen.strategy(), seen.phase()) {
        (Some(Strategy::Always) | None, Some(Phase::Succeeded)) if seen.vm.is_some() => Vec::new(),
        (strategy, Some(Phase::Succeeded)) => {
            let finding = Finding::new("The guest shut itself down.").seen(
                seen.vmi_object(),
                "status.phase",
                "Succeeded",
            );
            let next = match strategy {
                None => seen.kubectl(&format!("delete vmi {}", seen.name)),
                Some(Strategy::Once) => seen.kubectl(&format!(
                    "delete vmi {}  # it is then run once more",
                    seen.name
                )),
                Some(_) => again,
            };
            vec![finding.next(next)]
        }
        (Some(Strategy::RerunOnFailure), None) if is_known_to_have_run(seen) => vec![
            Finding::new("The guest shut itself down, and is started again after failures only.")
                .seen(seen.vm_object(), "spec.runStrategy", "RerunOnFailure")
                .next(again),
        ],
        _ => Vec::new(),
    }
}

fn is_known_to_have_run(seen: &Observed) -> bool {
    let status = seen.vm.as_ref().and_then(|vm| vm.status.as_ref());
    seen.vmi.is_none()
        && status.is_some_and(|status| {
            status.run_strategy == Some(Strategy::RerunOnFailure)
                && status.state_change_requests.is_empty()
                && status.start_failure.is_none()
        })
}

/// The latest warning, where nothing is known better.
pub(crate) fn warned(seen: &Observed) -> Vec<Finding> {
    let warnings = seen.warnings();
    let Some(event) = warnings.last().filter(|_| !seen.is_settled()) else {
        return Vec::new();
    };
    let object = &event.involved_object;
    let kind = object.kind.as_deref().unwrap_or_default();
    let name = object.name.as_deref().unwrap_or_default();
    let reason = event.reason.as_deref().unwrap_or_default();
    let message = event.message.as_deref().unwrap_or_default();
    vec![
        Finding::new(format!(
            "The latest warning about {kind} {name} says {reason}: {message}"
        ))
        .seen(format!("event of {name}"), reason, message)
        .seen(
            format!("event of {name}"),
            "lastTimestamp",
            time_of(event).to_string(),
        )
        .next(seen.kubectl(&format!("describe {kind} {name}"))),
    ]
}

pub(crate) fn unexplained(seen: &Observed) -> Vec<Finding> {
    if seen.is_settled() {
        return Vec::new();
    }
    let (object, name) = match &seen.vm {
        Some(_) => (seen.vm_object(), "vm"),
        None => (seen.vmi_object(), "vmi"),
    };
    vec![
        Finding::new("The guest does not run, and nothing that can be seen says why.")
            .seen(object, "", "neither conditions nor events of use")
            .next(seen.kubectl(&format!("describe {name} {}", seen.name))),
    ]
}
