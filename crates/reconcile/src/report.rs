//! Writes whose rejection is shown to users: the object would otherwise keep an old state in silence.

use std::fmt::Debug;

use kube::{Resource, api::Api};
use reasons::Reason;
use serde::de::DeserializeOwned;

use crate::{EventType, Fragment, Recorder, WriteError, apply, metrics};

/// Applies the fragment; a rejection becomes a warning event on `observed`, a line in the log and a
/// count in the metrics. It is repeated with back-off, because a change of rights or of the schema
/// ends it.
pub async fn apply_reported<K, O>(
    api: &Api<K>,
    fragment: &Fragment<'_>,
    observed: &O,
    recorder: &Recorder,
) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
    O: Resource<DynamicType = ()>,
{
    let written = apply(api, fragment).await;
    if let Err(WriteError::Refused { message, .. }) = &written {
        let kind = O::kind(&());
        metrics::REJECTED_WRITES.increment([kind.as_ref()]);
        tracing::warn!(
            kind = %kind,
            object = %fragment.key,
            error = %message,
            "the API server rejected a write"
        );
        let part = fragment.subresource.unwrap_or("state");
        let note = format!("the API server rejected the {part} of this {kind}: {message}");
        recorder.publish(
            observed,
            EventType::Warning,
            Reason::FailedStatusUpdate,
            note,
        );
    }
    written
}
