//! Components of the installation that do not work, as far as the user may see them.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};
use reasons::Reason;

use crate::{
    Finding, Observed,
    images::is_pulling,
    observed::{name_of, time_of},
};

/// Warnings that a component repeats on its own pod until the problem is solved.
pub(crate) const REPORTED: &[Reason] = &[
    Reason::RightMissing,
    Reason::NotInstalled,
    Reason::CertificateNotRenewed,
    Reason::SecondInstallation,
];
/// Components repeat their warnings every ten seconds: one that is older than this is over.
const FRESH: i64 = 60;

/// Warnings that components publish now.
pub(crate) fn unavailable(observed: &Observed) -> Vec<Finding> {
    if observed.is_as_requested() {
        return Vec::new();
    }
    let is_now = |event: &&k8s_openapi::api::core::v1::Event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        let age = observed.now().duration_since(time_of(event)).as_secs();
        REPORTED.iter().any(|known| *known == *reason) && age <= FRESH
    };
    let mut found: Vec<Finding> = Vec::new();
    for event in observed.installation.events.iter().filter(is_now) {
        let message = event.message.as_deref().unwrap_or_default();
        let object = &event.involved_object;
        let name = object.name.as_deref().unwrap_or_default();
        let namespace = object.namespace.as_deref().unwrap_or_default();
        let (sentence, command) = split(message);
        let reason = event.reason.as_deref().unwrap_or_default();
        let finding = Finding::new(capital(sentence))
            .reason(reason)
            .evidence(
                format!("event of pod/{name} in namespace {namespace}"),
                reason,
                message,
            )
            .next(command.map_or_else(
                || format!("kubectl -n {namespace} describe pod {name}"),
                str::to_owned,
            ));
        // Each replica publishes it.
        if !found.iter().any(|one| one.sentence == finding.sentence) {
            found.push(finding);
        }
    }
    found
}

/// A message ends with the command that helps.
fn split(message: &str) -> (&str, Option<&str>) {
    match message.rfind(": kubectl ") {
        Some(at) => (&message[..at], Some(&message[at + 2..])),
        None => (message, None),
    }
}

fn capital(text: &str) -> String {
    // Names of programs start with a lower-case letter.
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !text.starts_with("virt-") => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

fn waiting(observed: &Observed) -> impl Iterator<Item = (&Pod, &ContainerStatus, &str, &str)> {
    let pods = observed
        .installation
        .pods
        .iter()
        .filter(|_| !observed.is_as_requested());
    pods.flat_map(|pod| {
        let status = pod.status.as_ref();
        let first = status.and_then(|status| status.init_container_statuses.as_ref());
        let then = status.and_then(|status| status.container_statuses.as_ref());
        let all = first.into_iter().chain(then).flatten();
        all.filter_map(move |container| {
            let waiting = container.state.as_ref()?.waiting.as_ref()?;
            let message = waiting.message.as_deref().unwrap_or_default();
            Some((pod, container, waiting.reason.as_deref()?, message))
        })
    })
}

pub(crate) fn image(observed: &Observed) -> Vec<Finding> {
    let found = waiting(observed).filter(|(_, _, reason, _)| is_pulling(reason));
    let found = found.map(|(pod, container, reason, message)| {
        let name = name_of(&pod.metadata);
        let sentence = format!(
            "The image {:?} of Ferrovirt's own pod {name} cannot be pulled; is the tag in the manifest correct?",
            container.image
        );
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Finding::new(sentence)
            .reason(reason)
            .evidence(format!("pod/{name}"), "status", format!("{reason}: {message}"))
            .next(format!("kubectl -n {namespace} describe pod {name}"))
    });
    found.collect()
}

pub(crate) fn failing(observed: &Observed) -> Vec<Finding> {
    let found = waiting(observed).filter(|(_, _, reason, _)| *reason == Reason::CrashLoopBackOff);
    let found = found.map(|(pod, container, reason, _)| {
        let name = name_of(&pod.metadata);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let last = container.last_state.as_ref();
        let last = last.and_then(|state| state.terminated.as_ref()?.message.as_deref());
        let last = last.unwrap_or_default().trim();
        let last = last.lines().last().unwrap_or(reason);
        Finding::new(format!(
            "Ferrovirt's own pod {name} crashes repeatedly: {last}"
        ))
        .reason(reason)
        .evidence(format!("pod/{name}"), "status", reason)
        .next(format!("kubectl -n {namespace} logs {name} --previous"))
    });
    found.collect()
}
