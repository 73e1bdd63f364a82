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
            Self::Plan(_) | Self::Domain(_) | Self::Volume(_) => false,
            Self::Network(_) | Self::Pod(_) | Self::HandOver(_) => true,
        }
    }
}
