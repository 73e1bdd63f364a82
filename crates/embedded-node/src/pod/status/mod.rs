//! Pure rendering of a pod's status, as a kubelet writes it.

mod conditions;
mod containers;
#[cfg(test)]
mod tests;

use std::{borrow::Cow, net::IpAddr};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use pod_supervisor::status::{ContainerStatus, State};
use reasons::Reason;
use serde_json::{Value, json};

use super::plan::{Role, Run};
use crate::{Failure, resources};

use containers::{Group, containers, is_initialized};

/// The inputs of a rendered status.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) now: Timestamp,
    pub(crate) host_ip: IpAddr,
    pub(crate) ips: &'a [IpAddr],
    /// The sandbox has its network.
    pub(crate) has_network: bool,
    pub(crate) start_time: Timestamp,
    pub(crate) containers: Vec<ContainerView<'a>>,
    /// The failure that ended the pod.
    pub(crate) failure: Option<&'a Failure>,
    /// The failure that keeps the pod from starting and is retried.
    pub(crate) obstacle: Option<&'a Failure>,
    /// The previous conditions: unchanged ones keep their transition times.
    pub(crate) before: &'a [PodCondition],
}

#[derive(Debug)]
pub(crate) struct ContainerView<'a> {
    pub(crate) container: &'a Container,
    pub(crate) role: Role,
    pub(crate) status: Option<&'a ContainerStatus>,
    /// Digest of the image it runs, once known.
    pub(crate) digest: Option<&'a str>,
    /// The image or configuration failure that keeps it from starting.
    pub(crate) failure: Option<Waiting<'a>>,
    /// The result of its probes while it runs.
    pub(crate) readiness: Readiness,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Readiness {
    /// The startup probe has not passed.
    Starting,
    /// The startup probe has passed, the readiness probe has not or no longer passes.
    Started,
    Ready,
}

#[derive(Debug, Clone)]
pub(crate) struct Waiting<'a> {
    pub(crate) reason: Reason,
    pub(crate) message: Cow<'a, str>,
}

pub(crate) fn run(status: Option<&ContainerStatus>) -> Run {
    match status.map(|status| &status.state) {
        None => Run::Absent,
        Some(State::Starting) => Run::Starting,
        Some(State::Running { .. }) => Run::Running,
        Some(State::BackOff { .. }) => Run::BackOff,
        Some(State::Ended { termination }) if termination.exit_code == 0 => Run::Succeeded,
        Some(State::Ended { .. }) => Run::Failed,
    }
}

pub(crate) fn render(view: &View<'_>) -> Value {
    let main_runs = || {
        view.containers
            .iter()
            .filter(|one| one.role == Role::Main)
            .map(|one| run(one.status))
    };
    let initialized = view.containers.iter().all(is_initialized);
    let init_failed = view
        .containers
        .iter()
        .any(|one| one.role == Role::Init && run(one.status) == Run::Failed);
    let ended = main_runs().all(|run| matches!(run, Run::Succeeded | Run::Failed));
    let phase = if view.failure.is_some()
        || init_failed
        || ended && main_runs().any(|run| run == Run::Failed)
    {
        "Failed"
    } else if ended {
        "Succeeded"
    } else if initialized && view.containers.iter().any(has_run) {
        "Running"
    } else {
        "Pending"
    };
    let mut status = json!({
        "phase": phase,
        "conditions": conditions::render(view, initialized, phase),
        "hostIP": view.host_ip,
        "hostIPs": [{"ip": view.host_ip}],
        "startTime": view.start_time,
        "qosClass": resources::qos_class(view.pod),
        "containerStatuses": containers(view, Group::Main),
    });
    if let Some(first) = view.ips.first() {
        status["podIP"] = json!(first);
        status["podIPs"] = view.ips.iter().map(|ip| json!({"ip": ip})).collect();
    }
    if view.containers.iter().any(|one| one.role != Role::Main) {
        status["initContainerStatuses"] = containers(view, Group::Init);
    }
    if let Some(failure) = view.failure {
        status["reason"] = json!(failure.reason.as_str());
        status["message"] = json!(failure.message);
    }
    status
}

/// Whether a main container has run. One that starts again keeps its pod running.
fn has_run(one: &ContainerView<'_>) -> bool {
    let again = one.status.is_some_and(|status| status.attempt > 0);
    match run(one.status) {
        _ if one.role != Role::Main => false,
        Run::Absent => false,
        Run::Starting => again,
        Run::Running | Run::BackOff | Run::Succeeded | Run::Failed => true,
    }
}

/// The status of a pod that cannot be bound to this node.
pub(crate) fn unschedulable(pod: &Pod, message: &str, now: Timestamp) -> Value {
    let before = pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    let since = before
        .clone()
        .find(|one| one.type_ == "PodScheduled" && one.status == "False")
        .and_then(|one| one.last_transition_time.as_ref())
        .map_or(now, |time| time.0);
    let mut conditions: Vec<Value> = before
        .filter(|one| one.type_ != "PodScheduled")
        .map(|one| json!(one))
        .collect();
    conditions.push(json!({
        "type": "PodScheduled", "status": "False", "reason": Reason::Unschedulable.as_str(), "message": message,
        "lastTransitionTime": since,
    }));
    json!({"phase": "Pending", "conditions": conditions})
}
