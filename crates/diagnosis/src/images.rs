//! Images that cannot be had.

use crate::{
    Finding, Observed,
    observed::{Waiting, name_of},
};

/// Reasons of a container that waits for an image.
pub(crate) const PULLING: [&str; 5] = [
    "ErrImagePull",
    "ImagePullBackOff",
    "InvalidImageName",
    "ErrImageNeverPull",
    "RegistryUnavailable",
];

#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    Name,
    Missing,
    Forbidden,
    Unreachable,
    Other,
}

/// Registries and clients have words of their own; these are those of the common ones.
fn class(reason: &str, message: &str) -> Class {
    let message = message.to_ascii_lowercase();
    let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
    match () {
        () if reason == "InvalidImageName" => Class::Name,
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
        () if reason == "ErrImageNeverPull" => Class::Missing,
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

fn found(seen: &Observed, wanted: Class, sentence: fn(&str) -> String) -> Vec<Finding> {
    seen.waiting()
        .filter(|waiting| PULLING.contains(&waiting.reason) && !is_launcher(seen, waiting))
        .filter(|waiting| class(waiting.reason, last_word(seen, waiting.message)) == wanted)
        .map(|waiting| {
            let pod = name_of(&waiting.pod.metadata);
            let message = last_word(seen, waiting.message);
            Finding::new(sentence(meant(&waiting, message)))
                .seen(
                    format!("pod/{pod}"),
                    waiting.field,
                    format!("{}: {message}", waiting.reason),
                )
                .next(seen.kubectl(&format!("describe pod {pod}")))
        })
        .collect()
}

/// The image that the message is about. Where a volume is an image, the container that mounts it waits,
/// and its own image is not the matter.
fn meant<'a>(waiting: &Waiting<'a>, message: &'a str) -> &'a str {
    let own = waiting.container.image.as_str();
    if names(message, own) {
        return own;
    }
    let quoted = message.split('"').skip(1).step_by(2);
    let mut images = quoted.filter(|part| part.contains([':', '/']) && !part.contains(' '));
    images.next().unwrap_or(own)
}

/// Runtimes write names in full.
fn names(message: &str, image: &str) -> bool {
    !image.is_empty() && message.contains(image.trim_start_matches("docker.io/"))
}

/// The one container that every guest's pod has, and its own image.
fn is_launcher(seen: &Observed, waiting: &Waiting<'_>) -> bool {
    waiting.container.name == "compute"
        && names(last_word(seen, waiting.message), &waiting.container.image)
}

pub(crate) fn of_launcher(seen: &Observed) -> Vec<Finding> {
    let found = seen
        .waiting()
        .filter(|waiting| PULLING.contains(&waiting.reason) && is_launcher(seen, waiting));
    let found = found.map(|waiting| {
        let image = &waiting.container.image;
        let sentence = format!(
            "The image of launchers, {image:?}, cannot be had. It is Ferrovirt's own: LAUNCHER_IMAGE of the \
             deployment virt-controller names it, and a machine that waits takes the right one when its \
             instance is deleted."
        );
        let message = last_word(seen, waiting.message);
        Finding::new(sentence)
            .seen(
                format!("pod/{}", name_of(&waiting.pod.metadata)),
                waiting.field,
                format!("{}: {message}", waiting.reason),
            )
            .next("kubectl -n kubevirt get deployment virt-controller -o yaml")
    });
    found.collect()
}

/// While it backs off, a kubelet says only that; the event before has the registry's words.
fn last_word<'a>(seen: &'a Observed, message: &'a str) -> &'a str {
    let pod = seen
        .pod()
        .map(|pod| name_of(&pod.metadata))
        .unwrap_or_default();
    let event = seen.event("Pod", pod, &["Failed", "ErrImagePull", "FailedPull"]);
    let of_event = event.and_then(|event| event.message.as_deref());
    if message.is_empty() || message.to_ascii_lowercase().starts_with("back-off") {
        of_event.unwrap_or(message)
    } else {
        message
    }
}

pub(crate) fn name_invalid(seen: &Observed) -> Vec<Finding> {
    found(seen, Class::Name, |image| {
        format!("{image:?} is not the name of an image.")
    })
}

pub(crate) fn missing(seen: &Observed) -> Vec<Finding> {
    found(seen, Class::Missing, |image| {
        format!("There is no image {image:?}; is the name right, and the tag?")
    })
}

pub(crate) fn forbidden(seen: &Observed) -> Vec<Finding> {
    found(seen, Class::Forbidden, |image| {
        format!(
            "The registry does not give away {image:?}; a containerDisk takes an imagePullSecret."
        )
    })
}

pub(crate) fn unreachable(seen: &Observed) -> Vec<Finding> {
    found(seen, Class::Unreachable, |image| {
        format!("The registry of {image:?} cannot be reached from the node.")
    })
}

pub(crate) fn other(seen: &Observed) -> Vec<Finding> {
    found(seen, Class::Other, |image| {
        format!("The image {image:?} cannot be had.")
    })
}
