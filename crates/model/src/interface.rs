//! Network interfaces: how each is bound to which network.

use kubevirt_api::network::{
    self as wire, ClaimRequest, InterfaceState, MultusNetwork, PluginBinding, PodNetwork,
};

/// The most queues that a tap device has.
pub const MAX_QUEUES: u32 = 256;

/// A network interface of the VMI.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Interface<'a> {
    /// Position in `spec.domain.devices.interfaces`.
    pub index: usize,
    pub spec: &'a wire::Interface,
    pub binding: Binding<'a>,
    pub link: LinkState,
    /// The network of the interface's name; `None` if there is none.
    pub network: Option<Network<'a>>,
}

/// How the interface is connected to the network of the pod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Binding<'a> {
    Masquerade,
    Bridge,
    Sriov,
    Passt,
    /// A plugin that the administrator registered.
    Plugin(&'a PluginBinding),
    /// A binding that `KubeVirt` removed, by the name of its member.
    Withdrawn(&'static str),
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Network<'a> {
    Pod(&'a PodNetwork),
    Multus(&'a MultusNetwork),
    ResourceClaim(&'a ClaimRequest),
    Missing,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    Up,
    Down,
    /// The interface is unplugged.
    Absent,
}

impl<'a> Interface<'a> {
    pub(crate) fn of(index: usize, spec: &'a wire::Interface, all: &'a [wire::Network]) -> Self {
        let network = all.iter().find(|network| network.name == spec.name);
        Self {
            index,
            spec,
            binding: Binding::of(spec),
            link: match spec.state {
                Some(InterfaceState::Absent) => LinkState::Absent,
                Some(InterfaceState::Down) => LinkState::Down,
                None | Some(InterfaceState::Up | InterfaceState::Other(_)) => LinkState::Up,
            },
            network: network.map(Network::of),
        }
    }

    /// Name of the interface and of its network.
    pub fn name(&self) -> &'a str {
        &self.spec.name
    }

    /// The model that is emulated; `None` is virtio.
    pub fn emulated_model(&self) -> Option<&'a str> {
        match self.spec.model.as_deref() {
            None | Some("" | "virtio") => None,
            model => model,
        }
    }

    /// Path of one of its members in the VMI.
    pub fn field(&self, member: &str) -> String {
        format!("spec.domain.devices.interfaces[{}].{member}", self.index)
    }
}

impl<'a> Binding<'a> {
    fn of(spec: &'a wire::Interface) -> Self {
        let withdrawn = [
            ("slirp", spec.slirp.is_some()),
            ("macvtap", spec.macvtap.is_some()),
            ("passt", spec.passt.is_some()),
        ];
        let withdrawn = withdrawn.into_iter().find(|(_, is_given)| *is_given);
        if spec.masquerade.is_some() {
            Self::Masquerade
        } else if spec.bridge.is_some() {
            Self::Bridge
        } else if spec.sriov.is_some() {
            Self::Sriov
        } else if spec.passt_binding.is_some() {
            Self::Passt
        } else if let Some(plugin) = &spec.binding {
            Self::Plugin(plugin)
        } else {
            withdrawn.map_or(Self::Missing, |(member, _)| Self::Withdrawn(member))
        }
    }

    /// Name of the member of the wire type.
    pub fn member(&self) -> &'static str {
        match self {
            Self::Masquerade => "masquerade",
            Self::Bridge => "bridge",
            Self::Sriov => "sriov",
            Self::Passt => "passtBinding",
            Self::Plugin(_) => "binding",
            Self::Withdrawn(member) => member,
            Self::Missing => "",
        }
    }
}

impl<'a> Network<'a> {
    pub(crate) fn of(network: &'a wire::Network) -> Self {
        if let Some(pod) = &network.pod {
            Self::Pod(pod)
        } else if let Some(multus) = &network.multus {
            Self::Multus(multus)
        } else if let Some(claim) = &network.resource_claim {
            Self::ResourceClaim(claim)
        } else {
            Self::Missing
        }
    }

    /// Name of the member of the wire type.
    pub fn member(self) -> &'static str {
        match self {
            Self::Pod(_) | Self::Missing => "pod",
            Self::Multus(_) => "multus",
            Self::ResourceClaim(_) => "resourceClaim",
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_binding_has_its_variant_and_member() {
        for member in [
            "masquerade",
            "bridge",
            "sriov",
            "passtBinding",
            "binding",
            "slirp",
            "macvtap",
            "passt",
        ] {
            let spec = json!({"name": "n", member: {}});
            let spec: wire::Interface = serde_json::from_value(spec).expect("an interface");
            let interface = Interface::of(0, &spec, &[]);
            assert_eq!(interface.binding.member(), member);
            assert_eq!(interface.network, None);
        }
        let empty = wire::Interface::default();
        assert_eq!(Interface::of(0, &empty, &[]).binding, Binding::Missing);
    }

    #[test]
    fn network_of_the_same_name_is_joined() {
        let networks = json!([
            {"name": "a", "pod": {}},
            {"name": "b", "multus": {"networkName": "x"}},
            {"name": "c", "resourceClaim": {}},
            {"name": "d"},
        ]);
        let networks: Vec<wire::Network> = serde_json::from_value(networks).expect("networks");
        let find = |name: &str| {
            let network = networks.iter().find(|network| network.name == name);
            network.map(Network::of)
        };
        assert!(matches!(find("a"), Some(Network::Pod(_))));
        assert!(matches!(find("b"), Some(Network::Multus(_))));
        assert!(matches!(find("c"), Some(Network::ResourceClaim(_))));
        assert_eq!(find("d"), Some(Network::Missing));
        let spec = wire::Interface {
            name: "b".to_owned(),
            state: Some(InterfaceState::Absent),
            ..wire::Interface::default()
        };
        let interface = Interface::of(0, &spec, &networks);
        assert!(matches!(interface.network, Some(Network::Multus(_))));
        assert_eq!(interface.link, LinkState::Absent);
    }
}
