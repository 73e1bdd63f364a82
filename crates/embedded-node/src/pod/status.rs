//! The status of a pod as a kubelet would write it: pure.

use std::{borrow::Cow, collections::BTreeMap, net::IpAddr};

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodCondition};
use pod_supervisor::status::{ContainerStatus, EndReason, State, Termination};
use reasons::Reason;
use serde_json::{Value, json};

use super::plan::{Role, Run};
use crate::{Failure, resources};

/// Everything that shows in the status.
#[derive(Debug)]
pub(crate) struct View<'a> {
    pub(crate) pod: &'a Pod,
    pub(crate) now: Timestamp,
    pub(crate) host_ip: IpAddr,
    pub(crate) ips: &'a [IpAddr],
    /// Sandbox and network are made.
    pub(crate) has_network: bool,
    pub(crate) start_time: Timestamp,
    pub(crate) containers: Vec<ContainerView<'a>>,
    /// What no retry cures: the pod has failed.
    pub(crate) broken: Option<&'a Failure>,
    /// What keeps the pod from starting now.
    pub(crate) obstacle: Option<&'a Failure>,
    /// Where the times of unchanged conditions come from.
    pub(crate) before: &'a [PodCondition],
}

#[derive(Debug)]
pub(crate) struct ContainerView<'a> {
    pub(crate) container: &'a Container,
    pub(crate) role: Role,
    pub(crate) status: Option<&'a ContainerStatus>,
    /// Digest of the image it runs, once known.
    pub(crate) digest: Option<&'a str>,
    /// Why it does not start: image, configuration.
    pub(crate) failure: Option<Waiting<'a>>,
    /// What its probes say, while it runs.
    pub(crate) health: Healthy,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Healthy {
    /// It has not passed its startup probe.
    Starting,
    /// It has, and not (or no longer) its readiness probe.
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
    let runs = |main: bool| {
        view.containers
            .iter()
            .filter(move |one| (one.role == Role::Main) == main)
            .map(|one| run(one.status))
    };
    let initialized = view.containers.iter().all(is_initialized);
    let init_failed = view
        .containers
        .iter()
        .any(|one| one.role == Role::Init && run(one.status) == Run::Failed);
    let ended = runs(true).all(|run| matches!(run, Run::Succeeded | Run::Failed));
    let phase = if view.broken.is_some()
        || init_failed
        || ended && runs(true).any(|run| run == Run::Failed)
    {
        "Failed"
    } else if ended {
        "Succeeded"
    } else if initialized && runs(true).any(|run| run != Run::Absent && run != Run::Starting) {
        "Running"
    } else {
        "Pending"
    };
    let mut status = json!({
        "phase": phase,
        "conditions": conditions(view, initialized, phase),
        "hostIP": view.host_ip,
        "hostIPs": [{"ip": view.host_ip}],
        "startTime": view.start_time,
        "qosClass": resources::quality(view.pod),
        "containerStatuses": containers(view, true),
    });
    if let Some(first) = view.ips.first() {
        status["podIP"] = json!(first);
        status["podIPs"] = view.ips.iter().map(|ip| json!({"ip": ip})).collect();
    }
    if view.containers.iter().any(|one| one.role != Role::Main) {
        status["initContainerStatuses"] = containers(view, false);
    }
    if let Some(failure) = view.broken {
        status["reason"] = json!(failure.reason.as_str());
        status["message"] = json!(failure.message);
    }
    status
}

/// The status of a pod that cannot be bound to this node.
pub(crate) fn unschedulable(pod: &Pod, why: &str, now: Timestamp) -> Value {
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
        "type": "PodScheduled", "status": "False", "reason": Reason::Unschedulable.as_str(), "message": why,
        "lastTransitionTime": since,
    }));
    json!({"phase": "Pending", "conditions": conditions})
}

