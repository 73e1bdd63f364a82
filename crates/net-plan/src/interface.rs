//! What follows from an interface of the VMI alone.

use model::{Interface, LinkState};

use crate::bridge;

/// The link that the VMI asks for, as its status shows it.
pub(crate) fn link_state(interface: &Interface<'_>) -> &'static str {
    match interface.link {
        LinkState::Up => "up",
        LinkState::Down | LinkState::Absent => "down",
    }
}

/// The name of a tap: the number of the primary interface, or the digits of the pod's interface.
pub(crate) fn tap_name(interface: &Interface<'_>, pod_interface: &str) -> String {
    if interface.is_primary() {
        "tap0".to_owned()
    } else {
        format!("tap{}", bridge::suffix(pod_interface))
    }
}
