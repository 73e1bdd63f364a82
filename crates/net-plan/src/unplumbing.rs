//! The links in the pod that connect an interface of a guest by a bridge, which go when the guest has lost it.

use model::pod_interface_name;

use crate::bridge::{port_name, suffix};

/// Links to remove from the pod's namespace; the pod's own interface gets its name back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unplumbing {
    /// The name of the pod's interface, which a stand-in has.
    pub name: String,
    /// The name of the pod's interface as a port.
    pub renamed: String,
    pub bridge: String,
    pub taps: Vec<String>,
}

/// What was planned for an interface of the guest on a secondary network, with the binding `bridge`.
pub fn unplumbing(network: &str) -> Unplumbing {
    let name = pod_interface_name(network);
    let suffix = suffix(&name).to_owned();
    Unplumbing {
        renamed: port_name(&name),
        bridge: format!("k6t-{suffix}"),
        taps: vec![format!("tap{suffix}"), format!("ra-{suffix}")],
        name,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_have_the_names_of_the_plan() {
        let found = unplumbing("blue");
        assert_eq!(found.name, "pod16477688c0e");
        assert_eq!(found.renamed, "16477688c0e-nic");
        assert_eq!(found.bridge, "k6t-16477688c0e");
        assert_eq!(found.taps, ["tap16477688c0e", "ra-16477688c0e"]);
    }
}
