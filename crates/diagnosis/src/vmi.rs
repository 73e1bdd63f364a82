//! Problems that the conditions of a VMI report.

use kubevirt_api::{
    conditions::Condition as _,
    vm::VirtualMachineRunStrategy as Strategy,
    vmi_status::{
        VirtualMachineInstanceConditionType as Type, VirtualMachineInstancePhase as Phase,
    },
};
use reasons::{Reason, Subject};

use crate::{
    Finding, Observed, ending, log, observed::name_of, paused::pause, pods, table::is_explained,
};

const SYNCHRONIZED: &str = "status.conditions[Synchronized]";

/// Reasons of virt-controller, virt-handler and the launcher, in groups with one remedy.
pub(crate) const DESCRIPTION: &[Reason] = &[
    Reason::DomainNotRenderable,
    Reason::DomainInvalid,
    Reason::CapacityNotUsable,
    Reason::DiskInvalid,
    Reason::InvalidPlan,
];
pub(crate) const SEED: &[Reason] = &[
    Reason::CloudInitNotUsable,
    Reason::SeedInvalid,
    Reason::SeedFileTooLarge,
    Reason::SeedFileMissing,
];
pub(crate) const DISK: &[Reason] = &[
    Reason::DiskImageInvalid,
    Reason::DiskImageForbidden,
    Reason::DiskDoesNotFit,
    Reason::DiskNotAFile,
    Reason::DiskNotUsable,
];
pub(crate) const NETWORK: &[Reason] = &[
    Reason::NoSuchNetwork,
    Reason::SecondInterface,
    Reason::NetworkDefinitionMissing,
    Reason::NetworkDefinitionInvalid,
    Reason::NetworkDefinitionNotSupported,
    Reason::NetworkNotJoined,
    Reason::NetworkNotAttached,
    Reason::NetworkBindingNotRegistered,
    Reason::NetworkBindingNotOfPod,
    Reason::NetworkBindingWithoutTap,
    Reason::BadNetworkCidr,
    Reason::BadMacAddress,
    Reason::BadPort,
    Reason::PodHasNoAddress,
    Reason::TooManyRoutes,
    Reason::InterfaceNotPlumbed,
    Reason::NetworkNotPermitted,
    Reason::KernelFeatureMissing,
    Reason::ForeignLink,
    Reason::NoSuchLink,
    Reason::BadLinkName,
    Reason::NetworkRefused,
    Reason::NoSuchNamespace,
    Reason::SysctlFailed,
    Reason::TapFailed,
    Reason::NetlinkFailed,
];
/// Reasons of an interface that a running guest should get or lose.
pub(crate) const PLUGGED: &[Reason] = &[
    Reason::InterfaceNotInPod,
    Reason::InterfaceNotPlugged,
    Reason::InterfaceNotReleased,
];
pub(crate) const START: &[Reason] = &[
    Reason::StartFailed,
    Reason::LibvirtRefused,
    Reason::LibvirtUnavailable,
    Reason::LibvirtTimedOut,
    Reason::LibvirtProtocol,
    Reason::LibvirtAuthentication,
];
pub(crate) const HOOKS: &[Reason] = &[Reason::HookSidecarNotReady, Reason::HookSidecarFailed];
pub(crate) const POD: &[Reason] = &[
    Reason::PodNotReachable,
    Reason::LauncherStorage,
    Reason::LauncherUnavailable,
    Reason::PrepareFailed,
    Reason::FilesystemNotServed,
    Reason::FilesystemLost,
    Reason::PasstNotStarted,
    Reason::LimitsNotRaised,
    Reason::HostDeviceNotUsable,
    Reason::WrongGuest,
    Reason::Ending,
];

pub(crate) fn not_supported(observed: &Observed) -> Vec<Finding> {
    let reason = Reason::FeatureNotSupported;
    let of_vm = observed
        .vm_failure()
        .filter(|(found, _)| reason == **found)
        .map(|(_, message)| {
            let object = observed.vm_object();
            (object, "status.conditions[Failure]", message)
        });
    let of_vmi = || {
        let (found, message) = observed.problem(&Type::Synchronized)?;
        (reason == *found).then(|| (observed.vmi_object(), SYNCHRONIZED, message))
    };
    let Some((object, field, message)) = of_vm.or_else(of_vmi) else {
        return Vec::new();
    };
    let sentence = "The VM asks for a feature that this version cannot run, so it does not start.";
    vec![
        Finding::new(sentence)
            .because(reason)
            .evidence(object, field, message)
            .next(observed.edit()),
    ]
}

