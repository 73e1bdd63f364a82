//! Why the hooks of a guest could not be run.

use std::time::Duration;

use grpc::{Code, Status};
use reasons::Reason;

use super::messages::Point;
use crate::prepare::PrepareError;

/// The most characters of a text that comes from a sidecar.
const MAX_TEXT: usize = 200;

/// A failure of one sidecar.
#[derive(Debug, thiserror::Error)]
#[error("container {sidecar}")]
pub(crate) struct HookError {
    pub(super) sidecar: String,
    pub(super) source: Problem,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum Problem {
    #[error("it has not opened a socket in {directory}")]
    NoSocket { directory: String },
    #[error("it speaks {versions}, and not one of v1alpha1, v1alpha2, v1alpha3")]
    Version { versions: String },
    #[error("its hook {call} did not answer within {} s", limit.as_secs())]
    Silent { call: &'static str, limit: Duration },
    #[error("its hook {call} failed: {message}")]
    Failed { call: &'static str, message: String },
    #[error("its hook OnDefineDomain answered with no domain of this guest")]
    Domain(#[from] DomainProblem),
    #[error("its hook PreCloudInitIso answered with no cloud-init data: {0}")]
    CloudInit(String),
    /// Not the sidecar's fault, and reported as for a guest without sidecars.
    #[error("read the data of the seed for it")]
    Seed(#[source] PrepareError),
}

/// Why an answer is not a domain that this guest can have.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum DomainProblem {
    #[error("{length} bytes are more than {limit}")]
    TooLarge { length: usize, limit: usize },
    #[error("it is empty")]
    Empty,
    #[error("it is not text in UTF-8")]
    NotText,
    #[error("it is no XML: {0}")]
    Malformed(String),
    #[error("it has a document type, which is not read")]
    DocumentType,
    #[error("its elements are nested more than {0} deep")]
    TooDeep(usize),
    #[error("its root is not one element domain")]
    Root,
    #[error("its {element} is {found:?} instead of {expected:?}")]
    Identity {
        element: &'static str,
        found: String,
        expected: String,
    },
}

impl Problem {
    /// What a call that failed says about the sidecar.
    pub(super) fn of_call(call: &'static str, limit: Duration, status: &Status) -> Self {
        if status.code == Code::DeadlineExceeded {
            return Self::Silent { call, limit };
        }
        let message = shown(&status.message);
        Self::Failed { call, message }
    }

    pub(super) fn of_point(point: Point, limit: Duration, status: &Status) -> Self {
        Self::of_call(point.name(), limit, status)
    }
}

impl HookError {
    pub(crate) fn reason(&self) -> Reason {
        match &self.source {
            Problem::NoSocket { .. } => Reason::HookSidecarNotReady,
            Problem::Seed(error) => error.reason(),
            _ => Reason::HookSidecarFailed,
        }
    }

    /// Whether the sidecar may just need more time.
    pub(crate) fn is_not_ready(&self) -> bool {
        matches!(self.source, Problem::NoSocket { .. })
    }
}

/// A text of a sidecar, without control characters, and shortened.
pub(super) fn shown(text: &str) -> String {
    let printable = text.chars().filter(|char| !char.is_control());
    printable.take(MAX_TEXT).collect()
}
