//! What is with the instance: complaints of controller and node agent, pauses, ends.

use kubevirt_api::{
    conditions::{self, Condition},
    reasons,
    vmi::StartStrategy,
    vmi_status::{
        VirtualMachineInstanceConditionType as Type, VirtualMachineInstancePhase as Phase,
    },
};

use crate::{Finding, Observed, observed::name_of};

const SYNCHRONIZED: &str = "status.conditions[Synchronized]";

/// Reasons of the node agent and the launcher, in groups that have one remedy.
const DESCRIPTION: &[&str] = &[
    "DomainNotRenderable",
    "DomainInvalid",
    "CapacityNotUsable",
    "DiskInvalid",
    "InvalidPlan",
];
const SEED: &[&str] = &[
    "CloudInitNotUsable",
    "SeedInvalid",
    "SeedFileTooLarge",
    "SeedFileMissing",
];
const DISK_MISSING: &[&str] = &[reasons::vmi::CONTAINER_DISK_MISSING];
const DISK_NOT_COPIED: &[&str] = &[reasons::vmi::CONTAINER_DISK_NOT_COPIED];
const DISK_UNUSABLE: &[&str] = &["DiskImageInvalid", "DiskImageForbidden"];
const START_REFUSED: &[&str] = &["StartFailed"];
const POD_UNREACHABLE: &[&str] = &[
    "PodNotReachable",
    "LauncherStorage",
    "LauncherUnavailable",
    "PrepareFailed",
];
/// What other rules tell of, each in its own way.
const ELSEWHERE: &[&str] = &[
    reasons::vmi::FAILED_CREATE,
    reasons::vmi::FEATURE_NOT_SUPPORTED,
    reasons::vmi::FAILED_PVC_NOT_FOUND,
];

pub(crate) fn not_supported(seen: &Observed) -> Vec<Finding> {
    let of_vm = seen
        .vm_condition("Failure")
        .filter(|failure| failure.reason() == reasons::vm::FEATURE_NOT_SUPPORTED)
        .map(|failure| {
            (
                seen.vm_object(),
                "status.conditions[Failure]",
                failure.message(),
            )
        });
    let of_vmi = || match seen.complaint(&Type::Synchronized)? {
        (reasons::vmi::FEATURE_NOT_SUPPORTED, message) => {
            Some((seen.vmi_object(), SYNCHRONIZED, message))
        }
        _ => None,
    };
    let Some((object, field, message)) = of_vm.or_else(of_vmi) else {
        return Vec::new();
    };
    let edit = match &seen.vm {
        Some(_) => format!("edit vm {}", seen.name),
        None => format!("get vmi {} -o yaml", seen.name),
    };
    let sentence = "The machine asks for something that cannot run here, so it waits.";
    vec![
        Finding::new(sentence)
            .seen(object, field, message)
            .next(seen.kubectl(&edit)),
    ]
}

/// What the agent holds against the start, with its words.
fn complaint_of(seen: &Observed, reasons: &[&str], sentence: &str) -> Vec<Finding> {
    let Some((reason, message)) = seen.complaint(&Type::Synchronized) else {
        return Vec::new();
    };
    if !reasons.contains(&reason) {
        return Vec::new();
    }
    let next = match &seen.vm {
        Some(_) => format!("edit vm {}", seen.name),
        None => format!("get vmi {} -o yaml", seen.name),
    };
    vec![
        Finding::new(format!("{sentence}: {message}."))
            .seen(
                seen.vmi_object(),
                SYNCHRONIZED,
                format!("{reason}: {message}"),
            )
            .next(seen.kubectl(&next)),
    ]
}

pub(crate) fn description(seen: &Observed) -> Vec<Finding> {
    complaint_of(
        seen,
        DESCRIPTION,
        "The machine as described cannot be built",
    )
}

pub(crate) fn seed(seen: &Observed) -> Vec<Finding> {
    complaint_of(seen, SEED, "The cloud-init data cannot be used")
}

pub(crate) fn disk_missing(seen: &Observed) -> Vec<Finding> {
    complaint_of(seen, DISK_MISSING, "There is no disk in an image")
}

pub(crate) fn disk_not_copied(seen: &Observed) -> Vec<Finding> {
    let sentence = "A disk cannot be copied out of its image";
    complaint_of(seen, DISK_NOT_COPIED, sentence)
}

