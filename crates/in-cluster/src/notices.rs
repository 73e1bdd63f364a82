//! What a component has to say about itself: warnings on its own pod, where `kubectl describe pod`,
//! `kubectl get events` and `virtctl why` show them.

use k8s_openapi::api::core::v1::Pod;
use kube::{Client, api::ObjectMeta};
use reasons::Reason;
use reconcile::{Clock, EventType, Recorder, RecorderTask, recorder};

use crate::cli::Place;

/// Says it, and never waits.
#[derive(Debug, Clone)]
pub(crate) struct Notices {
    recorder: Recorder,
    pod: Pod,
}

/// For the pod of this place, and the task that writes.
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
    /// What a person must look at, and what to do about it.
    pub(crate) fn warn(&self, reason: Reason, note: &str) {
        tracing::warn!(%reason, note, "told by an event");
        self.recorder
            .publish(&self.pod, EventType::Warning, reason, note);
    }
}
