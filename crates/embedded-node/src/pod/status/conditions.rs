//! The conditions of a pod.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{Pod, PodCondition};
use reasons::Reason;
use serde_json::{Value, json};

use super::{
    super::plan::Role,
    ContainerView, View,
    containers::{is_initialized, is_ready},
};

pub(super) fn render(view: &View<'_>, initialized: bool, phase: &str) -> Value {
    let unready: Vec<&str> = names(view, |one| one.role != Role::Init && !is_ready(one));
    let containers_ready = phase == "Running" && unready.is_empty();
    let reason = if phase == "Succeeded" {
        Reason::PodCompleted
    } else {
        Reason::ContainersNotReady
    };
    let not_ready = format!("containers with unready status: [{}]", unready.join(" "));
    let gates = closed_gates(view.pod);
    let ready = containers_ready && gates.is_none();
    let (ready_reason, ready_message) = match gates {
        Some(message) if containers_ready => (Reason::ReadinessGatesNotReady, message),
        _ => (reason, not_ready.clone()),
    };
    let undone = names(view, |one| one.role != Role::Main && !is_initialized(one));
    let not_initialized = format!("containers with incomplete status: [{}]", undone.join(" "));
    let all = [
        ("PodReadyToStartContainers", view.has_network, None, ""),
        (
            "Initialized",
            initialized,
            Some(Reason::ContainersNotInitialized),
            &*not_initialized,
        ),
        ("Ready", ready, Some(ready_reason), &*ready_message),
        (
            "ContainersReady",
            containers_ready,
            Some(reason),
            &*not_ready,
        ),
        ("PodScheduled", true, None, ""),
    ];
    let before: BTreeMap<&str, &PodCondition> = view
        .before
        .iter()
        .map(|condition| (condition.type_.as_str(), condition))
        .collect();
    let mut rendered: Vec<Value> = all
        .into_iter()
        .map(|(kind, holds, reason, message)| {
            let status = if holds { "True" } else { "False" };
            let since = before
                .get(kind)
                .filter(|old| old.status == status)
                .and_then(|old| old.last_transition_time.as_ref())
                .map_or(view.now, |time| time.0);
            let mut condition =
                json!({"type": kind, "status": status, "lastTransitionTime": since});
            if let (false, Some(reason)) = (holds, reason) {
                condition["reason"] = json!(reason.as_str());
                // A failure of the whole pod explains more than a list of containers.
                let message = view.obstacle.map_or(message, |obstacle| &obstacle.message);
                if reason != Reason::PodCompleted {
                    condition["message"] = json!(message);
                }
            }
            condition
        })
        .collect();
    // Other controllers may keep their own conditions.
    let known = |kind: &str| all.iter().any(|(one, ..)| *one == kind);
    let foreign = view
        .pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    rendered.extend(
        foreign
            .filter(|one| !known(&one.type_))
            .map(|one| json!(one)),
    );
    rendered.into()
}

fn names<'a>(view: &'a View<'_>, which: impl Fn(&ContainerView<'_>) -> bool) -> Vec<&'a str> {
    let all = view.containers.iter().filter(|one| which(one));
    all.map(|one| one.container.name.as_str()).collect()
}

/// The message about readiness gates that are not open; other controllers write their conditions.
fn closed_gates(pod: &Pod) -> Option<String> {
    let gates = pod.spec.as_ref()?.readiness_gates.iter().flatten();
    let conditions = pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let closed: Vec<String> = gates
        .filter_map(|gate| {
            let kind = &gate.condition_type;
            let found = conditions
                .into_iter()
                .flatten()
                .find(|one| one.type_ == *kind);
            Some(match found {
                Some(one) if one.status == "True" => return None,
                Some(one) => format!(
                    "the status of pod readiness gate {kind:?} is not \"True\", but {}",
                    one.status
                ),
                None => {
                    format!(
                        "corresponding condition of pod readiness gate {kind:?} does not exist."
                    )
                }
            })
        })
        .collect();
    (!closed.is_empty()).then(|| closed.join(", "))
}