pub(crate) fn disk_unusable(seen: &Observed) -> Vec<Finding> {
    complaint_of(seen, DISK_UNUSABLE, "A disk image cannot be used")
}

pub(crate) fn start_refused(seen: &Observed) -> Vec<Finding> {
    let sentence = "The hypervisor refused to start the guest";
    let found = complaint_of(seen, START_REFUSED, sentence);
    if found.is_empty() {
        return ended(seen, reasons::vmi::START_FAILED, sentence);
    }
    with_logs(seen, found)
}

pub(crate) fn pod_unreachable(seen: &Observed) -> Vec<Finding> {
    let sentence = "The node's agent cannot do its work in the guest's pod";
    let found = complaint_of(seen, POD_UNREACHABLE, sentence);
    with_logs(seen, found)
}

fn with_logs(seen: &Observed, mut found: Vec<Finding>) -> Vec<Finding> {
    if let Some(pod) = seen.pod() {
        for finding in &mut found {
            finding.next = seen.kubectl(&format!("logs {}", name_of(&pod.metadata)));
        }
    }
    found
}

/// Whatever else keeps it from getting on.
pub(crate) fn complaint(seen: &Observed) -> Vec<Finding> {
    let Some((reason, message)) = seen.complaint(&Type::Synchronized) else {
        return Vec::new();
    };
    let groups = [
        ELSEWHERE,
        &reasons::CONTAINER_WAITS,
        DESCRIPTION,
        SEED,
        DISK_MISSING,
        DISK_NOT_COPIED,
        DISK_UNUSABLE,
        START_REFUSED,
        POD_UNREACHABLE,
    ];
    if groups.iter().any(|group| group.contains(&reason)) {
        return Vec::new();
    }
    vec![
        Finding::new(format!("The instance cannot get on: {message}."))
            .seen(
                seen.vmi_object(),
                SYNCHRONIZED,
                format!("{reason}: {message}"),
            )
            .next(seen.kubectl(&format!("describe vmi {}", seen.name))),
    ]
}

pub(crate) fn node_lost(seen: &Observed) -> Vec<Finding> {
    let status = seen.own_vmi().and_then(|vmi| vmi.status.as_ref());
    let reason = status.and_then(|status| status.reason.as_deref());
    if seen.phase() != Some(Phase::Failed) || reason != Some(reasons::vmi::NODE_UNRESPONSIVE) {
        return Vec::new();
    }
    let node = seen.node_name().unwrap_or("of the guest");
    vec![
        Finding::new(format!(
            "The node {node} was not heard of for minutes, and the guest was given up with it."
        ))
        .seen(
            seen.vmi_object(),
            "status.reason",
            reasons::vmi::NODE_UNRESPONSIVE,
        )
        .next(format!("kubectl describe node {node}")),
    ]
}

/// Reason and message of a pause.
fn pause(seen: &Observed) -> Option<(&str, &str)> {
    let condition = seen.condition(&Type::Paused)?;
    (condition.status() == conditions::TRUE).then(|| (condition.reason(), condition.message()))
}

fn paused(seen: &Observed, reason: &str, sentence: &str, next: String) -> Vec<Finding> {
    pause(seen)
        .filter(|(found, _)| *found == reason)
        .map(|(_, message)| {
            Finding::new(sentence)
                .seen(
                    seen.vmi_object(),
                    "status.conditions[Paused]",
                    format!("{reason}: {message}"),
                )
                .next(next)
        })
        .into_iter()
        .collect()
}

pub(crate) fn paused_io_error(seen: &Observed) -> Vec<Finding> {
    let sentence = "A disk of the guest failed to read or write, and the guest was stopped in the \
                    middle; it goes on by itself once the disk works again. Is the volume full?";
    let next = seen.kubectl(&format!("describe vmi {}", seen.name));
    paused(seen, reasons::vmi::PAUSED_IO_ERROR, sentence, next)
}

fn starts_paused(seen: &Observed) -> bool {
    let spec = seen.own_vmi().map(|vmi| &vmi.spec);
    spec.is_some_and(|spec| spec.start_strategy == Some(StartStrategy::Paused))
}

