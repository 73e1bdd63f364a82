//! Images that cannot be pulled.

use reasons::Reason;

use crate::{
    Finding, Observed,
    observed::{Waiting, name_of},
    pod_images::{self, PodImage, Purpose},
};

/// Reasons of a container that waits for an image.
pub(crate) const PULLING: &[Reason] = &[
    Reason::ErrImagePull,
    Reason::ImagePullBackOff,
    Reason::InvalidImageName,
    Reason::ErrImageNeverPull,
    Reason::RegistryUnavailable,
    Reason::ImageInspectError,
    Reason::SignatureValidationFailed,
];

/// Whether a container with this reason waits for an image.
pub(crate) fn is_pulling(reason: &str) -> bool {
    PULLING.iter().any(|known| *known == *reason)
}

/// Whether the pod waits for an image.
pub(crate) fn is_waiting(observed: &Observed) -> bool {
    observed.waiting().any(|waiting| is_pulling(waiting.reason))
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

/// A pull that failed.
struct Failure<'a> {
    waiting: Waiting<'a>,
    message: &'a str,
    image: PodImage<'a>,
}

fn failures(observed: &Observed) -> Vec<Failure<'_>> {
    let mut found: Vec<Failure<'_>> = Vec::new();
    let all = observed.waiting();
    for waiting in all.filter(|waiting| is_pulling(waiting.reason)) {
        let message = registry_message(observed, waiting.message);
        let image = pod_images::failed(observed, &waiting, message);
        // All containers of a pod wait for the image of a volume.
        if !found.iter().any(|one| one.image == image) {
            found.push(Failure {
                waiting,
                message,
                image,
            });
        }
    }
    found
}

impl Failure<'_> {
    /// Registries and clients have messages of their own; these strings are from the common ones.
    fn class(&self) -> Class {
        // The name of an image may contain any of them.
        let short = pod_images::short(self.image.reference);
        let message = self.message.replace(short, "").to_ascii_lowercase();
        let has = |parts: &[&str]| parts.iter().any(|part| message.contains(part));
        let mut words = message.split(|c: char| !c.is_ascii_alphanumeric());
        let mut has_code = |codes: &[&str]| words.any(|word| codes.contains(&word));
        match () {
            () if self.waiting.reason == Reason::InvalidImageName => Class::Name,
            () if has(&[
                "unauthorized",
                "forbidden",
                "denied",
                "authentication required",
                "refuses the credentials",
                "insufficient_scope",
                "no basic auth credentials",
            ]) =>
            {
                Class::Forbidden
            }
            () if has(&[
                "not found",
                "manifest unknown",
                "no such image",
                "is unknown",
                "does not have",
            ]) =>
            {
                Class::Missing
            }
            () if self.waiting.reason == Reason::ErrImageNeverPull => Class::Missing,
            () if has(&[
                "no such host",
                "connection refused",
                "timeout",
                "timed out",
                "dns error",
                "unreachable",
                "failed to lookup",
                "no route to host",
            ]) =>
            {
                Class::Unreachable
            }
            () if has_code(&["401", "403"]) => Class::Forbidden,
            () if has_code(&["404"]) => Class::Missing,
            () => Class::Other,
        }
    }

    fn finding(&self, observed: &Observed, sentence: impl Into<String>) -> Finding {
        let pod = name_of(&self.waiting.pod.metadata);
        let (reason, message) = (self.waiting.reason, self.message);
        let finding = Finding::new(sentence).reason(reason);
        // The field that a user can change comes first.
        let finding = match &self.image.purpose {
            Purpose::Disk { field, .. } | Purpose::Kernel { field } => {
                let object = observed.spec().map(|(_, object, _)| object);
                finding.evidence(
                    object.unwrap_or_default(),
                    field.as_str(),
                    self.image.reference,
                )
            }
            Purpose::Launcher | Purpose::Container => finding,
        };
        finding.evidence(
            format!("pod/{pod}"),
            self.waiting.field.as_str(),
            format!("{reason}: {message}"),
        )
    }

    /// The command for an image whose name or pull secret a user has to correct.
    fn correct(&self, observed: &Observed) -> String {
        match self.image.purpose {
            Purpose::Disk { .. } | Purpose::Kernel { .. } => observed.edit(),
            Purpose::Launcher | Purpose::Container => self.describe(observed),
        }
    }

    fn describe(&self, observed: &Observed) -> String {
        let pod = name_of(&self.waiting.pod.metadata);
        observed.kubectl(&format!("describe pod {pod}"))
    }
}

