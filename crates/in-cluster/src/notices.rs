//! Warnings of a component about itself: events on its own pod, which `kubectl describe pod`,
//! `kubectl get events` and `virtctl why` show.

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, api::ObjectMeta};
use reasons::Reason;
use reconcile::{Clock, EventType, Recorder, RecorderTask, recorder};

use crate::cli::Place;

/// Publishes events without waiting.
#[derive(Debug, Clone)]
pub(crate) struct Notices {
    recorder: Recorder,
    pod: Pod,
}

/// The publisher for the component's pod, and the task that writes the events.
pub(crate) fn notices(
    client: Client,
    component: &'static str,
    place: &Place,
) -> (Notices, RecorderTask) {
    let (recorder, task) = recorder(client, component, Clock::system());
    let pod = Pod {
        metadata: ObjectMeta {
            name: Some(place.pod.clone()),
            namespace: Some(place.namespace.clone()),
            uid: place.pod_uid.clone(),
            ..ObjectMeta::default()
        },
        ..Pod::default()
    };
    (Notices { recorder, pod }, task)
}

impl Notices {
    /// Publishes a problem that needs an administrator, with its remedy.
    pub(crate) fn warn(&self, reason: Reason, note: &str) {
        tracing::warn!(%reason, note, "event published");
        self.recorder
            .publish(&self.pod, EventType::Warning, reason, note);
    }
}