pub(crate) fn started_paused(seen: &Observed) -> Vec<Finding> {
    if !starts_paused(seen) {
        return Vec::new();
    }
    let next = seen.virtctl(&format!("unpause vmi {}", seen.name));
    let sentence = "The guest was started paused, as asked, and has not run yet.";
    paused(seen, reasons::vmi::PAUSED_BY_USER, sentence, next)
        .into_iter()
        .map(|finding| finding.seen(seen.vmi_object(), "spec.startStrategy", "Paused"))
        .collect()
}

pub(crate) fn paused_by_user(seen: &Observed) -> Vec<Finding> {
    if starts_paused(seen) {
        return Vec::new();
    }
    let next = seen.virtctl(&format!("unpause vmi {}", seen.name));
    let sentence = "Somebody paused the guest; it is in memory and goes on when it is let.";
    paused(seen, reasons::vmi::PAUSED_BY_USER, sentence, next)
}

pub(crate) fn paused_by_migration(seen: &Observed) -> Vec<Finding> {
    let next = seen.kubectl("get virtualmachineinstancemigrations");
    let sentence = "The guest is paused so that its migration can end.";
    paused(
        seen,
        reasons::vmi::PAUSED_BY_MIGRATION_MONITOR,
        sentence,
        next,
    )
}

pub(crate) fn pod_lost(seen: &Observed) -> Vec<Finding> {
    let is_owed = matches!(
        seen.phase(),
        Some(Phase::Scheduling | Phase::Scheduled | Phase::Running)
    );
    if !is_owed || seen.pod().is_some() || seen.could_not_read("pods") {
        return Vec::new();
    }
    vec![
        Finding::new("The guest's pod is gone, and the guest with it.")
            .seen("pods", "", "none of this instance")
            .next(seen.kubectl(&format!(
                "get events --field-selector involvedObject.name={}",
                seen.name
            ))),
    ]
}

/// What the agent says of the end of a guest that failed: the reason and its sentence.
fn ending(seen: &Observed) -> Option<(&str, &str)> {
    let status = seen.own_vmi()?.status.as_ref()?;
    let reason = status.reason.as_deref()?;
    let ready = seen.condition(&Type::Ready);
    let message = ready.map(Condition::message).unwrap_or_default();
    (seen.phase() == Some(Phase::Failed)).then_some((reason, message))
}

fn ended(seen: &Observed, wanted: &str, sentence: &str) -> Vec<Finding> {
    let found = ending(seen).filter(|(reason, _)| *reason == wanted);
    let found = found.map(|(reason, message)| {
        Finding::new(sentence)
            .seen(
                seen.vmi_object(),
                "status.reason",
                format!("{reason}: {message}"),
            )
            .next(seen.kubectl(&format!("describe vmi {}", seen.name)))
    });
    with_logs(seen, found.into_iter().collect())
}

pub(crate) fn panicked(seen: &Observed) -> Vec<Finding> {
    let sentence = "The guest's kernel gave up; its own console has the last words.";
    ended(seen, reasons::vmi::GUEST_PANICKED, sentence)
}

pub(crate) fn qemu_crashed(seen: &Observed) -> Vec<Finding> {
    ended(
        seen,
        reasons::vmi::QEMU_CRASHED,
        "QEMU ended in the middle of its work.",
    )
}

pub(crate) fn watchdog(seen: &Observed) -> Vec<Finding> {
    let sentence = "The guest stopped feeding its watchdog, which ended it: it hung.";
    ended(seen, reasons::vmi::WATCHDOG_EXPIRED, sentence)
}

pub(crate) fn shutdown_forced(seen: &Observed) -> Vec<Finding> {
    let sentence = "The guest did not shut down within its grace and was switched off.";
    ended(seen, reasons::vmi::SHUTDOWN_FORCED, sentence)
}

pub(crate) fn launcher_unresponsive(seen: &Observed) -> Vec<Finding> {
    let sentence =
        "The launcher in the guest's pod did not answer any more, so nobody knows of it.";
    ended(seen, reasons::vmi::LAUNCHER_UNRESPONSIVE, sentence)
}

pub(crate) fn postcopy_failed(seen: &Observed) -> Vec<Finding> {
    let sentence = "A migration failed when a part of the guest was on either side; it was lost.";
    ended(seen, reasons::vmi::POSTCOPY_FAILED, sentence)
}

