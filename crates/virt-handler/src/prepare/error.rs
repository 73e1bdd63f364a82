//! Errors of the preparation of a pod.

use std::io;

use domain_xml::RenderError;
use host_net::NetError;
use model::{InvalidAllocation, Unsupported};
use net_plan::PlanError;
use reasons::Reason;

use super::{
    claimed_devices::{ClaimError, NotDescribed},
    file_servers::PathNotMounted,
};
use crate::volumes::StepError;

/// Why a pod cannot be prepared for its guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error("not supported yet: {0}")]
    Unsupported(#[from] Unsupported),
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("configure the pod's network")]
    Network(#[from] NetError),
    #[error(transparent)]
    Domain(#[from] RenderError),
    #[error(transparent)]
    Volume(#[from] StepError),
    #[error(transparent)]
    Filesystem(#[from] PathNotMounted),
    #[error("access the pod's files")]
    Pod(#[from] io::Error),
    #[error("let QEMU lock memory and run with realtime priority")]
    Rights(#[source] io::Error),
    #[error("hand over the devices of the node")]
    Devices(#[source] io::Error),
    #[error(transparent)]
    Allocation(#[from] InvalidAllocation),
    #[error(transparent)]
    NotDescribed(#[from] NotDescribed),
    #[error("the pod's annotation of migrated volumes is malformed")]
    MalformedMoves,
    #[error("hand over the guest's disks")]
    HandOver(#[source] io::Error),
}

impl From<ClaimError> for PrepareError {
    fn from(error: ClaimError) -> Self {
        match error {
            ClaimError::NotDescribed(problem) => Self::NotDescribed(problem),
            ClaimError::Io(error) => Self::Devices(error),
        }
    }
}

impl PrepareError {
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Unsupported(_) => Reason::FeatureNotSupported,
            Self::Plan(error) => error.reason(),
            Self::Network(error) => error.reason(),
            Self::Domain(RenderError::NotPlumbed { .. }) => Reason::InterfaceNotPlumbed,
            Self::Domain(RenderError::NoVsockAddress) => Reason::VsockAddressMissing,
            Self::Domain(_) | Self::Filesystem(_) | Self::MalformedMoves => {
                Reason::DomainNotRenderable
            }
            Self::Volume(StepError::CloudInit(_)) => Reason::CloudInitNotUsable,
            Self::Volume(StepError::Capacity(_)) => Reason::CapacityNotUsable,
            Self::Pod(_) => Reason::PodNotReachable,
            Self::Rights(_) => Reason::LimitsNotRaised,
            Self::Devices(_) | Self::Allocation(_) | Self::NotDescribed(_) => {
                Reason::HostDeviceNotUsable
            }
            Self::HandOver(_) => Reason::DiskNotUsable,
        }
    }

    /// Whether the preparation may succeed later with the same VMI, whose spec never changes.
    ///
    /// Also true if only an administrator can remove the cause, such as a missing kernel module: the
    /// VMI waits for that.
    pub(crate) fn is_transient(&self) -> bool {
        !self.reason().is_permanent()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(text: &str) -> String {
        text.to_owned()
    }

    #[test]
    fn only_errors_of_the_vmi_itself_are_permanent() {
        let io = || io::Error::from(io::ErrorKind::NotFound);
        let transient: [PrepareError; 10] = [
            PlanError::PodHasNoAddress {
                interface: text("eth0"),
            }
            .into(),
            RenderError::NotPlumbed {
                interface: text("default"),
            }
            .into(),
            NetError::NoSuchLink { name: text("eth0") }.into(),
            NetError::NotSupported {
                operation: text("set rules"),
                feature: text("nft_masq"),
            }
            .into(),
            NetError::ThreadPanicked.into(),
            PrepareError::Pod(io()),
            PrepareError::HandOver(io()),
            PrepareError::Rights(io()),
            PrepareError::Devices(io()),
            InvalidAllocation::TooMany.into(),
        ];
        for error in transient {
            assert!(error.is_transient(), "{error:?}");
        }
        let permanent: [PrepareError; 4] = [
            PlanError::NoSuchNetwork {
                interface: text("default"),
            }
            .into(),
            PlanError::TooManyRoutes {
                interface: text("eth0"),
            }
            .into(),
            RenderError::Missing {
                field: text("spec.domain.x"),
            }
            .into(),
            RenderError::Invalid {
                field: text("spec.domain.x"),
                problem: text("unknown"),
            }
            .into(),
        ];
        for error in permanent {
            assert!(!error.is_transient(), "{error:?}");
        }
    }
}
