//! Errors of the preparation of a pod.

use std::io;

use domain_xml::RenderError;
use host_net::NetError;
use net_plan::PlanError;

use crate::volumes::StepError;

/// Why a pod cannot be prepared for its guest.
#[derive(Debug, thiserror::Error)]
pub(crate) enum PrepareError {
    #[error(transparent)]
    Plan(#[from] PlanError),
    #[error("configure the pod's network")]
    Network(#[from] NetError),
    #[error(transparent)]
    Domain(#[from] RenderError),
    #[error(transparent)]
    Volume(#[from] StepError),
    #[error("access the pod's files")]
    Pod(#[from] io::Error),
    #[error("hand over the guest's disks")]
    HandOver(#[source] io::Error),
}

impl PrepareError {
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Plan(error) => error.reason(),
            Self::Network(error) => error.reason(),
            Self::Domain(_) => "DomainNotRenderable",
            Self::Volume(StepError::CloudInit(_)) => "CloudInitNotUsable",
            Self::Volume(StepError::Capacity(_)) => "CapacityNotUsable",
            Self::Pod(_) => "PodNotReachable",
            Self::HandOver(_) => "DiskNotUsable",
        }
    }

    /// Whether the preparation may succeed later with the same VMI, whose spec never changes.
    ///
    /// All errors of the node and of the pod are transient here, even if only an administrator can
    /// remove their cause, such as a missing kernel module: the VMI waits for that.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Plan(error) => error.is_transient(),
            Self::Domain(error) => error.is_transient(),
            Self::Volume(_) => false,
            Self::Network(_) | Self::Pod(_) | Self::HandOver(_) => true,
        }
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
        let transient: [PrepareError; 7] = [
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
        ];
        for error in transient {
            assert!(error.is_transient(), "{error:?}");
        }
        let permanent: [PrepareError; 6] = [
            PlanError::NoSuchNetwork {
                interface: text("default"),
            }
            .into(),
            PlanError::TooManyRoutes {
                interface: text("eth0"),
            }
            .into(),
            PlanError::DhcpOptionsNotSupported {
                interface: text("default"),
            }
            .into(),
            RenderError::Unsupported {
                field: text("spec.domain.x"),
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
