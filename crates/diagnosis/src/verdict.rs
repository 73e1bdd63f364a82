//! From what was seen to the answer.

use serde::Serialize;

use crate::{
    Cause, Observed, Severity, TABLE, Turn,
    observed::{name_of, time_of},
};

/// So many events are shown.
const WARNINGS: usize = 3;

/// The answer. Its fields are those of `virtctl why -o json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    pub namespace: String,
    pub name: String,
    /// The guest runs and is ready, or is off as asked.
    pub healthy: bool,
    /// From the machine down to the node, with a word on each.
    pub path: Vec<Stop>,
    /// The deepest first.
    pub causes: Vec<Cause>,
    /// The latest first.
    pub warnings: Vec<Warning>,
    /// What could not be looked at; causes may be missing for it.
    pub unread: Vec<String>,
}

/// An object on the way and how it stands.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Stop {
    pub object: String,
    pub state: String,
}

/// An event of type Warning.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Warning {
    pub object: String,
    pub reason: String,
    pub message: String,
    /// As RFC 3339.
    pub time: String,
}

/// Asks every rule.
pub fn diagnose(seen: &Observed) -> Diagnosis {
    let mut causes: Vec<Cause> = Vec::new();
    for rule in TABLE {
        if rule.turn == Turn::Always || causes.is_empty() {
            causes.extend(rule.causes(seen));
        }
    }
    let is_bad = |cause: &Cause| matches!(cause.severity, Severity::Broken | Severity::Waiting);
    Diagnosis {
        namespace: seen.namespace.clone(),
        name: seen.name.clone(),
        healthy: !causes.iter().any(is_bad),
        path: path(seen),
        causes,
        warnings: warnings(seen),
        unread: seen.unread.clone(),
    }
}

fn path(seen: &Observed) -> Vec<Stop> {
    let mut stops = Vec::new();
    let mut stop = |object: String, state: String| stops.push(Stop { object, state });
    if let Some(vm) = &seen.vm {
        let word = vm
            .status
            .as_ref()
            .and_then(|status| status.printable_status.as_ref());
        let word = word.map_or("no status yet", |word| word.as_str());
        let state = match seen.strategy() {
            Some(strategy) => format!("{word}, runStrategy {}", strategy.as_str()),
            None => word.to_owned(),
        };
        stop(seen.vm_object(), state);
    }
    if let Some(vmi) = &seen.vmi {
        let phase = vmi.status.as_ref().and_then(|status| status.phase.as_ref());
        let phase = phase.map_or("", |phase| phase.as_str());
        stop(
            seen.vmi_object(),
            if phase.is_empty() {
                "no phase yet"
            } else {
                phase
            }
            .to_owned(),
        );
    }
    if let Some(pod) = seen.pod() {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let phase = phase.unwrap_or("no phase yet").to_owned();
        stop(format!("pod/{}", name_of(&pod.metadata)), phase);
    }
    for (name, claim) in &seen.claims {
        let phase = claim.as_ref().map(|claim| {
            let phase = claim
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            phase.unwrap_or("no phase yet")
        });
        stop(
            format!("pvc/{name}"),
            phase.unwrap_or("not there").to_owned(),
        );
    }
    if let Some(name) = seen.node_name() {
        stop(format!("node/{name}"), crate::nodes::state(seen, name));
    }
    stops
}

fn warnings(seen: &Observed) -> Vec<Warning> {
    let latest = seen.warnings().into_iter().rev().take(WARNINGS);
    let shown = latest.map(|event| {
        let object = &event.involved_object;
        let kind = object
            .kind
            .as_deref()
            .unwrap_or_default()
            .to_ascii_lowercase();
        let kind = match kind.as_str() {
            "virtualmachine" => "vm",
            "virtualmachineinstance" => "vmi",
            "persistentvolumeclaim" => "pvc",
            other => other,
        };
        Warning {
            object: format!("{kind}/{}", object.name.as_deref().unwrap_or_default()),
            reason: event.reason.clone().unwrap_or_default(),
            message: event.message.clone().unwrap_or_default(),
            time: time_of(event).to_string(),
        }
    });
    shown.collect()
}
