//! Requests for VMIs and pods that the API server rejected, classified by its message.

use kubevirt_api::vmi_status::VirtualMachineInstanceConditionType as Type;
use reasons::Reason;

use crate::{Finding, Observed};

/// A rejected request, as a condition reports it.
struct Refusal<'a> {
    object: String,
    field: &'static str,
    message: &'a str,
    rejected: Rejected,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Rejected {
    Vmi,
    Pod,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Certificate,
    Webhook,
    Quota,
    Forbidden,
    Namespace,
    Device,
    Other,
}

fn refusals(observed: &Observed) -> Vec<Refusal<'_>> {
    let mut found = Vec::new();
    if let Some((reason, message)) = observed.vm_failure()
        && reason == Reason::FailedCreate
    {
        found.push(Refusal {
            object: observed.vm_object(),
            field: "status.conditions[Failure]",
            message,
            rejected: Rejected::Vmi,
        });
    }
    if let Some((reason, message)) = observed.problem(&Type::Synchronized)
        && reason == Reason::FailedCreate
    {
        found.push(Refusal {
            object: observed.vmi_object(),
            field: "status.conditions[Synchronized]",
            message,
            rejected: Rejected::Pod,
        });
    }
    found
}

fn class(message: &str) -> Class {
    let has = |part: &str| message.contains(part);
    if has("failed calling webhook") && has("x509: ") && is_ours(message) {
        Class::Certificate
    } else if has("failed calling webhook") {
        Class::Webhook
    } else if has("exceeded quota") || has("failed quota") {
        Class::Quota
    } else if has("because it is being terminated") {
        Class::Namespace
    } else if has("the cluster does not permit the device") {
        Class::Device
    } else if missing_right(message).is_some() {
        Class::Forbidden
    } else {
        Class::Other
    }
}

/// Whether the webhook that the message names first belongs to Ferrovirt.
fn is_ours(message: &str) -> bool {
    let name = message.split('"').nth(1).unwrap_or_default();
    name.ends_with(".kubevirt.io") || name.ends_with(".ferrovirt.io")
}

/// The verb and the resource of a missing right, parsed from the API server's message.
fn missing_right(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    Some((verb, rest.split_once('"')?.0))
}

fn of_class(observed: &Observed, wanted: Class) -> impl Iterator<Item = Refusal<'_>> {
    let all = refusals(observed).into_iter();
    all.filter(move |refusal| class(refusal.message) == wanted)
}

fn finding(refusal: &Refusal<'_>, sentence: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding::new(sentence)
        .because(Reason::FailedCreate)
        .evidence(&refusal.object, refusal.field, refusal.message)
        .next(next)
}

pub(crate) fn webhook_certificate(observed: &Observed) -> Vec<Finding> {
    let next = observed.in_installation("rollout restart deployment virt-api");
    let sentence = "The certificate of virt-api is not valid, so the API server rejects all requests that need \
                    it. virt-api renews it within half a minute, and at once when it restarts. Is the clock correct?";
    of_class(observed, Class::Certificate)
        .map(|refusal| finding(&refusal, sentence, &next))
        .collect()
}

pub(crate) fn webhook_unreachable(observed: &Observed) -> Vec<Finding> {
    let next = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";
    let found = of_class(observed, Class::Webhook).map(|refusal| {
        let name = refusal
            .message
            .split('"')
            .nth(1)
            .unwrap_or("of another component");
        let sentence = format!(
            "The admission webhook {name} does not answer, and the API server needs its answer."
        );
        finding(&refusal, sentence, next)
    });
    found.collect()
}

pub(crate) fn quota(observed: &Observed) -> Vec<Finding> {
    let sentence = "A resource quota of the namespace is too small for the guest.";
    of_class(observed, Class::Quota)
        .map(|refusal| {
            finding(
                &refusal,
                sentence,
                observed.kubectl("describe resourcequota"),
            )
        })
        .collect()
}

pub(crate) fn forbidden(observed: &Observed) -> Vec<Finding> {
    let next =
        "kubectl describe clusterrole kubevirt-controller  # and apply deploy/ferrovirt.yaml again";
    of_class(observed, Class::Forbidden)
        .map(|refusal| {
            let (verb, resource) = missing_right(refusal.message).unwrap_or_default();
            let sentence = format!(
                "virt-controller does not have the permission to {verb} {resource}; its role in the manifest has it."
            );
            finding(&refusal, sentence, next)
        })
        .collect()
}

pub(crate) fn namespace(observed: &Observed) -> Vec<Finding> {
    let sentence = "The namespace is being deleted, so no object can be created in it.";
    let next = format!("kubectl get namespace {} -o yaml", observed.namespace);
    of_class(observed, Class::Namespace)
        .map(|refusal| finding(&refusal, sentence, &next))
        .collect()
}

pub(crate) fn device(observed: &Observed) -> Vec<Finding> {
    let sentence = "The cluster does not permit the device that the guest requests: the administrator adds it to \
                    permittedHostDevices of the KubeVirt object.";
    of_class(observed, Class::Device)
        .map(|refusal| finding(&refusal, sentence, "virtctl permitted-devices"))
        .collect()
}

pub(crate) fn vmi(observed: &Observed) -> Vec<Finding> {
    of_class(observed, Class::Other)
        .filter(|refusal| refusal.rejected == Rejected::Vmi)
        .map(|refusal| {
            let sentence = format!("The API server rejects the VMI: {}.", refusal.message);
            finding(
                &refusal,
                sentence,
                observed.kubectl(&format!("edit vm {}", observed.name)),
            )
        })
        .collect()
}

pub(crate) fn pod(observed: &Observed) -> Vec<Finding> {
    of_class(observed, Class::Other)
        .filter(|refusal| refusal.rejected == Rejected::Pod)
        .map(|refusal| {
            let sentence = format!(
                "The pod of the guest cannot be created: {}.",
                refusal.message
            );
            finding(
                &refusal,
                sentence,
                observed.kubectl(&format!("describe vmi {}", observed.name)),
            )
        })
        .collect()
}