fn conditions(view: &View<'_>, initialized: bool, phase: &str) -> Value {
    let unready: Vec<&str> = names(view, |one| one.role != Role::Init && !is_ready(one));
    let containers_ready = phase == "Running" && unready.is_empty();
    let word = if phase == "Succeeded" {
        Reason::PodCompleted
    } else {
        Reason::ContainersNotReady
    };
    let not_ready = format!("containers with unready status: [{}]", unready.join(" "));
    let gates = closed_gates(view.pod);
    let ready = containers_ready && gates.is_none();
    let (ready_word, ready_why) = match gates {
        Some(why) if containers_ready => (Reason::ReadinessGatesNotReady, why),
        _ => (word, not_ready.clone()),
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
        ("Ready", ready, Some(ready_word), &*ready_why),
        ("ContainersReady", containers_ready, Some(word), &*not_ready),
        ("PodScheduled", true, None, ""),
    ];
    let before: BTreeMap<&str, &PodCondition> = view
        .before
        .iter()
        .map(|condition| (condition.type_.as_str(), condition))
        .collect();
    let mut rendered: Vec<Value> = all
        .into_iter()
        .map(|(kind, holds, reason, why)| {
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
                // What keeps the pod as a whole from starting says more than who does not run.
                let why = view.obstacle.map_or(why, |obstacle| &obstacle.message);
                if reason != Reason::PodCompleted {
                    condition["message"] = json!(why);
                }
            }
            condition
        })
        .collect();
    // Others may keep conditions of their own.
    let known = |kind: &str| all.iter().any(|(one, ..)| *one == kind);
    let theirs = view
        .pod
        .status
        .iter()
        .flat_map(|status| status.conditions.iter().flatten());
    rendered.extend(
        theirs
            .filter(|one| !known(&one.type_))
            .map(|one| json!(one)),
    );
    rendered.into()
}

fn names<'a>(view: &'a View<'_>, which: impl Fn(&ContainerView<'_>) -> bool) -> Vec<&'a str> {
    let all = view.containers.iter().filter(|one| which(one));
    all.map(|one| one.container.name.as_str()).collect()
}

fn is_ready(one: &ContainerView<'_>) -> bool {
    run(one.status) == Run::Running && one.health == Healthy::Ready
}

/// Does it let what comes after it begin?
fn is_initialized(one: &ContainerView<'_>) -> bool {
    match (one.role, run(one.status)) {
        (Role::Init, Run::Absent | Run::Starting | Run::Running | Run::BackOff | Run::Failed)
        | (Role::Sidecar, Run::Absent | Run::Starting) => false,
        (Role::Sidecar, Run::Running) => one.health != Healthy::Starting,
        (Role::Main, _)
        | (Role::Init, Run::Succeeded)
        | (Role::Sidecar, Run::BackOff | Run::Succeeded | Run::Failed) => true,
    }
}

/// What the pod's readiness gates wait for; somebody else writes their conditions.
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

fn containers(view: &View<'_>, main: bool) -> Value {
    view.containers
        .iter()
        .filter(|one| (one.role == Role::Main) == main)
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
        "started": running && one.health != Healthy::Starting,
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
        Some((State::Starting, _)) => waiting(Reason::ContainerCreating, ""),
        None => match (&one.failure, view.obstacle) {
            (Some(failure), _) => waiting(failure.reason, &failure.message),
            (None, Some(obstacle)) => waiting(Reason::ContainerCreating, &obstacle.message),
            (None, None) if one.role == Role::Main && has_init(view) => {
                waiting(Reason::PodInitializing, "")
            }
            (None, None) => waiting(Reason::ContainerCreating, ""),
        },
    }
}

/// Why a container does not run right now, as kubelets put it.
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

