//! The diagnosis of a VM or VMI, derived from the observed objects.

use serde::Serialize;

use crate::{
    Cause, Observed, Severity, TABLE, When,
    observed::{name_of, time_of},
};

/// How many warning events are shown.
const WARNINGS: usize = 3;

/// The diagnosis. Its fields are the output of `virtctl why -o json`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct Diagnosis {
    pub namespace: String,
    pub name: String,
    /// The guest runs and is ready, or is off as requested.
    pub healthy: bool,
    /// From the VM down to the node, with the state of each.
    pub path: Vec<PathEntry>,
    /// The deepest first.
    pub causes: Vec<Cause>,
    /// The latest first.
    pub warnings: Vec<Warning>,
    /// Objects that could not be read; causes may be missing for that reason.
    pub unread: Vec<String>,
}

/// An object of the path and its state.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct PathEntry {
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

/// Evaluates every rule.
pub fn diagnose(observed: &Observed) -> Diagnosis {
    let mut causes: Vec<Cause> = Vec::new();
    for rule in TABLE {
        if rule.when == When::Always || causes.is_empty() {
            causes.extend(rule.causes(observed));
        }
    }
    let is_bad = |cause: &Cause| matches!(cause.severity, Severity::Broken | Severity::Waiting);
    Diagnosis {
        namespace: observed.namespace.clone(),
        name: observed.name.clone(),
        healthy: !causes.iter().any(is_bad),
        path: path(observed),
        causes,
        warnings: warnings(observed),
        unread: observed.unread.clone(),
    }
}

fn path(observed: &Observed) -> Vec<PathEntry> {
    let mut entries = Vec::new();
    let mut add = |object: String, state: String| entries.push(PathEntry { object, state });
    if let Some(vm) = &observed.vm {
        let status = vm
            .status
            .as_ref()
            .and_then(|status| status.printable_status.as_ref());
        let status = status.map_or("no status yet", |status| status.as_str());
        let state = match observed.strategy() {
            Some(strategy) => format!("{status}, runStrategy {}", strategy.as_str()),
            None => status.to_owned(),
        };
        add(observed.vm_object(), state);
    }
    if let Some(vmi) = &observed.vmi {
        let phase = vmi.status.as_ref().and_then(|status| status.phase.as_ref());
        let phase = phase.map_or("", |phase| phase.as_str());
        add(
            observed.vmi_object(),
            if phase.is_empty() {
                "no phase yet"
            } else {
                phase
            }
            .to_owned(),
        );
    }
    if let Some(pod) = observed.pod() {
        let phase = pod
            .status
            .as_ref()
            .and_then(|status| status.phase.as_deref());
        let phase = phase.unwrap_or("no phase yet").to_owned();
        add(format!("pod/{}", name_of(&pod.metadata)), phase);
    }
    for (name, claim) in &observed.claims {
        let phase = claim.as_ref().map(|claim| {
            let phase = claim
                .status
                .as_ref()
                .and_then(|status| status.phase.as_deref());
            phase.unwrap_or("no phase yet")
        });
        add(
            format!("pvc/{name}"),
            phase.unwrap_or("does not exist").to_owned(),
        );
    }
    if let Some(name) = observed.node_name() {
        add(format!("node/{name}"), crate::nodes::state(observed, name));
    }
    entries
}

fn warnings(observed: &Observed) -> Vec<Warning> {
    let latest = observed.warnings().into_iter().rev().take(WARNINGS);
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
