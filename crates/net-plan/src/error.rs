//! Why a VMI has no plan.

use reasons::Reason;

/// Each names the field of the VMI to change. None goes away by trying again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "interface {interface} uses the {binding} binding, which is not supported yet: \
         use masquerade or bridge on the pod network"
    )]
    BindingNotSupported { interface: String, binding: String },
    #[error("interface {interface} has no network of the same name in spec.networks")]
    NoSuchNetwork { interface: String },
    #[error("network {network} is not the pod network, and others are not supported yet")]
    NotThePodNetwork { network: String },
    #[error("interface {interface} is the second on the pod network; a VMI can have one")]
    SecondInterface { interface: String },
    #[error("network {network}: {field} {value:?} is not {wanted}")]
    BadNetworkCidr {
        network: String,
        field: &'static str,
        value: String,
        wanted: &'static str,
    },
    #[error("interface {interface}: macAddress {value:?} {problem}")]
    BadMacAddress {
        interface: String,
        value: String,
        problem: &'static str,
    },
    #[error("interface {interface}: port {port} {problem}")]
    BadPort {
        interface: String,
        port: String,
        problem: &'static str,
    },
    #[error("interface {interface}: dhcpOptions are not supported yet: remove them")]
    DhcpOptionsNotSupported { interface: String },
    #[error("the pod's interface {interface} has no global address: use bridge")]
    PodHasNoAddress { interface: String },
    #[error(
        "the pod's interface {interface} has too many routes to be given to the guest: \
         use masquerade"
    )]
    TooManyRoutes { interface: String },
}

impl PlanError {
    /// A stable word for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::BindingNotSupported { .. } => Reason::BindingNotSupported,
            Self::NoSuchNetwork { .. } => Reason::NoSuchNetwork,
            Self::NotThePodNetwork { .. } => Reason::NotThePodNetwork,
            Self::SecondInterface { .. } => Reason::SecondInterface,
            Self::BadNetworkCidr { .. } => Reason::BadNetworkCidr,
            Self::BadMacAddress { .. } => Reason::BadMacAddress,
            Self::BadPort { .. } => Reason::BadPort,
            Self::DhcpOptionsNotSupported { .. } => Reason::DhcpOptionsNotSupported,
            Self::PodHasNoAddress { .. } => Reason::PodHasNoAddress,
            Self::TooManyRoutes { .. } => Reason::TooManyRoutes,
        }
    }
}