/// Whole seconds, as the wire format of times has it.
fn time(milliseconds: i64) -> Timestamp {
    Timestamp::from_second(milliseconds.div_euclid(1000)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use pod_supervisor::status::Process;

    use super::*;

    fn pod(spec: &Value) -> Pod {
        serde_json::from_value(json!({"metadata": {"uid": "u"}, "spec": spec})).unwrap()
    }

    fn ended(code: i32, reason: EndReason) -> Termination {
        Termination {
            exit_code: code,
            signal: None,
            reason,
            started_ms: 1500,
            finished_ms: 2500,
            message: String::new(),
        }
    }

    fn status(state: State) -> ContainerStatus {
        ContainerStatus {
            name: "c".into(),
            attempt: 0,
            strikes: 0,
            state,
            last: None,
            log_error: None,
        }
    }

    fn running() -> State {
        State::Running {
            process: Process {
                pid: 1,
                start_ticks: 1,
            },
            started_ms: 1000,
        }
    }

    fn one_main(state: Option<State>, failure: Option<Waiting<'_>>) -> Value {
        let pod = pod(&json!({"containers": [{"name": "c", "image": "i:1"}]}));
        let status = state.map(status);
        render(&View {
            pod: &pod,
            now: Timestamp::from_second(5).unwrap(),
            host_ip: [192, 0, 2, 1].into(),
            ips: &[[10, 0, 0, 2].into()],
            has_network: true,
            start_time: Timestamp::UNIX_EPOCH,
            containers: vec![ContainerView {
                container: &pod.spec.as_ref().unwrap().containers[0],
                role: Role::Main,
                status: status.as_ref(),
                digest: Some("sha256:ab"),
                failure,
                health: Healthy::Ready,
            }],
            broken: None,
            obstacle: None,
            before: &[],
        })
    }

    #[test]
    fn phase_and_state_follow_the_container() {
        let ended = |code, reason| State::Ended {
            termination: ended(code, reason),
        };
        let back_off = |reason| State::BackOff {
            until_ms: 0,
            delay_ms: 10_000,
            termination: self::ended(1, reason),
        };
        for (state, phase, pointer, value) in [
            (
                None,
                "Pending",
                "waiting/reason",
                json!("ContainerCreating"),
            ),
            (
                Some(State::Starting),
                "Pending",
                "waiting/reason",
                json!("ContainerCreating"),
            ),
            (
                Some(running()),
                "Running",
                "running/startedAt",
                json!("1970-01-01T00:00:01Z"),
            ),
            (
                Some(ended(0, EndReason::Completed)),
                "Succeeded",
                "terminated/exitCode",
                json!(0),
            ),
            (
                Some(ended(137, EndReason::OOMKilled)),
                "Failed",
                "terminated/reason",
                json!("OOMKilled"),
            ),
            (
                Some(back_off(EndReason::Error)),
                "Running",
                "waiting/reason",
                json!("CrashLoopBackOff"),
            ),
            (
                Some(back_off(EndReason::StartError)),
                "Running",
                "waiting/reason",
                json!("CreateContainerError"),
            ),
        ] {
            let got = one_main(state.clone(), None);
            assert_eq!(got["phase"], phase, "{state:?}");
            let at = format!("/containerStatuses/0/state/{pointer}");
            assert_eq!(got.pointer(&at), Some(&value), "{state:?}");
        }
    }

    #[test]
    fn running_pod_is_ready_and_knows_where_it_is() {
        let got = one_main(Some(running()), None);
        assert_eq!(got["podIP"], "10.0.0.2");
        assert_eq!(got["hostIP"], "192.0.2.1");
        assert_eq!(got["containerStatuses"][0]["imageID"], "i:1@sha256:ab");
        assert_eq!(got["containerStatuses"][0]["ready"], true);
        for condition in got["conditions"].as_array().unwrap() {
            assert_eq!(condition["status"], "True");
        }
    }

    #[test]
    fn container_that_cannot_start_says_why() {
        let failure = Waiting {
            reason: Reason::ErrImagePull,
            message: "no such host".into(),
        };
        let got = one_main(None, Some(failure));
        assert_eq!(
            got["containerStatuses"][0]["state"]["waiting"],
            json!({"reason": "ErrImagePull", "message": "no such host"})
        );
        assert_eq!(got["phase"], "Pending");
    }

    #[test]
    fn transition_times_are_kept_while_nothing_changes() {
        let mut pod = pod(&json!({"containers": [{"name": "c"}]}));
        pod.status = serde_json::from_value(json!({"conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"},
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:00:01Z"},
            {"type": "mine", "status": "True"},
        ]}))
        .unwrap();
        let got = render(&View {
            pod: &pod,
            now: Timestamp::from_second(5).unwrap(),
            host_ip: [192, 0, 2, 1].into(),
            ips: &[],
            has_network: false,
            start_time: Timestamp::UNIX_EPOCH,
            containers: vec![ContainerView {
                container: &pod.spec.as_ref().unwrap().containers[0],
                role: Role::Main,
                status: None,
                digest: None,
                failure: None,
                health: Healthy::Ready,
            }],
            broken: None,
            obstacle: Some(&Failure::new(Reason::FailedMount, "no disk")),
            before: pod.status.as_ref().unwrap().conditions.as_ref().unwrap(),
        });
        let find = |kind: &str| {
            let all = got["conditions"].as_array().unwrap();
            all.iter().find(|one| one["type"] == kind).unwrap().clone()
        };
        assert_eq!(
            find("PodScheduled")["lastTransitionTime"],
            "1970-01-01T00:00:01Z"
        );
        assert_eq!(find("Ready")["lastTransitionTime"], "1970-01-01T00:00:05Z");
        assert_eq!(find("Ready")["message"], "no disk");
        assert_eq!(find("mine")["status"], "True");
    }

    fn two(gates: &Value, health: Healthy) -> Value {
        let pod: Pod = serde_json::from_value(json!({
            "metadata": {"uid": "u"},
            "spec": {
                "initContainers": [{"name": "side"}], "containers": [{"name": "c"}],
                "readinessGates": [{"conditionType": "gate"}],
            },
            "status": {"conditions": gates},
        }))
        .unwrap();
        let spec = pod.spec.as_ref().unwrap();
        let status = status(running());
        let view = |container, role, health| ContainerView {
            container,
            role,
            status: Some(&status),
            digest: None,
            failure: None,
            health,
        };
        let side = &spec.init_containers.as_ref().unwrap()[0];
        render(&View {
            pod: &pod,
            now: Timestamp::UNIX_EPOCH,
            host_ip: [192, 0, 2, 1].into(),
            ips: &[],
            has_network: true,
            start_time: Timestamp::UNIX_EPOCH,
            containers: vec![
                view(side, Role::Sidecar, health),
                view(&spec.containers[0], Role::Main, Healthy::Ready),
            ],
            broken: None,
            obstacle: None,
            before: &[],
        })
    }

    #[test]
    fn probes_and_gates_decide_about_conditions() {
        let open = json!([{"type": "gate", "status": "True"}]);
        let shut = json!([{"type": "gate", "status": "False"}]);
        let absent = json!([{"type": "other", "status": "True"}]);
        for (gates, health, kind, reason, message) in [
            (&open, Healthy::Ready, "Ready", Value::Null, ""),
            (&shut, Healthy::Ready, "ContainersReady", Value::Null, ""),
            (
                &shut,
                Healthy::Ready,
                "Ready",
                json!("ReadinessGatesNotReady"),
                "is not \"True\", but False",
            ),
            (
                &absent,
                Healthy::Ready,
                "Ready",
                json!("ReadinessGatesNotReady"),
                "does not exist",
            ),
            (
                &open,
                Healthy::Started,
                "ContainersReady",
                json!("ContainersNotReady"),
                "containers with unready status: [side]",
            ),
            (
                &open,
                Healthy::Starting,
                "Initialized",
                json!("ContainersNotInitialized"),
                "containers with incomplete status: [side]",
            ),
            (
                &open,
                Healthy::Starting,
                "PodReadyToStartContainers",
                Value::Null,
                "",
            ),
        ] {
            let got = two(gates, health);
            let all = got["conditions"].as_array().unwrap();
            let found = all.iter().find(|one| one["type"] == kind).unwrap();
            assert_eq!(found["reason"], reason, "{kind} {health:?}");
            let said = found["message"].as_str().unwrap_or_default();
            assert!(said.contains(message), "{said}");
            let expected = if reason.is_null() { "True" } else { "False" };
            assert_eq!(found["status"], expected, "{kind} {health:?}");
        }
        let got = two(&open, Healthy::Starting);
        assert_eq!(got["initContainerStatuses"][0]["started"], false);
        assert_eq!(got["initContainerStatuses"][0]["ready"], false);
    }
}
