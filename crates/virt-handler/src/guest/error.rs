//! Errors of a guest's reconcile, and the refusals among them that are published on the VMI.

use error_chain::error_chain;
use net_plan::PlanError;
use reasons::Reason;
use reconcile::{ReconcileError, Retry, WriteError};

use super::status::StartRefusal;
use crate::{launcher::CallError, prepare::PrepareError};

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum GuestError {
    #[error("read the VMI")]
    Read(#[source] Box<kube::Error>),
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Call(#[from] CallError),
    #[error(transparent)]
    Prepare(#[from] PrepareError),
}

impl GuestError {
    /// Whether the same step may succeed later, with the VMI as it is.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Read(_) | Self::Write(_) => true,
            Self::Call(error) => error.is_transient(),
            Self::Prepare(error) => error.is_transient(),
        }
    }

    /// Whether a guest cannot move to the pod for which the step was, now or later: another pod may be made otherwise.
    pub(crate) fn ends_arrival(&self) -> bool {
        let is_of_pod = matches!(
            self,
            Self::Prepare(PrepareError::Plan(
                PlanError::NoTap { .. } | PlanError::BindingNotOfPod { .. }
            ))
        );
        is_of_pod || !self.is_transient()
    }

    /// The reason why the guest cannot be started, for the VMI's status. `None` for errors that say
    /// nothing about the guest: the API server is unavailable, or the connection to the launcher
    /// ended and will be restored.
    pub(super) fn start_refusal(&self) -> Option<StartRefusal> {
        let reason = match self {
            Self::Read(_) | Self::Write(_) | Self::Call(CallError::NotConnected) => return None,
            Self::Call(CallError::Refused { reason, .. }) => reason.clone(),
            Self::Call(CallError::TimedOut | CallError::UnexpectedReply | CallError::TooLarge)
            | Self::Prepare(_) => self.reason().as_str().to_owned(),
        };
        Some(StartRefusal {
            reason,
            message: error_chain(self),
            transient: self.is_transient(),
        })
    }
}

impl ReconcileError for GuestError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Write(error) => error.reason(),
            Self::Call(_) => Reason::LauncherUnavailable,
            Self::Prepare(error) => error.reason(),
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Write(error) => error.retry(),
            // A launcher that reconnects triggers a reconcile.
            Self::Call(CallError::NotConnected) => Retry::Never,
            Self::Read(_) | Self::Call(_) | Self::Prepare(_) => Retry::BackOff,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pod_that_lacks_what_a_binding_needs_ends_a_move_to_it() {
        let text = str::to_owned;
        for (error, ends) in [
            (
                PlanError::NoTap {
                    interface: text("lan"),
                    tap: text("tap0"),
                    pod_interface: text("eth0"),
                },
                true,
            ),
            (
                PlanError::BindingNotOfPod {
                    field: text("binding"),
                    binding: text("layer2"),
                },
                true,
            ),
            (
                PlanError::NoSuchNetwork {
                    interface: text("lan"),
                },
                true,
            ),
            (
                PlanError::PodHasNoAddress {
                    interface: text("eth0"),
                },
                false,
            ),
        ] {
            let error = GuestError::Prepare(error.into());
            assert_eq!(error.ends_arrival(), ends, "{error}");
        }
        assert!(!GuestError::Call(CallError::NotConnected).ends_arrival());
    }
}
