//! The pod of an export, as far as this controller reads it.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStateTerminated, Pod};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::Deserialize;

use super::pod::Served;
use crate::view::{Labels, slim};

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "Pod")]
pub(super) struct ExporterPod {
    pub(super) metadata: ObjectMeta,
    pub(super) state: State,
    pub(super) served: Served,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum State {
    /// With what it waits for, if that is known.
    Starting(Option<String>),
    Ready,
    /// The time of the export is over.
    Completed,
    Failed {
        message: String,
        at: Option<Timestamp>,
    },
}

impl Default for State {
    fn default() -> Self {
        Self::Starting(None)
    }
}

impl From<Pod> for ExporterPod {
    fn from(pod: Pod) -> Self {
        Self {
            state: state(&pod),
            served: Served::by(&pod),
            metadata: slim(pod.metadata, Labels::Dropped, &[]),
        }
    }
}

reconcile::resource_view!(ExporterPod, Pod, NamespaceResourceScope);

fn state(pod: &Pod) -> State {
    let Some(status) = &pod.status else {
        return State::Starting(None);
    };
    let condition = |kind: &str| {
        let mut all = status.conditions.iter().flatten();
        all.find(|one| one.type_ == kind)
    };
    let container = status.container_statuses.iter().flatten().next();
    let current = container.and_then(|one| one.state.as_ref());
    let last = container.and_then(|one| one.last_state.as_ref());
    let ended = current.and_then(|state| state.terminated.as_ref());
    match status.phase.as_deref() {
        Some("Succeeded") => return State::Completed,
        Some("Failed") => {
            let message = status.message.clone().or_else(|| ended.map(end));
            return State::Failed {
                message: message.unwrap_or_else(|| "its node gave no reason".to_owned()),
                at: ended.and_then(|ended| Some(ended.finished_at.as_ref()?.0)),
            };
        }
        Some("Running") if condition("Ready").is_some_and(|one| one.status == "True") => {
            return State::Ready;
        }
        _ => {}
    }
    let unscheduled = condition("PodScheduled").filter(|one| one.status == "False");
    if let Some(message) = unscheduled.and_then(|one| one.message.clone()) {
        return State::Starting(Some(message));
    }
    let before = last.and_then(|state| state.terminated.as_ref());
    if let Some(ended) = ended.or(before) {
        return State::Starting(Some(end(ended)));
    }
    let waiting = current.and_then(|state| state.waiting.as_ref());
    State::Starting(waiting.and_then(|waiting| {
        let message = waiting.message.as_deref().filter(|text| !text.is_empty())?;
        Some(match &waiting.reason {
            Some(reason) => format!("{reason}: {message}"),
            None => message.to_owned(),
        })
    }))
}

/// The export server writes its error as the termination message.
fn end(ended: &ContainerStateTerminated) -> String {
    let message = ended.message.as_deref().map(str::trim);
    match message.filter(|message| !message.is_empty()) {
        Some(message) => format!("the export server has ended: {message}"),
        None => format!("the export server has ended with code {}", ended.exit_code),
    }
}
