//! Machines and guests on their way out.

use kubevirt_api::{finalizers, vm_status::StateChangeRequestAction};

use crate::{
    Finding, Observed,
    observed::{name_of, strangers},
};

/// Kubernetes' own, taken off by its garbage collector.
const COLLECTOR: [&str; 2] = ["foregroundDeletion", "orphan"];
const OURS: [&str; 5] = [
    finalizers::VM_CONTROLLER,
    finalizers::VMI,
    finalizers::VMI_OLD,
    COLLECTOR[0],
    COLLECTOR[1],
];
/// How long past its own grace a guest may take: the agent destroys it, and pods take a while.
const PATIENCE: i64 = 90;

pub(crate) fn machine_held(seen: &Observed) -> Vec<Finding> {
    let Some(vm) = &seen.vm else {
        return Vec::new();
    };
    let held = strangers(&vm.metadata, &OURS);
    if vm.metadata.deletion_timestamp.is_none() || held.is_empty() || seen.vmi.is_some() {
        return Vec::new();
    }
    let names = held.join(", ");
    let sentence = format!("The machine is deleted, but {names} keeps it until its owner lets go.");
    vec![
        Finding::new(sentence)
            .seen(seen.vm_object(), "metadata.finalizers", names)
            .next(seen.kubectl(&format!(
                "get vm {} -o jsonpath='{{.metadata.finalizers}}'",
                seen.name
            ))),
    ]
}

pub(crate) fn instance_held(seen: &Observed) -> Vec<Finding> {
    let Some(vmi) = &seen.vmi else {
        return Vec::new();
    };
    let held = strangers(&vmi.metadata, &OURS);
    if vmi.metadata.deletion_timestamp.is_none() || held.is_empty() || seen.pod().is_some() {
        return Vec::new();
    }
    let names = held.join(", ");
    let sentence = format!(
        "The instance is deleted and its guest is gone, but {names} keeps it until its owner lets \
         go; no new one can be made."
    );
    vec![
        Finding::new(sentence)
            .seen(seen.vmi_object(), "metadata.finalizers", names)
            .next(seen.kubectl(&format!(
                "get vmi {} -o jsonpath='{{.metadata.finalizers}}'",
                seen.name
            ))),
    ]
}

pub(crate) fn stop_ignored(seen: &Observed) -> Vec<Finding> {
    let Some(vmi) = seen.own_vmi() else {
        return Vec::new();
    };
    let asked = vmi.metadata.deletion_timestamp.as_ref();
    let grace = vmi.spec.termination_grace_period_seconds.unwrap_or(30);
    let patience = grace.saturating_add(PATIENCE);
    let Some(pod) = seen.pod().filter(|_| seen.is_older(asked, patience)) else {
        return Vec::new();
    };
    let since = asked.map(|time| time.0.to_string()).unwrap_or_default();
    let sentence = format!(
        "The guest was asked to shut down and has not, though its grace of {grace} s is over."
    );
    let stop = match &seen.vm {
        Some(_) => seen.virtctl(&format!("stop {} --grace-period 0 --force", seen.name)),
        None => seen.kubectl(&format!(
            "delete pod {} --grace-period 0",
            name_of(&pod.metadata)
        )),
    };
    vec![
        Finding::new(sentence)
            .seen(seen.vmi_object(), "metadata.deletionTimestamp", since)
            .seen(format!("pod/{}", name_of(&pod.metadata)), "", "still there")
            .next(stop),
    ]
}

pub(crate) fn deleting(seen: &Observed) -> Vec<Finding> {
    let vm = seen.vm.as_ref();
    let Some(since) = vm.and_then(|vm| vm.metadata.deletion_timestamp.as_ref()) else {
        return Vec::new();
    };
    vec![
        Finding::new("The machine is being deleted.")
            .seen(
                seen.vm_object(),
                "metadata.deletionTimestamp",
                since.0.to_string(),
            )
            .next(seen.kubectl(&format!("wait --for=delete vm/{}", seen.name))),
    ]
}

pub(crate) fn stopping(seen: &Observed) -> Vec<Finding> {
    if seen
        .vm
        .as_ref()
        .is_some_and(|vm| vm.metadata.deletion_timestamp.is_some())
    {
        return Vec::new();
    }
    let Some(vmi) = seen.own_vmi().filter(|_| !seen.is_final()) else {
        return Vec::new();
    };
    let wait = seen.kubectl(&format!("wait --for=delete vmi/{}", seen.name));
    if let Some(since) = &vmi.metadata.deletion_timestamp {
        let grace = vmi.spec.termination_grace_period_seconds.unwrap_or(30);
        let sentence = format!("The guest is shutting down; it has {grace} s for it.");
        return vec![
            Finding::new(sentence)
                .seen(
                    seen.vmi_object(),
                    "metadata.deletionTimestamp",
                    since.0.to_string(),
                )
                .next(wait),
        ];
    }
    let status = seen.vm.as_ref().and_then(|vm| vm.status.as_ref());
    let requests = status.map_or(&[][..], |status| &status.state_change_requests);
    let is_asked = requests.iter().any(|request| {
        request.action == StateChangeRequestAction::Stop && request.uid == vmi.metadata.uid
    });
    if !is_asked {
        return Vec::new();
    }
    vec![
        Finding::new("Somebody asked for a stop, which is about to begin.")
            .seen(
                seen.vm_object(),
                "status.stateChangeRequests[].action",
                "Stop",
            )
            .next(wait),
    ]
}
