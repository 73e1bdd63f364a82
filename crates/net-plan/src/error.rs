//! Why a VMI has no plan.

/// Each names the field of the VMI to change. [`PlanError::is_transient`] tells which may pass.
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
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BindingNotSupported { .. } => "BindingNotSupported",
            Self::NoSuchNetwork { .. } => "NoSuchNetwork",
            Self::NotThePodNetwork { .. } => "NotThePodNetwork",
            Self::SecondInterface { .. } => "SecondInterface",
            Self::BadNetworkCidr { .. } => "BadNetworkCidr",
            Self::BadMacAddress { .. } => "BadMacAddress",
            Self::BadPort { .. } => "BadPort",
            Self::DhcpOptionsNotSupported { .. } => "DhcpOptionsNotSupported",
            Self::PodHasNoAddress { .. } => "PodHasNoAddress",
            Self::TooManyRoutes { .. } => "TooManyRoutes",
        }
    }

    /// Whether the same VMI may get a plan later: the error lies in the pod's interface, not in the
    /// VMI.
    pub fn is_transient(&self) -> bool {
        matches!(self, Self::PodHasNoAddress { .. })
    }
}
