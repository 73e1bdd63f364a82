//! Errors of the pod network.

use std::{io, net::Ipv4Addr, path::PathBuf};

use host_net::NetError;
use net_plan::Cidr;
use reasons::Reason;

#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    #[error("{range} is not a valid pod range: use an IPv4 network between /8 and /30")]
    BadRange { range: Cidr },
    #[error(
        "pod range {range} overlaps {taken}, which this host reaches over {link}: choose another"
    )]
    RangeTaken {
        range: Cidr,
        taken: Cidr,
        /// The name of the link, or `several links`.
        link: String,
    },
    #[error("all {size} addresses of pod range {range} are in use")]
    RangeFull { range: Cidr, size: u32 },
    #[error("{uid:?} is not a valid pod UID")]
    BadPodUid { uid: String },
    #[error("{} is in use by another process", .path.display())]
    StateLocked { path: PathBuf },
    #[error("{} holds {address}, which is outside of pod range {range}: remove the old network first", .path.display())]
    StateOfAnotherRange {
        path: PathBuf,
        address: Ipv4Addr,
        range: Cidr,
    },
    #[error("access the state in {}", .path.display())]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Net(#[from] NetError),
}

impl PodNetworkError {
    /// A stable CamelCase reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::BadRange { .. } => Reason::BadPodRange,
            Self::RangeTaken { .. } => Reason::PodRangeTaken,
            Self::RangeFull { .. } => Reason::PodRangeFull,
            Self::BadPodUid { .. } => Reason::BadPodUid,
            Self::StateLocked { .. } => Reason::PodNetworkLocked,
            Self::StateOfAnotherRange { .. } => Reason::PodRangeChanged,
            Self::State { .. } => Reason::PodNetworkState,
            Self::Net(error) => error.reason(),
        }
    }

    /// Whether the same operation may succeed later with the same settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::BadRange { .. } | Self::BadPodUid { .. } | Self::StateOfAnotherRange { .. } => {
                false
            }
            Self::RangeTaken { .. }
            | Self::RangeFull { .. }
            | Self::StateLocked { .. }
            | Self::State { .. } => true,
            Self::Net(error) => error.is_transient(),
        }
    }
}