pub(crate) fn description(observed: &Observed) -> Vec<Finding> {
    let sentence = "The guest cannot be built from the spec";
    not_synchronized(observed, DESCRIPTION, sentence)
}

pub(crate) fn seed(observed: &Observed) -> Vec<Finding> {
    not_synchronized(observed, SEED, "The cloud-init data cannot be used")
}

pub(crate) fn disk_missing(observed: &Observed) -> Vec<Finding> {
    let reasons = &[Reason::ContainerDiskMissing];
    not_synchronized(observed, reasons, "An image has no disk")
}

pub(crate) fn disk_not_copied(observed: &Observed) -> Vec<Finding> {
    let reasons = &[Reason::ContainerDiskNotCopied];
    let sentence = "A disk cannot be copied out of its image";
    not_synchronized(observed, reasons, sentence)
}

pub(crate) fn disk_unusable(observed: &Observed) -> Vec<Finding> {
    not_synchronized(observed, DISK, "A disk cannot be used")
}

pub(crate) fn network(observed: &Observed) -> Vec<Finding> {
    let sentence = "The network of the guest's pod cannot be set up";
    not_synchronized(observed, NETWORK, sentence)
}

pub(crate) fn interface_not_plugged(observed: &Observed) -> Vec<Finding> {
    let sentence = "The running guest does not get or lose an interface";
    not_synchronized(observed, PLUGGED, sentence)
}

pub(crate) fn start_refused(observed: &Observed) -> Vec<Finding> {
    let sentence = "The hypervisor could not start the guest";
    let found = not_synchronized(observed, START, sentence);
    if found.is_empty() {
        return ending::ended(observed, Reason::StartFailed, sentence);
    }
    log::next_is_log(observed, found)
}

/// The message names the container.
pub(crate) fn hook_sidecar(observed: &Observed) -> Vec<Finding> {
    let sentence = "A hook sidecar keeps the guest from starting";
    let mut found = not_synchronized(observed, HOOKS, sentence);
    let message = observed.problem(&Type::Synchronized);
    let message = message.map(|(_, message)| message.to_string());
    let container = message.as_deref().and_then(named_sidecar);
    if let (Some(pod), Some(container)) = (observed.pod(), container) {
        let pod = name_of(&pod.metadata);
        for finding in &mut found {
            finding.next = observed.kubectl(&format!("logs {pod} -c {container}"));
        }
    }
    found
}

fn named_sidecar(message: &str) -> Option<&str> {
    let words = message.split(|c: char| !c.is_ascii_alphanumeric() && c != '-');
    let is_sidecar = |word: &&str| {
        let index = word.strip_prefix("hook-sidecar-");
        index.is_some_and(|index| index.parse::<usize>().is_ok())
    };
    words.into_iter().find(is_sidecar)
}

pub(crate) fn pod_unreachable(observed: &Observed) -> Vec<Finding> {
    let sentence = "virt-handler or the launcher cannot work in the guest's pod";
    let found = not_synchronized(observed, POD, sentence);
    log::next_is_log(observed, found)
}

/// Any other reason why the VMI is not synchronized.
pub(crate) fn blocked(observed: &Observed) -> Vec<Finding> {
    let Some((reason, message)) = observed.problem(&Type::Synchronized) else {
        return Vec::new();
    };
    if is_explained(reason) {
        return Vec::new();
    }
    vec![
        Finding::new(format!("The VMI is blocked: {message}."))
            .reason(reason)
            .evidence(
                observed.vmi_object(),
                SYNCHRONIZED,
                format!("{reason}: {message}"),
            )
            .next(observed.kubectl(&format!("describe vmi {}", observed.name))),
    ]
}

pub(crate) fn pod_lost(observed: &Observed) -> Vec<Finding> {
    let needs_pod = matches!(
        observed.phase(),
        Some(Phase::Scheduling | Phase::Scheduled | Phase::Running)
    );
    if !needs_pod || observed.pod().is_some() || observed.was_not_read("pods") {
        return Vec::new();
    }
    vec![
        Finding::new("The guest's pod does not exist any more, so the guest is lost.")
            .evidence("pods", "", "none of this VMI")
            .next(observed.kubectl(&format!(
                "get events --field-selector involvedObject.name={}",
                observed.name
            ))),
    ]
}

