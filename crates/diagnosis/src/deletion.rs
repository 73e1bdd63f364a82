//! VMs and VMIs that are being deleted.

use kubevirt_api::{finalizers, vm_status::StateChangeRequestAction};

use crate::{
    Finding, Observed,
    observed::{foreign_finalizers, name_of},
};

/// Finalizers that Ferrovirt or the garbage collector of Kubernetes removes.
const KNOWN: [&str; 5] = [
    finalizers::VM_CONTROLLER,
    finalizers::VMI,
    finalizers::VMI_OLD,
    "foregroundDeletion",
    "orphan",
];
/// How long a guest and its pod may take after the guest's grace period, in seconds.
const MARGIN: i64 = 90;

pub(crate) fn vm_held(observed: &Observed) -> Vec<Finding> {
    let Some(vm) = &observed.vm else {
        return Vec::new();
    };
    let foreign = foreign_finalizers(&vm.metadata, &KNOWN);
    if vm.metadata.deletion_timestamp.is_none() || foreign.is_empty() || observed.vmi.is_some() {
        return Vec::new();
    }
    let names = foreign.join(", ");
    let sentence = format!(
        "The VM is being deleted, and finalizer {names} blocks it until its owner removes it."
    );
    vec![
        Finding::new(sentence)
            .evidence(observed.vm_object(), "metadata.finalizers", names)
            .next(observed.kubectl(&format!(
                "get vm {} -o jsonpath='{{.metadata.finalizers}}'",
                observed.name
            ))),
    ]
}

pub(crate) fn vmi_held(observed: &Observed) -> Vec<Finding> {
    let Some(vmi) = &observed.vmi else {
        return Vec::new();
    };
    let foreign = foreign_finalizers(&vmi.metadata, &KNOWN);
    if vmi.metadata.deletion_timestamp.is_none() || foreign.is_empty() || observed.pod().is_some() {
        return Vec::new();
    }
    let names = foreign.join(", ");
    let sentence = format!(
        "The VMI is being deleted and its guest has ended, and finalizer {names} blocks it until its \
         owner removes it; no new VMI can be created."
    );
    vec![
        Finding::new(sentence)
            .evidence(observed.vmi_object(), "metadata.finalizers", names)
            .next(observed.kubectl(&format!(
                "get vmi {} -o jsonpath='{{.metadata.finalizers}}'",
                observed.name
            ))),
    ]
}

pub(crate) fn stop_ignored(observed: &Observed) -> Vec<Finding> {
    let Some(vmi) = observed.own_vmi() else {
        return Vec::new();
    };
    let deleted = vmi.metadata.deletion_timestamp.as_ref();
    let grace = vmi.spec.termination_grace_period_seconds.unwrap_or(30);
    let limit = grace.saturating_add(MARGIN);
    let Some(pod) = observed.pod().filter(|_| observed.is_older(deleted, limit)) else {
        return Vec::new();
    };
    let since = deleted.map(|time| time.0.to_string()).unwrap_or_default();
    let sentence = format!(
        "The guest was asked to shut down and still runs after its grace period of {grace} s."
    );
    let stop = match &observed.vm {
        Some(_) => observed.virtctl(&format!("stop {} --grace-period 0 --force", observed.name)),
        None => observed.kubectl(&format!(
            "delete pod {} --grace-period 0",
            name_of(&pod.metadata)
        )),
    };
    vec![
        Finding::new(sentence)
            .evidence(observed.vmi_object(), "metadata.deletionTimestamp", since)
            .evidence(
                format!("pod/{}", name_of(&pod.metadata)),
                "",
                "still exists",
            )
            .next(stop),
    ]
}

pub(crate) fn deleting(observed: &Observed) -> Vec<Finding> {
    let vm = observed.vm.as_ref();
    let Some(since) = vm.and_then(|vm| vm.metadata.deletion_timestamp.as_ref()) else {
        return Vec::new();
    };
    vec![
        Finding::new("The VM is being deleted.")
            .evidence(
                observed.vm_object(),
                "metadata.deletionTimestamp",
                since.0.to_string(),
            )
            .next(observed.kubectl(&format!("wait --for=delete vm/{}", observed.name))),
    ]
}

pub(crate) fn stopping(observed: &Observed) -> Vec<Finding> {
    if observed
        .vm
        .as_ref()
        .is_some_and(|vm| vm.metadata.deletion_timestamp.is_some())
    {
        return Vec::new();
    }
    let Some(vmi) = observed.own_vmi().filter(|_| !observed.is_final()) else {
        return Vec::new();
    };
    let wait = observed.kubectl(&format!("wait --for=delete vmi/{}", observed.name));
    if let Some(since) = &vmi.metadata.deletion_timestamp {
        let grace = vmi.spec.termination_grace_period_seconds.unwrap_or(30);
        let sentence = format!("The guest is shutting down; its grace period is {grace} s.");
        return vec![
            Finding::new(sentence)
                .evidence(
                    observed.vmi_object(),
                    "metadata.deletionTimestamp",
                    since.0.to_string(),
                )
                .next(wait),
        ];
    }
    let status = observed.vm.as_ref().and_then(|vm| vm.status.as_ref());
    let requests = status.map_or(&[][..], |status| &status.state_change_requests);
    let is_requested = requests.iter().any(|request| {
        request.action == StateChangeRequestAction::Stop && request.uid == vmi.metadata.uid
    });
    if !is_requested {
        return Vec::new();
    }
    vec![
        Finding::new("A user requested a stop, which is about to begin.")
            .evidence(
                observed.vm_object(),
                "status.stateChangeRequests[].action",
                "Stop",
            )
            .next(wait),
    ]
}
