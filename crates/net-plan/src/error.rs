//! Why a VMI has no plan.

/// Each names the field of the VMI to change. None goes away by trying again.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error(
        "interface {interface} uses the {binding} binding, which is not supported yet: \
         use masquerade on the pod network"
    )]
    BindingNotSupported { interface: String, binding: String },
    #[error("interface {interface} has no network of the same name in spec.networks")]
    NoSuchNetwork { interface: String },
    #[error("network {network} is not the pod network; masquerade works on the pod network only")]
    NotThePodNetwork { network: String },
    #[error("interface {interface} is the second masquerade interface; a VMI can have one")]
    SecondMasquerade { interface: String },
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
    #[error("the pod's interface {interface} has no global address")]
    PodHasNoAddress { interface: String },
}

impl PlanError {
    /// A stable word for conditions, events and metrics.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::BindingNotSupported { .. } => "BindingNotSupported",
            Self::NoSuchNetwork { .. } => "NoSuchNetwork",
            Self::NotThePodNetwork { .. } => "NotThePodNetwork",
            Self::SecondMasquerade { .. } => "SecondMasquerade",
            Self::BadNetworkCidr { .. } => "BadNetworkCidr",
            Self::BadMacAddress { .. } => "BadMacAddress",
            Self::BadPort { .. } => "BadPort",
            Self::DhcpOptionsNotSupported { .. } => "DhcpOptionsNotSupported",
            Self::PodHasNoAddress { .. } => "PodHasNoAddress",
        }
    }
}
