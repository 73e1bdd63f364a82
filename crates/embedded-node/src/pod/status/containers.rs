//! The statuses of a pod's containers.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use pod_supervisor::status::{EndReason, State, Termination};
use reasons::Reason;
use serde_json::{Value, json};

use super::{
    super::plan::{Role, Run},
    ContainerView, Readiness, View, run,
};

/// The lists of container statuses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Group {
    Init,
    Main,
}

impl Group {
    fn of(role: Role) -> Self {
        match role {
            Role::Init | Role::Sidecar => Self::Init,
            Role::Main => Self::Main,
        }
    }
}

pub(super) fn containers(view: &View<'_>, group: Group) -> Value {
    view.containers
        .iter()
        .filter(|one| Group::of(one.role) == group)
        .map(|one| container(view, one))
        .collect()
}

fn container(view: &View<'_>, one: &ContainerView<'_>) -> Value {
    let uid = view.pod.metadata.uid.as_deref().unwrap_or_default();
    let id = |attempt: u32| format!("ferrovirt://{uid}/{}/{attempt}", one.container.name);
    let image = one.container.image.as_deref().unwrap_or_default();
    let running = run(one.status) == Run::Running;
    let finished_init = one.role == Role::Init && run(one.status) == Run::Succeeded;
    let mut rendered = json!({
        "name": one.container.name,
        "image": image,
        "imageID": one.digest.map_or(String::new(), |digest| {
            format!("{}@{digest}", image.split('@').next().unwrap_or_default())
        }),
        "ready": one.role != Role::Init && is_ready(one) || finished_init,
        "started": running && one.readiness != Readiness::Starting,
        "restartCount": one.status.map_or(0, |status| status.attempt),
        "state": state(view, one, &id),
        "lastState": {},
    });
    if let Some(status) = one.status {
        rendered["containerID"] = json!(id(status.attempt));
        let last = match &status.state {
            State::BackOff { termination, .. } => Some((termination, status.attempt)),
            _ => status
                .last
                .as_ref()
                .map(|last| (last, status.attempt.saturating_sub(1))),
        };
        if let Some((last, attempt)) = last {
            rendered["lastState"] = json!({"terminated": terminated(last, &id(attempt))});
        }
    }
    rendered
}

fn state(view: &View<'_>, one: &ContainerView<'_>, id: &dyn Fn(u32) -> String) -> Value {
    let waiting = |reason: Reason, message: &str| {
        let mut waiting = json!({"reason": reason.as_str()});
        if !message.is_empty() {
            waiting["message"] = json!(message);
        }
        json!({"waiting": waiting})
    };
    // Kubelets use one reason for all containers of a pod with init containers.
    let starting = if has_init(view) {
        Reason::PodInitializing
    } else {
        Reason::ContainerCreating
    };
    match one.status.map(|status| (&status.state, status)) {
        Some((State::Running { started_ms, .. }, _)) => {
            json!({"running": {"startedAt": time(*started_ms)}})
        }
        Some((State::Ended { termination }, status)) => {
            json!({"terminated": terminated(termination, &id(status.attempt))})
        }
        Some((
            State::BackOff {
                delay_ms,
                termination,
                ..
            },
            _,
        )) => {
            if termination.reason == EndReason::StartError {
                return waiting(Reason::CreateContainerError, &termination.message);
            }
            let message = back_off(view.pod, &one.container.name, *delay_ms);
            waiting(Reason::CrashLoopBackOff, &message)
        }
        Some((State::Starting, _)) => waiting(starting, ""),
        None => match (&one.failure, view.obstacle) {
            (Some(failure), _) => waiting(failure.reason, &failure.message),
            // Kubelets name no reason; users see it in the condition of their VMI.
            (None, Some(obstacle)) if Reason::CONTAINER_WAITS.contains(&obstacle.reason) => {
                waiting(obstacle.reason, &obstacle.message)
            }
            (None, Some(obstacle)) => waiting(starting, &obstacle.message),
            (None, None) => waiting(starting, ""),
        },
    }
}

/// The message of a container in back-off, as kubelets write it.
fn back_off(pod: &Pod, container: &str, delay_ms: i64) -> String {
    let meta = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (minutes, seconds) = (delay_ms / 60_000, delay_ms / 1000 % 60);
    let wait = if minutes > 0 {
        format!("{minutes}m{seconds}s")
    } else {
        format!("{seconds}s")
    };
    format!(
        "back-off {wait} restarting failed container={container} pod={}_{}({})",
        text(&meta.name),
        text(&meta.namespace),
        text(&meta.uid)
    )
}

fn has_init(view: &View<'_>) -> bool {
    view.containers.iter().any(|one| one.role != Role::Main)
}

fn terminated(termination: &Termination, id: &str) -> Value {
    let mut rendered = json!({
        "exitCode": termination.exit_code,
        "reason": termination.reason.name(),
        "startedAt": time(termination.started_ms),
        "finishedAt": time(termination.finished_ms),
        "containerID": id,
    });
    if let Some(signal) = termination.signal {
        rendered["signal"] = json!(signal);
    }
    if !termination.message.is_empty() {
        rendered["message"] = json!(termination.message);
    }
    rendered
}

/// Kubernetes times have whole seconds.
fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_second(milliseconds.div_euclid(1000)).unwrap_or_default()
}

pub(super) fn is_ready(one: &ContainerView<'_>) -> bool {
    run(one.status) == Run::Running && one.readiness == Readiness::Ready
}

/// Whether the containers after this one may start.
pub(super) fn is_initialized(one: &ContainerView<'_>) -> bool {
    match (one.role, run(one.status)) {
        (Role::Init, Run::Absent | Run::Starting | Run::Running | Run::BackOff | Run::Failed)
        | (Role::Sidecar, Run::Absent | Run::Starting) => false,
        (Role::Sidecar, Run::Running) => one.readiness != Readiness::Starting,
        (Role::Main, _)
        | (Role::Init, Run::Succeeded)
        | (Role::Sidecar, Run::BackOff | Run::Succeeded | Run::Failed) => true,
    }
}
