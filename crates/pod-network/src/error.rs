//! Why the pods' network could not be made as wanted.

use std::{io, net::Ipv4Addr, path::PathBuf};

use host_net::{NetError, Retry};
use net_plan::Cidr;
use reasons::Reason;

#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    #[error("{range} is no pod range: give an IPv4 network between /8 and /30")]
    BadRange { range: Cidr },
    #[error("pod range {range} overlaps {taken}, which this host reaches {how}: choose another")]
    RangeTaken {
        range: Cidr,
        taken: Cidr,
        how: String,
    },
    #[error("all {size} addresses of pod range {range} are in use")]
    RangeFull { range: Cidr, size: u32 },
    #[error("{uid:?} is no pod uid")]
    BadPodUid { uid: String },
    #[error("{} is in use by another process", .path.display())]
    StateLocked { path: PathBuf },
    #[error("{} holds {address}, which is outside of pod range {range}: tear the old network down first", .path.display())]
    StateOfAnotherRange {
        path: PathBuf,
        address: Ipv4Addr,
        range: Cidr,
    },
    #[error("keep state in {}", .path.display())]
    State {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    #[error(transparent)]
    Net(#[from] NetError),
}

impl PodNetworkError {
    /// A stable word for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::BadRange { .. } => Reason::BadPodRange,
            Self::RangeTaken { .. } => Reason::PodRangeTaken,
            Self::RangeFull { .. } => Reason::PodRangeFull,
            Self::BadPodUid { .. } => Reason::BadPodUid,
            Self::StateLocked { .. } => Reason::PodNetworkLocked,
            Self::StateOfAnotherRange { .. } => Reason::PodRangeChanged,
            Self::State { .. } => Reason::PodNetworkState,
            Self::Net(err) => err.reason(),
        }
    }

    pub fn retry(&self) -> Retry {
        match self {
            Self::BadRange { .. } | Self::BadPodUid { .. } | Self::StateOfAnotherRange { .. } => {
                Retry::Never
            }
            Self::RangeTaken { .. }
            | Self::RangeFull { .. }
            | Self::StateLocked { .. }
            | Self::State { .. } => Retry::Soon,
            Self::Net(err) => err.retry(),
        }
    }
}
