//! The columns of pods, including `kubectl`'s STATUS column.

use serde_json::{Value, json};

use super::{Column, Row, age, age_cell};
use crate::meta;

/// Values computed once per pod.
struct Summary {
    ready: usize,
    total: usize,
    status: String,
    restarts: i64,
    last_restart: Option<jiff::Timestamp>,
}

pub(super) fn columns() -> Vec<Column> {
    vec![
        Column::of("Name", "string", 0, |row| meta::name(row.object).into()),
        Column::of("Ready", "string", 0, |row| {
            let pod = summary(row.object);
            format!("{}/{}", pod.ready, pod.total).into()
        }),
        Column::of("Status", "string", 0, |row| {
            summary(row.object).status.into()
        }),
        Column::of("Restarts", "string", 0, restarts),
        Column::of("Age", "date", 0, age_cell),
        Column::of("IP", "string", 1, |row| {
            let status = &row.object["status"];
            let first = status["podIPs"][0]["ip"]
                .as_str()
                .or(status["podIP"].as_str());
            or_none(first.unwrap_or_default())
        }),
        Column::of("Node", "string", 1, |row| {
            or_none(row.object["spec"]["nodeName"].as_str().unwrap_or_default())
        }),
        Column::of("Nominated Node", "string", 1, |row| {
            or_none(
                row.object["status"]["nominatedNodeName"]
                    .as_str()
                    .unwrap_or_default(),
            )
        }),
        Column::of("Readiness Gates", "string", 1, readiness_gates),
    ]
}

/// A completed pod is marked, which lets clients hide it.
pub(super) fn conditions(pod: &Value) -> Value {
    let (reason, message) = match phase(pod) {
        "Succeeded" => ("Succeeded", "The pod has completed successfully."),
        "Failed" => ("Failed", "The pod failed."),
        _ => return Value::Null,
    };
    json!([{"type": "Completed", "status": "True", "reason": reason, "message": message}])
}

fn or_none(text: &str) -> Value {
    if text.is_empty() {
        "<none>".into()
    } else {
        text.into()
    }
}

fn restarts(row: &Row<'_>) -> Value {
    let pod = summary(row.object);
    match pod.last_restart {
        Some(time) if pod.restarts > 0 => {
            format!("{} ({} ago)", pod.restarts, age(Some(time), row.now)).into()
        }
        _ => pod.restarts.to_string().into(),
    }
}

fn readiness_gates(row: &Row<'_>) -> Value {
    let gates = list(&row.object["spec"]["readinessGates"]);
    if gates.is_empty() {
        return "<none>".into();
    }
    let holds = |gate: &&Value| {
        gate["conditionType"]
            .as_str()
            .is_some_and(|kind| condition(row.object, kind) == "True")
    };
    format!("{}/{}", gates.iter().filter(holds).count(), gates.len()).into()
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn phase(pod: &Value) -> &str {
    pod["status"]["phase"].as_str().unwrap_or_default()
}

fn condition<'a>(pod: &'a Value, kind: &str) -> &'a str {
    let found = list(&pod["status"]["conditions"])
        .iter()
        .find(|c| c["type"] == kind);
    found.and_then(|c| c["status"].as_str()).unwrap_or_default()
}

/// A sidecar: an init container that keeps running.
fn is_sidecar(container: &Value) -> bool {
    container["restartPolicy"] == "Always"
}

/// Number of restarts and the end of the last run.
#[derive(Default, Clone, Copy)]
struct Restarts {
    count: i64,
    last: Option<jiff::Timestamp>,
}

impl Restarts {
    fn add(&mut self, container: &Value) {
        self.count += container["restartCount"].as_i64().unwrap_or_default();
        let ended = container["lastState"]["terminated"]["finishedAt"].as_str();
        self.last = self.last.max(ended.and_then(|time| time.parse().ok()));
    }
}

