//! Components of the installation that cannot do their work, as far as whoever asks may see them.

use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

use crate::{
    Finding, Observed,
    images::PULLING,
    observed::{name_of, time_of},
};

/// What components say of themselves, again and again as long as it is so.
const TOLD: [&str; 4] = [
    "RightMissing",
    "NotInstalled",
    "CertificateNotRenewed",
    "SecondInstallation",
];
/// They say it every ten seconds; a minute after the last time it is over.
const FRESH: i64 = 60;

/// What they warn of now.
pub(crate) fn hindered(seen: &Observed) -> Vec<Finding> {
    if is_of_no_account(seen) {
        return Vec::new();
    }
    let is_now = |event: &&k8s_openapi::api::core::v1::Event| {
        let reason = event.reason.as_deref().unwrap_or_default();
        let age = seen.now().duration_since(time_of(event)).as_secs();
        TOLD.contains(&reason) && age <= FRESH
    };
    let mut found: Vec<Finding> = Vec::new();
    for event in seen.installation.events.iter().filter(is_now) {
        let message = event.message.as_deref().unwrap_or_default();
        let object = &event.involved_object;
        let name = object.name.as_deref().unwrap_or_default();
        let namespace = object.namespace.as_deref().unwrap_or_default();
        let (sentence, remedy) = split(message);
        let finding = Finding::new(capital(sentence))
            .seen(
                format!("event of pod/{name} in namespace {namespace}"),
                event.reason.as_deref().unwrap_or_default(),
                message,
            )
            .next(remedy.map_or_else(
                || format!("kubectl -n {namespace} describe pod {name}"),
                str::to_owned,
            ));
        // Each replica says it.
        if !found.iter().any(|one| one.sentence == finding.sentence) {
            found.push(finding);
        }
    }
    found
}

/// The remedy is the command at the end of what they say.
fn split(message: &str) -> (&str, Option<&str>) {
    match message.rfind(": kubectl ") {
        Some(at) => (&message[..at], Some(&message[at + 2..])),
        None => (message, None),
    }
}

fn capital(text: &str) -> String {
    // Names of programs stay as they are.
    let mut letters = text.chars();
    match letters.next() {
        Some(first) if !text.starts_with("virt-") => first.to_uppercase().chain(letters).collect(),
        _ => text.to_owned(),
    }
}

fn waiting(seen: &Observed) -> impl Iterator<Item = (&Pod, &ContainerStatus, &str, &str)> {
    let pods = seen
        .installation
        .pods
        .iter()
        .filter(|_| !is_of_no_account(seen));
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

pub(crate) fn image(seen: &Observed) -> Vec<Finding> {
    let found = waiting(seen).filter(|(_, _, reason, _)| PULLING.contains(reason));
    let found = found.map(|(pod, container, reason, message)| {
        let name = name_of(&pod.metadata);
        let sentence = format!(
            "The image {:?} of Ferrovirt's own pod {name} cannot be had; is the tag in the manifest right?",
            container.image
        );
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        Finding::new(sentence)
            .seen(format!("pod/{name}"), "status", format!("{reason}: {message}"))
            .next(format!("kubectl -n {namespace} describe pod {name}"))
    });
    found.collect()
}

pub(crate) fn failing(seen: &Observed) -> Vec<Finding> {
    let found = waiting(seen).filter(|(_, _, reason, _)| *reason == "CrashLoopBackOff");
    let found = found.map(|(pod, container, reason, _)| {
        let name = name_of(&pod.metadata);
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let last = container.last_state.as_ref();
        let last = last.and_then(|state| state.terminated.as_ref()?.message.as_deref());
        let last = last.unwrap_or_default().trim();
        let last = last.lines().last().unwrap_or(reason);
        Finding::new(format!(
            "Ferrovirt's own pod {name} ends again and again: {last}"
        ))
        .seen(format!("pod/{name}"), "status", reason)
        .next(format!("kubectl -n {namespace} logs {name} --previous"))
    });
    found.collect()
}

/// A guest that is as it should be needs nobody now.
fn is_of_no_account(seen: &Observed) -> bool {
    seen.is_settled()
}
