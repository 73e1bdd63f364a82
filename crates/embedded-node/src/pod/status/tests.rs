//! Table tests of the rendered status.

use pod_supervisor::status::{EndReason, Process, Termination};

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
            readiness: Readiness::Ready,
        }],
        failure: None,
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
fn running_pod_is_ready_and_has_addresses() {
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
fn failed_start_shows_its_reason() {
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
fn unchanged_conditions_keep_their_transition_time() {
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
            readiness: Readiness::Ready,
        }],
        failure: None,
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

fn two(gates: &Value, readiness: Readiness) -> Value {
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
    let view = |container, role, readiness| ContainerView {
        container,
        role,
        status: Some(&status),
        digest: None,
        failure: None,
        readiness,
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
            view(side, Role::Sidecar, readiness),
            view(&spec.containers[0], Role::Main, Readiness::Ready),
        ],
        failure: None,
        obstacle: None,
        before: &[],
    })
}

#[test]
fn conditions_follow_probes_and_readiness_gates() {
    let open = json!([{"type": "gate", "status": "True"}]);
    let shut = json!([{"type": "gate", "status": "False"}]);
    let absent = json!([{"type": "other", "status": "True"}]);
    for (gates, readiness, kind, reason, message) in [
        (&open, Readiness::Ready, "Ready", Value::Null, ""),
        (&shut, Readiness::Ready, "ContainersReady", Value::Null, ""),
        (
            &shut,
            Readiness::Ready,
            "Ready",
            json!("ReadinessGatesNotReady"),
            "is not \"True\", but False",
        ),
        (
            &absent,
            Readiness::Ready,
            "Ready",
            json!("ReadinessGatesNotReady"),
            "does not exist",
        ),
        (
            &open,
            Readiness::Started,
            "ContainersReady",
            json!("ContainersNotReady"),
            "containers with unready status: [side]",
        ),
        (
            &open,
            Readiness::Starting,
            "Initialized",
            json!("ContainersNotInitialized"),
            "containers with incomplete status: [side]",
        ),
        (
            &open,
            Readiness::Starting,
            "PodReadyToStartContainers",
            Value::Null,
            "",
        ),
    ] {
        let got = two(gates, readiness);
        let all = got["conditions"].as_array().unwrap();
        let found = all.iter().find(|one| one["type"] == kind).unwrap();
        assert_eq!(found["reason"], reason, "{kind} {readiness:?}");
        let text = found["message"].as_str().unwrap_or_default();
        assert!(text.contains(message), "{text}");
        let expected = if reason.is_null() { "True" } else { "False" };
        assert_eq!(found["status"], expected, "{kind} {readiness:?}");
    }
    let got = two(&open, Readiness::Starting);
    assert_eq!(got["initContainerStatuses"][0]["started"], false);
    assert_eq!(got["initContainerStatuses"][0]["ready"], false);
}

#[test]
fn containers_wait_as_initializing_in_a_pod_with_init_containers() {
    let obstacle = Failure::new(Reason::FailedMount, "no disk");
    for (init, obstacle, expected) in [
        (json!([]), None, "ContainerCreating"),
        (json!([]), Some(&obstacle), "ContainerCreating"),
        (json!([{"name": "i"}]), None, "PodInitializing"),
        (json!([{"name": "i"}]), Some(&obstacle), "PodInitializing"),
    ] {
        for state in [None, Some(status(State::Starting))] {
            let pod = pod(&json!({"containers": [{"name": "c"}], "initContainers": init}));
            let spec = pod.spec.as_ref().unwrap();
            let view = |container, role| ContainerView {
                container,
                role,
                status: state.as_ref(),
                digest: None,
                failure: None,
                readiness: Readiness::Ready,
            };
            let inits = spec.init_containers.iter().flatten();
            let mains = spec.containers.iter();
            let got = render(&View {
                pod: &pod,
                now: Timestamp::UNIX_EPOCH,
                host_ip: [192, 0, 2, 1].into(),
                ips: &[],
                has_network: false,
                start_time: Timestamp::UNIX_EPOCH,
                containers: inits
                    .map(|one| view(one, Role::Init))
                    .chain(mains.map(|one| view(one, Role::Main)))
                    .collect(),
                failure: None,
                obstacle,
                before: &[],
            });
            for list in ["containerStatuses", "initContainerStatuses"] {
                for one in got[list].as_array().into_iter().flatten() {
                    assert_eq!(one["state"]["waiting"]["reason"], expected, "{list} {init}");
                }
            }
        }
    }
}

#[test]
fn pod_keeps_running_while_its_container_starts_again() {
    let pod = pod(&json!({"containers": [{"name": "c"}]}));
    for (attempt, phase) in [(0, "Pending"), (1, "Running")] {
        let status = ContainerStatus {
            attempt,
            ..status(State::Starting)
        };
        let got = render(&View {
            pod: &pod,
            now: Timestamp::UNIX_EPOCH,
            host_ip: [192, 0, 2, 1].into(),
            ips: &[],
            has_network: true,
            start_time: Timestamp::UNIX_EPOCH,
            containers: vec![ContainerView {
                container: &pod.spec.as_ref().unwrap().containers[0],
                role: Role::Main,
                status: Some(&status),
                digest: None,
                failure: None,
                readiness: Readiness::Starting,
            }],
            failure: None,
            obstacle: None,
            before: &[],
        });
        assert_eq!(got["phase"], phase);
    }
}