fn of_class(observed: &Observed, wanted: Class) -> impl Iterator<Item = Failure<'_>> {
    failures(observed).into_iter().filter(move |failure| {
        failure.image.purpose != Purpose::Launcher && failure.class() == wanted
    })
}

pub(crate) fn of_launcher(observed: &Observed) -> Vec<Finding> {
    let all = failures(observed).into_iter();
    let found = all.filter(|failure| failure.image.purpose == Purpose::Launcher);
    let found = found.map(|failure| {
        let sentence = format!(
            "The launcher image {:?} cannot be pulled. It is Ferrovirt's own: correct LAUNCHER_IMAGE of \
             the deployment virt-controller, or on a single host --launcher-image of ferrovirt up, then \
             delete the VMIs that wait.",
            failure.image.reference
        );
        // A single host has no deployments, and most users may not read them.
        let next = if observed.installation.pods.is_empty() {
            failure.describe(observed)
        } else {
            observed.in_installation("get deployment virt-controller -o yaml")
        };
        failure.finding(observed, sentence).next(next)
    });
    found.collect()
}

/// The registry's message: a kubelet that backs off may report only that, but an earlier event has the
/// message.
fn registry_message<'a>(observed: &'a Observed, message: &'a str) -> &'a str {
    if !is_bare(message) {
        return message;
    }
    let pod = observed
        .pod()
        .map(|pod| name_of(&pod.metadata))
        .unwrap_or_default();
    // Kubelets publish "Error: ErrImagePull" with the same reason.
    let has_cause = |text: &str| !text.starts_with("Error: ");
    let event = observed.event_with("Pod", pod, PULL_EVENTS, has_cause);
    let of_event = event.and_then(|event| event.message.as_deref());
    of_event.unwrap_or(message)
}

/// Whether a message is only that of a back-off, at most with the name of the image.
fn is_bare(message: &str) -> bool {
    if message.is_empty() {
        return true;
    }
    if !message.to_ascii_lowercase().starts_with("back-off") {
        return false;
    }
    let after_name = message.rsplit_once('"').map_or("", |(_, rest)| rest);
    let after_text = message.split_once(": ").map_or("", |(_, rest)| rest);
    after_name.trim_matches([':', ' ']).is_empty() && after_text.is_empty()
}

pub(crate) fn name_invalid(observed: &Observed) -> Vec<Finding> {
    let found = of_class(observed, Class::Name).map(|failure| {
        let sentence = format!("{} is not a valid image name.", failure.image);
        failure
            .finding(observed, sentence)
            .next(failure.correct(observed))
    });
    found.collect()
}

pub(crate) fn missing(observed: &Observed) -> Vec<Finding> {
    let found = of_class(observed, Class::Missing).map(|failure| {
        let image = &failure.image;
        let sentence = if failure.waiting.reason == Reason::ErrImageNeverPull {
            format!("{image} is not on the node, and its pull policy is Never.")
        } else if failure.message.contains("needs credentials") {
            format!("{image} does not exist in its registry, or it needs a pull secret.")
        } else {
            format!("{image} does not exist in its registry; are the name and the tag correct?")
        };
        failure
            .finding(observed, sentence)
            .next(failure.correct(observed))
    });
    found.collect()
}

pub(crate) fn forbidden(observed: &Observed) -> Vec<Finding> {
    let found = of_class(observed, Class::Forbidden).map(|failure| {
        let sentence = format!(
            "The registry denied access to {}; a containerDisk can name an imagePullSecret.",
            failure.image.lower()
        );
        failure
            .finding(observed, sentence)
            .next(failure.correct(observed))
    });
    found.collect()
}

pub(crate) fn unreachable(observed: &Observed) -> Vec<Finding> {
    let found = of_class(observed, Class::Unreachable).map(|failure| {
        let sentence = format!(
            "The registry of {} cannot be reached from the node.",
            failure.image.lower()
        );
        failure
            .finding(observed, sentence)
            .next(failure.describe(observed))
    });
    found.collect()
}

pub(crate) fn other(observed: &Observed) -> Vec<Finding> {
    let found = of_class(observed, Class::Other).map(|failure| {
        let sentence = format!("{} cannot be pulled.", failure.image);
        failure
            .finding(observed, sentence)
            .next(failure.describe(observed))
    });
    found.collect()
}