/// Out of memory by the agent's word, where the pod does not say so.
pub(crate) fn killed(seen: &Observed) -> Vec<Finding> {
    let sentence = "The guest's pod used more memory than its limit, and the kernel ended it; raise \
                    the limit or leave it out.";
    ended(seen, reasons::vmi::OUT_OF_MEMORY, sentence)
}

/// Any other end in failure.
pub(crate) fn failed(seen: &Observed) -> Vec<Finding> {
    let told = [
        reasons::vmi::GUEST_PANICKED,
        reasons::vmi::QEMU_CRASHED,
        reasons::vmi::WATCHDOG_EXPIRED,
        reasons::vmi::SHUTDOWN_FORCED,
        reasons::vmi::LAUNCHER_UNRESPONSIVE,
        reasons::vmi::POSTCOPY_FAILED,
        reasons::vmi::OUT_OF_MEMORY,
        reasons::vmi::START_FAILED,
        reasons::vmi::NODE_UNRESPONSIVE,
    ];
    let reason = ending(seen).map(|(reason, _)| reason);
    // A refusal of the start is told in its own words, and so is what the pod died of.
    let is_told = reason.is_some_and(|reason| told.contains(&reason))
        || seen.complaint(&Type::Synchronized).is_some()
        || [crate::pods::out_of_memory, crate::pods::evicted]
            .iter()
            .any(|rule| !rule(seen).is_empty());
    if seen.phase() != Some(Phase::Failed) || is_told {
        return Vec::new();
    }
    let found = vec![
        Finding::new("The guest ended in failure.")
            .seen(
                seen.vmi_object(),
                "status.phase",
                reason.unwrap_or("Failed"),
            )
            .next(seen.kubectl(&format!("describe vmi {}", seen.name))),
    ];
    with_logs(seen, found)
}

pub(crate) fn not_ready(seen: &Observed) -> Vec<Finding> {
    if seen.phase() != Some(Phase::Running) || pause(seen).is_some() {
        return Vec::new();
    }
    let Some((reason, message)) = seen.complaint(&Type::Ready) else {
        return Vec::new();
    };
    let has_probe = seen
        .own_vmi()
        .is_some_and(|vmi| vmi.spec.readiness_probe.is_some());
    let sentence = if has_probe {
        "The guest runs, and its readiness probe says that it is not ready."
    } else {
        "The guest runs and does not count as ready."
    };
    vec![
        Finding::new(sentence)
            .seen(
                seen.vmi_object(),
                "status.conditions[Ready]",
                format!("{reason}: {message}"),
            )
            .next(seen.virtctl(&format!("console {}", seen.name))),
    ]
}

pub(crate) fn eviction_blocked(seen: &Observed) -> Vec<Finding> {
    let status = seen.own_vmi().and_then(|vmi| vmi.status.as_ref());
    let Some(node) = status.and_then(|status| status.evacuation_node_name.as_deref()) else {
        return Vec::new();
    };
    let Some((reason, message)) = seen.complaint(&Type::LiveMigratable) else {
        return Vec::new();
    };
    vec![
        Finding::new(format!(
            "The guest should leave node {node} and cannot migrate: {message}."
        ))
        .seen(seen.vmi_object(), "status.evacuationNodeName", node)
        .seen(
            seen.vmi_object(),
            "status.conditions[LiveMigratable]",
            format!("{reason}: {message}"),
        )
        .next(seen.virtctl(&format!("restart {}", seen.name))),
    ]
}

pub(crate) fn starting(seen: &Observed) -> Vec<Finding> {
    let is_due = seen.vm.is_some() && seen.vmi.is_none() && !seen.is_settled();
    if !seen.is_early() && !is_due {
        return Vec::new();
    }
    // Who stands still for long deserves better than "on its way".
    if !seen.warnings().is_empty() {
        return Vec::new();
    }
    let word = match seen.phase() {
        Some(phase) if !phase.as_str().is_empty() => phase.as_str().to_owned(),
        Some(_) => "no phase yet".to_owned(),
        None => "not there yet".to_owned(),
    };
    vec![
        Finding::new("The guest is on its way.")
            .seen(seen.vmi_object(), "status.phase", word)
            .next(seen.kubectl(&format!("get vmi {} --watch", seen.name))),
    ]
}
