//! Pods that do not start, or that ended because of their node.

use reasons::Reason;

use crate::{Finding, Observed, ending, observed::name_of};

pub(crate) const CONFIG: &[Reason] = &[Reason::CreateContainerConfigError];
pub(crate) const START: &[Reason] = &[
    Reason::CreateContainerError,
    Reason::RunContainerError,
    Reason::PostStartHookError,
];
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
    waiting(observed, START, "The node cannot start container {}.")
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
    let status = pod.status.as_ref();
    if status.and_then(|status| status.reason.as_deref()) != Some(reason.as_str()) {
        return Vec::new();
    }
    let message = status
        .and_then(|status| status.message.as_deref())
        .unwrap_or_default();
    let pod = name_of(&pod.metadata);
    vec![
        Finding::new(format!("The guest's pod was evicted: {message}"))
            .because(reason)
            .evidence(format!("pod/{pod}"), "status.reason", reason.as_str())
            .next(observed.kubectl(&format!("describe pod {pod}"))),
    ]
}
