//! What the API server has against instances and pods, told apart by its words.

use kubevirt_api::{
    conditions::Condition as _, reasons, vmi_status::VirtualMachineInstanceConditionType as Type,
};

use crate::{Finding, Observed};

/// Who was refused what, and in which words.
struct Refusal<'a> {
    object: String,
    field: &'static str,
    message: &'a str,
    of: Of,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Of {
    Instance,
    Pod,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Certificate,
    Webhook,
    Quota,
    Forbidden,
    Namespace,
    Other,
}

fn refusals(seen: &Observed) -> Vec<Refusal<'_>> {
    let mut found = Vec::new();
    if let Some(failure) = seen.vm_condition("Failure")
        && failure.reason() == reasons::vm::FAILED_CREATE
    {
        found.push(Refusal {
            object: seen.vm_object(),
            field: "status.conditions[Failure]",
            message: failure.message(),
            of: Of::Instance,
        });
    }
    if let Some((reasons::vmi::FAILED_CREATE, message)) = seen.complaint(&Type::Synchronized) {
        found.push(Refusal {
            object: seen.vmi_object(),
            field: "status.conditions[Synchronized]",
            message,
            of: Of::Pod,
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
    } else if lacks(message).is_some() {
        Class::Forbidden
    } else {
        Class::Other
    }
}

/// Whether the webhook, which the message names first, is one of Ferrovirt.
fn is_ours(message: &str) -> bool {
    let name = message.split('"').nth(1).unwrap_or_default();
    name.ends_with(".kubevirt.io") || name.ends_with(".ferrovirt.io")
}

/// The verb and the resource that somebody has no right to, in the words of the API server.
fn lacks(message: &str) -> Option<(&str, &str)> {
    let (_, rest) = message.split_once("\" cannot ")?;
    let (verb, rest) = rest.split_once(" resource \"")?;
    Some((verb, rest.split_once('"')?.0))
}

fn of_class(seen: &Observed, wanted: Class) -> impl Iterator<Item = Refusal<'_>> {
    let all = refusals(seen).into_iter();
    all.filter(move |refusal| class(refusal.message) == wanted)
}

fn tell(refusal: &Refusal<'_>, sentence: impl Into<String>, next: impl Into<String>) -> Finding {
    Finding::new(sentence)
        .seen(&refusal.object, refusal.field, refusal.message)
        .next(next)
}

pub(crate) fn webhook_certificate(seen: &Observed) -> Vec<Finding> {
    let next = "kubectl -n kubevirt rollout restart deployment virt-api";
    let sentence = "The certificate that virt-api shows to API servers is not valid, so nothing is made. \
                    virt-api renews it by itself, within half a minute; at once when it starts. Is the clock right?";
    of_class(seen, Class::Certificate)
        .map(|refusal| tell(&refusal, sentence, next))
        .collect()
}

pub(crate) fn webhook_unreachable(seen: &Observed) -> Vec<Finding> {
    let next = "kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations";
    let found = of_class(seen, Class::Webhook).map(|refusal| {
        let name = refusal.message.split('"').nth(1).unwrap_or("of somebody");
        let sentence = format!(
            "The admission webhook {name} does not answer, and nothing is made without its word."
        );
        tell(&refusal, sentence, next)
    });
    found.collect()
}

pub(crate) fn quota(seen: &Observed) -> Vec<Finding> {
    let sentence = "A resource quota of the namespace leaves no room for the guest.";
    of_class(seen, Class::Quota)
        .map(|refusal| tell(&refusal, sentence, seen.kubectl("describe resourcequota")))
        .collect()
}

pub(crate) fn forbidden(seen: &Observed) -> Vec<Finding> {
    let next =
        "kubectl describe clusterrole kubevirt-controller  # and apply deploy/ferrovirt.yaml again";
    of_class(seen, Class::Forbidden)
        .map(|refusal| {
            let (verb, resource) = lacks(refusal.message).unwrap_or_default();
            let sentence = format!(
                "The controller lacks the right to {verb} {resource}, which its role in the manifest has."
            );
            tell(&refusal, sentence, next)
        })
        .collect()
}

pub(crate) fn namespace(seen: &Observed) -> Vec<Finding> {
    let sentence = "The namespace is being deleted, so nothing new is made in it.";
    let next = format!("kubectl get namespace {} -o yaml", seen.namespace);
    of_class(seen, Class::Namespace)
        .map(|refusal| tell(&refusal, sentence, &next))
        .collect()
}

pub(crate) fn instance(seen: &Observed) -> Vec<Finding> {
    of_class(seen, Class::Other)
        .filter(|refusal| refusal.of == Of::Instance)
        .map(|refusal| {
            let sentence = format!("The API server refuses the instance: {}.", refusal.message);
            tell(
                &refusal,
                sentence,
                seen.kubectl(&format!("edit vm {}", seen.name)),
            )
        })
        .collect()
}

pub(crate) fn pod(seen: &Observed) -> Vec<Finding> {
    of_class(seen, Class::Other)
        .filter(|refusal| refusal.of == Of::Pod)
        .map(|refusal| {
            let sentence = format!("No pod can be made for the guest: {}.", refusal.message);
            tell(
                &refusal,
                sentence,
                seen.kubectl(&format!("describe vmi {}", seen.name)),
            )
        })
        .collect()
}