pub(crate) fn not_ready(observed: &Observed) -> Vec<Finding> {
    if observed.phase() != Some(Phase::Running) || pause(observed).is_some() {
        return Vec::new();
    }
    let Some((reason, message)) = observed.problem(&Type::Ready) else {
        return Vec::new();
    };
    let has_probe = observed
        .own_vmi()
        .is_some_and(|vmi| vmi.spec.readiness_probe.is_some());
    let sentence = if has_probe {
        "The guest runs, and its readiness probe fails."
    } else {
        "The guest runs and is not ready."
    };
    vec![
        Finding::new(sentence)
            .reason(reason)
            .evidence(
                observed.vmi_object(),
                "status.conditions[Ready]",
                format!("{reason}: {message}"),
            )
            .next(observed.virtctl(&format!("console {}", observed.name))),
    ]
}

pub(crate) fn eviction_blocked(observed: &Observed) -> Vec<Finding> {
    let status = observed.own_vmi().and_then(|vmi| vmi.status.as_ref());
    let Some(node) = status.and_then(|status| status.evacuation_node_name.as_deref()) else {
        return Vec::new();
    };
    let within_node = || {
        let condition = observed.condition(&Type::LiveMigratable)?;
        let reason = Reason::OnlyWithinNode.as_str();
        (condition.reason() == reason).then(|| (reason, condition.message()))
    };
    let Some((reason, message)) = observed.problem(&Type::LiveMigratable).or_else(within_node)
    else {
        return Vec::new();
    };
    vec![
        Finding::new(format!(
            "The guest should leave node {node} and cannot migrate: {message}."
        ))
        .reason(reason)
        .evidence(observed.vmi_object(), "status.evacuationNodeName", node)
        .evidence(
            observed.vmi_object(),
            "status.conditions[LiveMigratable]",
            format!("{reason}: {message}"),
        )
        .next(observed.virtctl(&format!("restart {}", observed.name))),
    ]
}

pub(crate) fn starting(observed: &Observed) -> Vec<Finding> {
    let next = observed.kubectl(&format!("get vmi {} --watch", observed.name));
    if observed.phase() == Some(Phase::Succeeded) && observed.strategy() == Some(Strategy::Always) {
        let sentence = "The guest shut itself down, and the VM starts it again.";
        return vec![
            Finding::new(sentence)
                .evidence(observed.vmi_object(), "status.phase", "Succeeded")
                .next(next),
        ];
    }
    let needs_vmi = observed.vm.is_some() && observed.vmi.is_none() && !observed.is_as_requested();
    if !observed.is_early() && !needs_vmi {
        return Vec::new();
    }
    // A warning explains a guest that does not make progress better than "starting".
    if !observed.warnings().is_empty() {
        return Vec::new();
    }
    let phase = match observed.phase() {
        Some(phase) if !phase.as_str().is_empty() => phase.as_str().to_owned(),
        Some(_) => "no phase yet".to_owned(),
        None => "does not exist yet".to_owned(),
    };
    vec![
        Finding::new("The guest is starting.")
            .evidence(observed.vmi_object(), "status.phase", phase)
            .next(next),
    ]
}

/// A finding if the VMI is not synchronized for one of these reasons.
fn not_synchronized(observed: &Observed, reasons: &[Reason], sentence: &str) -> Vec<Finding> {
    let Some((reason, message)) = observed.problem(&Type::Synchronized) else {
        return Vec::new();
    };
    let Some(reason) = reasons.iter().find(|known| **known == *reason) else {
        return Vec::new();
    };
    vec![
        Finding::new(format!("{sentence}: {message}."))
            .because(*reason)
            .evidence(
                observed.vmi_object(),
                SYNCHRONIZED,
                format!("{reason}: {message}"),
            )
            .next(observed.edit()),
    ]
}

/// Any other failure of the guest.
pub(crate) fn failed(observed: &Observed) -> Vec<Finding> {
    let reason = ending::ending(observed).map(|(reason, _)| reason);
    let is_explained = reason.is_some_and(|reason| {
        let known = reason.parse::<Reason>();
        known.is_ok_and(|known| known == Reason::StartFailed || known.subject() == Subject::Ended)
    });
    // Rules about conditions and pods explain these failures in more detail.
    let is_explained = is_explained
        || observed.problem(&Type::Synchronized).is_some()
        || [pods::out_of_memory, pods::evicted, pods::start]
            .iter()
            .any(|rule| !rule(observed).is_empty());
    if observed.phase() != Some(Phase::Failed) || is_explained {
        return Vec::new();
    }
    let found = vec![
        Finding::new("The guest failed.")
            .reason(reason.unwrap_or_default())
            .evidence(
                observed.vmi_object(),
                "status.phase",
                reason.unwrap_or("Failed"),
            )
            .next(observed.kubectl(&format!("describe vmi {}", observed.name))),
    ];
    log::next_is_log(observed, found)
}
