//! Images that cannot be pulled.

use reasons::Reason;

use crate::{
    Finding, Observed,
    observed::{Waiting, name_of},
};

/// Reasons of a container that waits for an image.
pub(crate) const PULLING: &[Reason] = &[
    Reason::ErrImagePull,
    Reason::ImagePullBackOff,
    Reason::InvalidImageName,
    Reason::ErrImageNeverPull,
    Reason::RegistryUnavailable,
];

/// Whether a container with this reason waits for an image.
pub(crate) fn is_pulling(reason: &str) -> bool {
    PULLING.iter().any(|known| *known == *reason)
}

/// Events with the message of a failed pull.
const PULL_EVENTS: &[Reason] = &[Reason::Failed, Reason::ErrImagePull];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Name,
    Missing,
    Forbidden,
    Unreachable,
    Other,
}

/// Registries and clients have messages of their own; these strings are from the common ones.
fn class(reason: &str, message: &str) -> Class {
    let message = message.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    match () {
        () if reason == Reason::InvalidImageName => Class::Name,
        () if has(&[
            "unauthorized",
            "forbidden",
            "denied",
            "authentication required",
            "401",
            "403",
        ]) =>
        {
            Class::Forbidden
        }
        () if has(&[
            "not found",
            "manifest unknown",
            "no such image",
            "404",
            "is unknown",
        ]) =>
        {
            Class::Missing
        }
        () if reason == Reason::ErrImageNeverPull => Class::Missing,
        () if has(&[
            "no such host",
            "connection refused",
            "timeout",
            "timed out",
            "dns error",
            "unreachable",
            "failed to lookup",
        ]) =>
        {
            Class::Unreachable
        }
        () => Class::Other,
    }
}

fn found(observed: &Observed, wanted: Class, sentence: fn(&str) -> String) -> Vec<Finding> {
    observed
        .waiting()
        .filter(|waiting| is_pulling(waiting.reason) && !is_launcher(observed, waiting))
        .filter(|waiting| {
            class(waiting.reason, registry_message(observed, waiting.message)) == wanted
        })
        .map(|waiting| {
            let pod = name_of(&waiting.pod.metadata);
            let message = registry_message(observed, waiting.message);
            Finding::new(sentence(failed_image(&waiting, message)))
                .reason(waiting.reason)
                .evidence(
                    format!("pod/{pod}"),
                    waiting.field,
                    format!("{}: {message}", waiting.reason),
                )
                .next(observed.kubectl(&format!("describe pod {pod}")))
        })
        .collect()
}

/// The image that the message is about. If a volume is an image, the container that mounts it waits,
/// although its own image may be fine.
fn failed_image<'a>(waiting: &Waiting<'a>, message: &'a str) -> &'a str {
    let own = waiting.container.image.as_str();
    if names(message, own) {
        return own;
    }
    let quoted = message.split('"').skip(1).step_by(2);
    let mut images = quoted.filter(|part| part.contains([':', '/']) && !part.contains(' '));
    images.next().unwrap_or(own)
}

/// Runtimes write the full name, with the registry.
fn names(message: &str, image: &str) -> bool {
    !image.is_empty() && message.contains(image.trim_start_matches("docker.io/"))
}

/// Whether the launcher's own image is the one that cannot be pulled.
fn is_launcher(observed: &Observed, waiting: &Waiting<'_>) -> bool {
    waiting.container.name == "compute"
        && names(
            registry_message(observed, waiting.message),
            &waiting.container.image,
        )
}

pub(crate) fn of_launcher(observed: &Observed) -> Vec<Finding> {
    let found = observed
        .waiting()
        .filter(|waiting| is_pulling(waiting.reason) && is_launcher(observed, waiting));
    let found = found.map(|waiting| {
        let image = &waiting.container.image;
        let sentence = format!(
            "The launcher image {image:?} cannot be pulled. It is Ferrovirt's own: correct LAUNCHER_IMAGE of \
             the deployment virt-controller, then delete the VMIs that wait."
        );
        let message = registry_message(observed, waiting.message);
        Finding::new(sentence)
            .reason(waiting.reason)
            .evidence(
                format!("pod/{}", name_of(&waiting.pod.metadata)),
                waiting.field,
                format!("{}: {message}", waiting.reason),
            )
            .next("kubectl -n kubevirt get deployment virt-controller -o yaml")
    });
    found.collect()
}

/// The registry's message: a kubelet that backs off reports only that, but an earlier event has the
/// message.
fn registry_message<'a>(observed: &'a Observed, message: &'a str) -> &'a str {
    let pod = observed
        .pod()
        .map(|pod| name_of(&pod.metadata))
        .unwrap_or_default();
    let event = observed.event("Pod", pod, PULL_EVENTS);
    let of_event = event.and_then(|event| event.message.as_deref());
    if message.is_empty() || message.to_ascii_lowercase().starts_with("back-off") {
        of_event.unwrap_or(message)
    } else {
        message
    }
}

pub(crate) fn name_invalid(observed: &Observed) -> Vec<Finding> {
    found(observed, Class::Name, |image| {
        format!("{image:?} is not a valid image name.")
    })
}

pub(crate) fn missing(observed: &Observed) -> Vec<Finding> {
    found(observed, Class::Missing, |image| {
        format!("Image {image:?} does not exist in its registry; are the name and the tag right?")
    })
}

pub(crate) fn forbidden(observed: &Observed) -> Vec<Finding> {
    found(observed, Class::Forbidden, |image| {
        format!(
            "The registry denied access to image {image:?}; a containerDisk can name an imagePullSecret."
        )
    })
}

pub(crate) fn unreachable(observed: &Observed) -> Vec<Finding> {
    found(observed, Class::Unreachable, |image| {
        format!("The registry of image {image:?} cannot be reached from the node.")
    })
}

pub(crate) fn other(observed: &Observed) -> Vec<Finding> {
    found(observed, Class::Other, |image| {
        format!("Image {image:?} cannot be pulled.")
    })
}
