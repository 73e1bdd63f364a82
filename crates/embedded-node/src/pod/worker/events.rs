//! Publishes events of the pod and logs its failures.

use reasons::Reason;
use reconcile::EventType;

use super::Worker;
use crate::{Failure, repeated::is_repeated};

impl Worker {
    pub(super) fn publish_normal(&self, reason: Reason, note: String) {
        self.publish(EventType::Normal, reason, note);
    }

    pub(super) fn publish_back_off(&self, note: String) {
        self.publish(EventType::Warning, Reason::BackOff, note);
    }

    /// Publishes the error of a step, if it is one, after `earlier` failures in a row.
    pub(super) fn publish_error<T>(&self, result: &Result<T, Failure>, earlier: u32) {
        if let Err(failure) = result {
            self.publish_failure(failure, earlier);
        }
    }

    /// Publishes a failure that is not retried.
    pub(super) fn publish_warning(&self, failure: &Failure) {
        self.publish_failure(failure, 0);
    }

    pub(super) fn publish_failure(&self, failure: &Failure, earlier: u32) {
        Self::log_failure(failure, earlier);
        let reason = match failure.reason {
            Reason::ErrImagePull
            | Reason::ErrImageNeverPull
            | Reason::InvalidImageName
            | Reason::CreateContainerConfigError
            | Reason::CreateContainerError => Reason::Failed,
            reason => reason,
        };
        self.publish(EventType::Warning, reason, failure.message.clone());
    }

    /// Logs a failure after `earlier` failures in a row.
    pub(super) fn log_failure(failure: &Failure, earlier: u32) {
        let (reason, failures) = (failure.reason, earlier.saturating_add(1));
        if is_repeated(failures) {
            tracing::warn!(%reason, failures, error = %failure, "pod step keeps failing");
        } else {
            tracing::info!(%reason, error = %failure, "pod step failed");
        }
    }

    fn publish(&self, kind: EventType, reason: Reason, note: String) {
        self.shared
            .recorder
            .publish(self.pod.as_ref(), kind, reason, note);
    }
}
