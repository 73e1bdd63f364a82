//! Why a VMI has no plan.

use model::Unsupported;
use reasons::Reason;

/// Each names the field of the VMI to change.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlanError {
    #[error("not supported yet: {0}")]
    Unsupported(#[from] Unsupported),
    #[error("{field}: needs a value")]
    Missing { field: String },
    #[error("{field}: passt has no such options; leave it out, or use masquerade")]
    NotWithPasst { field: String },
    #[error("interface {interface} has no network of the same name in spec.networks")]
    NoSuchNetwork { interface: String },
    #[error("interface {interface} is the second on its network; a VMI can have one")]
    SecondInterface { interface: String },
    #[error("{field}: works on the pod network only; use bridge on others")]
    OnlyOnPodNetwork { field: String },
    #[error("{field}: works on a secondary network only; use masquerade on that of the pod")]
    NotOnPodNetwork { field: String },
    #[error(
        "the pod has no interface {pod_interface} for interface {interface} of the VMI, on network \
         {network}"
    )]
    NotAttached {
        interface: String,
        network: String,
        pod_interface: String,
    },
    #[error("{field}: the pod was not made for the network binding {binding:?}")]
    BindingNotOfPod { field: String, binding: String },
    #[error(
        "the pod has no tap for interface {interface} of the VMI: neither {tap} nor {pod_interface} is a tap or a \
         macvtap"
    )]
    NoTap {
        interface: String,
        tap: String,
        pod_interface: String,
    },
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
    #[error("the pod's interface {interface} has no global address: use bridge")]
    PodHasNoAddress { interface: String },
    #[error(
        "the pod's interface {interface} has too many routes for the bridge binding: use masquerade"
    )]
    TooManyRoutes { interface: String },
}

impl PlanError {
    /// A stable reason for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Unsupported(_)
            | Self::Missing { .. }
            | Self::NotWithPasst { .. }
            | Self::OnlyOnPodNetwork { .. }
            | Self::NotOnPodNetwork { .. } => Reason::DomainNotRenderable,
            Self::NotAttached { .. } => Reason::NetworkNotAttached,
            Self::BindingNotOfPod { .. } => Reason::NetworkBindingNotOfPod,
            Self::NoTap { .. } => Reason::NetworkBindingWithoutTap,
            Self::NoSuchNetwork { .. } => Reason::NoSuchNetwork,
            Self::SecondInterface { .. } => Reason::SecondInterface,
            Self::BadNetworkCidr { .. } => Reason::BadNetworkCidr,
            Self::BadMacAddress { .. } => Reason::BadMacAddress,
            Self::BadPort { .. } => Reason::BadPort,
            Self::PodHasNoAddress { .. } => Reason::PodHasNoAddress,
            Self::TooManyRoutes { .. } => Reason::TooManyRoutes,
        }
    }
}
