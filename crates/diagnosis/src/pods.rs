//! Pods that do not start, or that ended because of their node.

use reasons::Reason;

use crate::{Finding, Observed, ending, observed::name_of, pod_images};

pub(crate) const CONFIG: &[Reason] = &[Reason::CreateContainerConfigError];
pub(crate) const START: &[Reason] = &[
    Reason::CreateContainerError,
    Reason::RunContainerError,
    Reason::PostStartHookError,
    Reason::StartError,
];
const NOT_STARTED: &str = "The node cannot start container {}.";

/// Containers that ended without having run, because the pod does not start them again.
fn never_ran(observed: &Observed) -> Vec<Finding> {
    let ended = observed.containers().filter_map(|(pod, container, at)| {
        let ended = container.state.as_ref()?.terminated.as_ref()?;
        let reason = Reason::StartError;
        if ended.reason.as_deref() != Some(reason.as_str()) {
            return None;
        }
        let (pod, message) = (name_of(&pod.metadata), ended.message.as_deref());
        let value = format!("{reason}: {}", message.unwrap_or_default());
        let finding = Finding::new(NOT_STARTED.replace("{}", &container.name))
            .because(reason)
            .evidence(
                format!("pod/{pod}"),
                format!("{at}.state.terminated"),
                value,
            )
            .next(observed.kubectl(&format!("describe pod {pod}")));
        Some(finding)
    });
    ended.collect()
}

/// How container runtimes begin the message about the image of a volume.
const IMAGE_NOT_MOUNTED: &str = "ImageVolumeMountFailed";

fn waiting(observed: &Observed, reasons: &[Reason], sentence: &str) -> Vec<Finding> {
    observed
        .waiting()
        .filter(|waiting| reasons.iter().any(|reason| *reason == *waiting.reason))
        .map(|waiting| {
            let pod = name_of(&waiting.pod.metadata);
            let value = format!("{}: {}", waiting.reason, waiting.message);
            Finding::new(sentence.replace("{}", &waiting.container.name))
                .reason(waiting.reason)
                .evidence(format!("pod/{pod}"), waiting.field, value)
                .next(observed.kubectl(&format!("describe pod {pod}")))
        })
        .collect()
}

pub(crate) fn config(observed: &Observed) -> Vec<Finding> {
    let sentence = "Container {} cannot be configured: an object that it refers to does not exist.";
    waiting(observed, CONFIG, sentence)
}

pub(crate) fn start(observed: &Observed) -> Vec<Finding> {
    let mut found = waiting(observed, START, NOT_STARTED);
    found.extend(never_ran(observed));
    for finding in &mut found {
        let message = finding.evidence.first().map(|one| one.value.clone());
        let message = message.unwrap_or_default();
        if !message.contains(IMAGE_NOT_MOUNTED) {
            continue;
        }
        let images = pod_images::of_guest(observed);
        let mut named = images.iter().map(|(_, image)| image);
        if let Some(image) = named.find(|image| pod_images::names(&message, image.reference)) {
            let sentence = format!("The node cannot mount the {}.", image.lower());
            finding.sentence = sentence;
        }
    }
    found
}

pub(crate) fn crashing(observed: &Observed) -> Vec<Finding> {
    let reasons = &[Reason::CrashLoopBackOff];
    let mut found = waiting(observed, reasons, "Container {} crashes repeatedly.");
    for finding in &mut found {
        let pod = observed
            .pod()
            .map(|pod| name_of(&pod.metadata))
            .unwrap_or_default();
        finding.next = observed.kubectl(&format!("logs {pod} --previous"));
    }
    found
}

pub(crate) fn out_of_memory(observed: &Observed) -> Vec<Finding> {
    let reason = Reason::OOMKilled;
    let ended = observed.containers().filter_map(|(pod, container, at)| {
        let now = container
            .state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let before = container
            .last_state
            .as_ref()
            .and_then(|state| state.terminated.as_ref());
        let (terminated, field) = match (now, before) {
            (Some(now), _) => (now, "state"),
            (None, before) => (before?, "lastState"),
        };
        (terminated.reason.as_deref() == Some(reason.as_str()))
            .then(|| (pod, format!("{at}.{field}.terminated.reason")))
    });
    let found: Vec<Finding> = ended
        .map(|(pod, field)| {
            let pod = name_of(&pod.metadata);
            Finding::new(ending::OUT_OF_MEMORY)
                .because(reason)
                .evidence(format!("pod/{pod}"), field, reason.as_str())
                .next(observed.kubectl(&format!("describe pod {pod}")))
        })
        .collect();
    if found.is_empty() {
        return ending::out_of_memory(observed);
    }
    found
}

pub(crate) fn evicted(observed: &Observed) -> Vec<Finding> {
    let Some(pod) = observed.pod() else {
        return Vec::new();
    };
    let reason = Reason::Evicted;
    let name = name_of(&pod.metadata);
    let status = pod.status.as_ref();
    let in_status = status
        .filter(|status| status.reason.as_deref() == Some(reason.as_str()))
        .map(|status| ("status.reason", status.message.as_deref()));
    // A pod whose containers end well when they are stopped keeps no reason, but the kubelet's event.
    let in_event = || {
        let event = observed.event("Pod", name, &[reason])?;
        Some(("event", event.message.as_deref()))
    };
    let Some((field, message)) = in_status.or_else(in_event) else {
        return Vec::new();
    };
    let message = message.unwrap_or_default().trim_end();
    vec![
        Finding::new(format!("The guest's pod was evicted: {message}"))
            .because(reason)
            .evidence(format!("pod/{name}"), field, reason.as_str())
            .next(observed.kubectl(&format!("describe pod {name}"))),
    ]
}