fn summary(pod: &Value) -> Summary {
    let status = &pod["status"];
    let mut reason = status["reason"]
        .as_str()
        .filter(|r| !r.is_empty())
        .unwrap_or(phase(pod))
        .to_owned();
    let gated = list(&status["conditions"])
        .iter()
        .any(|c| c["type"] == "PodScheduled" && c["reason"] == "SchedulingGated");
    if gated {
        "SchedulingGated".clone_into(&mut reason);
    }
    let init = init_containers(pod);
    let mut restarts = init.restarts;
    let mut ready = init.ready;
    match &init.waiting_for {
        Some(text) if condition(pod, "Initialized") != "True" => text.clone_into(&mut reason),
        _ => {
            restarts = init.sidecar_restarts;
            ready += containers(pod, &mut reason, &mut restarts);
        }
    }
    if meta::is_deleting(pod) {
        if status["reason"] == "NodeLost" {
            "Unknown".clone_into(&mut reason);
        } else if !matches!(phase(pod), "Succeeded" | "Failed") {
            "Terminating".clone_into(&mut reason);
        }
    }
    let sidecars = list(&pod["spec"]["initContainers"])
        .iter()
        .filter(|c| is_sidecar(c))
        .count();
    Summary {
        ready,
        total: list(&pod["spec"]["containers"]).len() + sidecars,
        status: reason,
        restarts: restarts.count,
        last_restart: restarts.last,
    }
}

/// Progress of the init containers.
struct Init {
    /// The STATUS while one of them has not completed.
    waiting_for: Option<String>,
    ready: usize,
    restarts: Restarts,
    sidecar_restarts: Restarts,
}

fn init_containers(pod: &Value) -> Init {
    let specs = list(&pod["spec"]["initContainers"]);
    let mut out = Init {
        waiting_for: None,
        ready: 0,
        restarts: Restarts::default(),
        sidecar_restarts: Restarts::default(),
    };
    for (index, container) in list(&pod["status"]["initContainerStatuses"])
        .iter()
        .enumerate()
    {
        let sidecar = specs
            .iter()
            .any(|s| s["name"] == container["name"] && is_sidecar(s));
        out.restarts.add(container);
        if sidecar {
            out.sidecar_restarts.add(container);
        }
        let terminated = &container["state"]["terminated"];
        if terminated.is_object() && terminated["exitCode"].as_i64().unwrap_or_default() == 0 {
            continue;
        }
        if sidecar && container["started"] == true {
            out.ready += usize::from(container["ready"] == true);
            continue;
        }
        let waiting = container["state"]["waiting"]["reason"]
            .as_str()
            .unwrap_or_default();
        out.waiting_for = Some(if terminated.is_object() {
            format!("Init:{}", end_of(terminated))
        } else if !waiting.is_empty() && waiting != "PodInitializing" {
            format!("Init:{waiting}")
        } else {
            format!("Init:{index}/{}", specs.len())
        });
        break;
    }
    out
}

/// The reason why a container ended.
fn end_of(terminated: &Value) -> String {
    let number = |key: &str| terminated[key].as_i64().unwrap_or_default();
    match terminated["reason"].as_str().unwrap_or_default() {
        "" if number("signal") != 0 => format!("Signal:{}", number("signal")),
        "" => format!("ExitCode:{}", number("exitCode")),
        reason => reason.to_owned(),
    }
}

/// Derives the STATUS from the containers, the first one last; returns how many are ready.
fn containers(pod: &Value, reason: &mut String, restarts: &mut Restarts) -> usize {
    let mut ready = 0;
    for container in list(&pod["status"]["containerStatuses"]).iter().rev() {
        restarts.add(container);
        let state = &container["state"];
        let waiting = state["waiting"]["reason"].as_str().unwrap_or_default();
        if !waiting.is_empty() {
            waiting.clone_into(reason);
        } else if state["terminated"].is_object() {
            *reason = end_of(&state["terminated"]);
        } else if container["ready"] == true && state["running"].is_object() {
            ready += 1;
        }
    }
    if reason == "Completed" && ready > 0 {
        let status = if condition(pod, "Ready") == "True" {
            "Running"
        } else {
            "NotReady"
        };
        status.clone_into(reason);
    }
    ready
}
