//! Errors of the pod network.

use std::{io, net::Ipv4Addr, path::PathBuf};

use host_net::NetError;
use net_plan::{Cidr, MacAddress};
use reasons::Reason;

#[derive(Debug, thiserror::Error)]
pub enum PodNetworkError {
    #[error("{range} is not a valid pod range: use an IPv4 network between /8 and /30")]
    BadRange { range: Cidr },
    #[error(
        "{range} is not a valid IPv6 pod range: use a network of unique local addresses between /8 and /{longest}, such \
         as fd00:10:244::/64"
    )]
    BadIpv6Range { range: Cidr, longest: u8 },
    #[error("this host's kernel has no IPv6: leave {range} out of the pod range")]
    NoIpv6 { range: Cidr },
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
    #[error("all addresses of network {network} from {first} to {last} are in use")]
    NetworkFull {
        network: String,
        first: Ipv4Addr,
        last: Ipv4Addr,
    },
    #[error(
        "another pod on bridge {bridge} has the hardware address {mac}: choose another, or end that pod"
    )]
    MacInUse { mac: MacAddress, bridge: String },
    #[error(
        "the guest of another pod has the hardware address {mac}: choose another, or end that pod"
    )]
    GuestMacInUse { mac: MacAddress },
    #[error("{mac} is an address of the pod network itself: choose another")]
    MacReserved { mac: MacAddress },
    #[error(
        "bridge {bridge} is another program's and does not separate VLANs: run `ip link set {bridge} type \
         bridge vlan_filtering 1`, or name a bridge that does not exist"
    )]
    BridgeWithoutVlans { bridge: String },
    #[error("{link} is the bridge of the pod network: name another link")]
    OwnBridge { link: String },
    #[error("the host has no default route whose link a macvlan could share: name its `master`")]
    NoDefaultLink,
    #[error(transparent)]
    Net(#[from] NetError),
}

impl PodNetworkError {
    /// A stable CamelCase reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::BadRange { .. } | Self::BadIpv6Range { .. } | Self::NoIpv6 { .. } => {
                Reason::BadPodRange
            }
            Self::RangeTaken { .. } => Reason::PodRangeTaken,
            Self::RangeFull { .. } | Self::NetworkFull { .. } => Reason::PodRangeFull,
            Self::BadPodUid { .. } => Reason::BadPodUid,
            Self::StateLocked { .. } => Reason::PodNetworkLocked,
            Self::StateOfAnotherRange { .. } => Reason::PodRangeChanged,
            Self::State { .. } => Reason::PodNetworkState,
            Self::MacInUse { .. }
            | Self::GuestMacInUse { .. }
            | Self::MacReserved { .. }
            | Self::BridgeWithoutVlans { .. } => Reason::NetworkNotJoined,
            Self::OwnBridge { .. } | Self::NoDefaultLink => Reason::NetworkDefinitionInvalid,
            Self::Net(error) => error.reason(),
        }
    }

    /// Whether the same operation may succeed later with the same settings.
    pub fn is_transient(&self) -> bool {
        match self {
            Self::BadRange { .. }
            | Self::BadIpv6Range { .. }
            | Self::NoIpv6 { .. }
            | Self::BadPodUid { .. }
            | Self::MacReserved { .. }
            | Self::StateOfAnotherRange { .. } => false,
            Self::RangeTaken { .. }
            | Self::RangeFull { .. }
            | Self::StateLocked { .. }
            | Self::State { .. }
            | Self::NetworkFull { .. }
            | Self::MacInUse { .. }
            | Self::GuestMacInUse { .. }
            | Self::BridgeWithoutVlans { .. }
            | Self::OwnBridge { .. }
            | Self::NoDefaultLink => true,
            Self::Net(error) => error.is_transient(),
        }
    }
}
