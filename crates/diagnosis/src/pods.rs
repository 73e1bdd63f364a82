//! Pods that do not start, or that end for a reason of the node.

use crate::{Finding, Observed, observed::name_of};

const CONFIG: [&str; 1] = ["CreateContainerConfigError"];
const START: [&str; 3] = [
    "CreateContainerError",
    "RunContainerError",
    "PostStartHookError",
];

fn waiting(seen: &Observed, reasons: &[&str], sentence: &str) -> Vec<Finding> {
    seen.waiting()
        .filter(|waiting| reasons.contains(&waiting.reason))
        .map(|waiting| {
            let pod = name_of(&waiting.pod.metadata);
            let says = format!("{}: {}", waiting.reason, waiting.message);
            Finding::new(sentence.replace("{}", &waiting.container.name))
                .seen(format!("pod/{pod}"), waiting.field, says)
                .next(seen.kubectl(&format!("describe pod {pod}")))
        })
        .collect()
}

pub(crate) fn config(seen: &Observed) -> Vec<Finding> {
    let sentence = "The container {} cannot be set up: something that it refers to is not there.";
    waiting(seen, &CONFIG, sentence)
}

pub(crate) fn start(seen: &Observed) -> Vec<Finding> {
    waiting(seen, &START, "The node cannot start the container {}.")
}

pub(crate) fn crashing(seen: &Observed) -> Vec<Finding> {
    let mut found = waiting(
        seen,
        &["CrashLoopBackOff"],
        "The container {} ends again and again.",
    );
    for finding in &mut found {
        let pod = seen
            .pod()
            .map(|pod| name_of(&pod.metadata))
            .unwrap_or_default();
        finding.next = seen.kubectl(&format!("logs {pod} --previous"));
    }
    found
}

pub(crate) fn out_of_memory(seen: &Observed) -> Vec<Finding> {
    let ended = seen.containers().filter_map(|(pod, container, at)| {
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
        (terminated.reason.as_deref() == Some("OOMKilled"))
            .then(|| (pod, format!("{at}.{field}.terminated.reason")))
    });
    let found: Vec<Finding> = ended
        .map(|(pod, field)| {
            let sentence = "The guest's pod used more memory than its limit, and the kernel ended \
                            it; raise the limit or leave it out.";
            let pod = name_of(&pod.metadata);
            Finding::new(sentence)
                .seen(format!("pod/{pod}"), field, "OOMKilled")
                .next(seen.kubectl(&format!("describe pod {pod}")))
        })
        .collect();
    if found.is_empty() {
        return crate::instance::killed(seen);
    }
    found
}

pub(crate) fn evicted(seen: &Observed) -> Vec<Finding> {
    let Some(pod) = seen.pod() else {
        return Vec::new();
    };
    let status = pod.status.as_ref();
    if status.and_then(|status| status.reason.as_deref()) != Some("Evicted") {
        return Vec::new();
    }
    let message = status
        .and_then(|status| status.message.as_deref())
        .unwrap_or_default();
    let pod = name_of(&pod.metadata);
    vec![
        Finding::new(format!("The node threw the guest's pod out: {message}"))
            .seen(format!("pod/{pod}"), "status.reason", "Evicted")
            .next(seen.kubectl(&format!("describe pod {pod}"))),
    ]
}
