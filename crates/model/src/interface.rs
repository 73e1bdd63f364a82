//! Network interfaces: how each is bound to which network.

use kubevirt_api::network::{
    self as wire, ClaimRequest, InterfaceState, MultusNetwork, PluginBinding, PodNetwork,
};
use sha2::{Digest as _, Sha256};

/// The most queues that a tap device has.
pub const MAX_QUEUES: u32 = 256;

/// The longest name of an object.
const MAX_NAME: usize = 253;

/// The pod's interface on its default network, unless the network plugin reports another name.
pub const PRIMARY_POD_INTERFACE: &str = "eth0";

/// The pod's interface on a secondary network. Its name is a hash of the network's name, so that it
/// does not depend on other networks.
pub fn pod_interface_name(network: &str) -> String {
    let hex = hex::encode(Sha256::digest(network.as_bytes()));
    let digits: String = hex.chars().take(11).collect();
    format!("pod{digits}")
}

/// Namespace and name of the `NetworkAttachmentDefinition` that a VMI in the namespace `own` names; `None` if no
/// object can have that name, so that it must not get into the path of a request.
pub fn definition_key<'a>(network_name: &'a str, own: &'a str) -> Option<(&'a str, &'a str)> {
    let (namespace, name) = network_name.split_once('/').unwrap_or((own, network_name));
    let is_name = |name: &str| {
        let is_part = |part: &str| {
            let plain = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit();
            !part.is_empty() && part.bytes().all(|byte| plain(byte) || byte == b'-')
        };
        name.len() <= MAX_NAME && name.split('.').all(is_part)
    };
    (is_name(namespace) && is_name(name)).then_some((namespace, name))
}

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

    /// Whether it is on the default network of the pod.
    pub fn is_primary(&self) -> bool {
        self.network.is_some_and(Network::is_default)
    }

    /// Whether a running guest can get and lose it.
    pub fn is_pluggable(&self) -> bool {
        let is_secondary = matches!(
            self.network,
            Some(Network::Multus(network)) if network.default != Some(true)
        );
        self.binding == Binding::Bridge && is_secondary
    }

    /// Name of the pod's interface that it is connected to; `primary` is that on the default network.
    pub fn pod_interface(&self, primary: &str) -> String {
        if self.is_primary() {
            primary.to_owned()
        } else {
            pod_interface_name(self.name())
        }
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
    /// The binding of an interface; admission refuses interfaces with more than one.
    fn of(spec: &'a wire::Interface) -> Self {
        Self::all(spec).next().unwrap_or(Self::Missing)
    }

    /// Every binding that the wire type carries, in order of precedence.
    pub fn all(spec: &'a wire::Interface) -> impl Iterator<Item = Self> {
        let wire::Interface {
            name: _,
            model: _,
            bridge,
            slirp,
            masquerade,
            sriov,
            macvtap,
            passt,
            passt_binding,
            binding,
            ports: _,
            port_ranges: _,
            mac_address: _,
            boot_order: _,
            pci_address: _,
            dhcp_options: _,
            tag: _,
            acpi_index: _,
            state: _,
        } = spec;
        [
            masquerade.as_ref().map(|_| Self::Masquerade),
            bridge.as_ref().map(|_| Self::Bridge),
            sriov.as_ref().map(|_| Self::Sriov),
            passt_binding.as_ref().map(|_| Self::Passt),
            binding.as_ref().map(Self::Plugin),
            slirp.as_ref().map(|_| Self::Withdrawn("slirp")),
            macvtap.as_ref().map(|_| Self::Withdrawn("macvtap")),
            passt.as_ref().map(|_| Self::Withdrawn("passt")),
        ]
        .into_iter()
        .flatten()
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
    /// The kind of a network; admission refuses networks with more than one.
    pub fn of(network: &'a wire::Network) -> Self {
        Self::all(network).next().unwrap_or(Self::Missing)
    }

    /// Every kind that the wire type carries, in the order of its members.
    pub fn all(network: &'a wire::Network) -> impl Iterator<Item = Self> {
        let wire::Network {
            name: _,
            pod,
            multus,
            resource_claim,
        } = network;
        [
            pod.as_ref().map(Self::Pod),
            multus.as_ref().map(Self::Multus),
            resource_claim.as_ref().map(Self::ResourceClaim),
        ]
        .into_iter()
        .flatten()
    }

    /// Whether the pod's default route goes through it.
    pub fn is_default(self) -> bool {
        match self {
            Self::Pod(_) => true,
            Self::Multus(network) => network.default == Some(true),
            Self::ResourceClaim(_) | Self::Missing => false,
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
        let several = json!({"name": "n", "passt": {}, "bridge": {}, "masquerade": {}});
        let several: wire::Interface = serde_json::from_value(several).expect("an interface");
        let all: Vec<_> = Binding::all(&several).collect();
        let expected = [
            Binding::Masquerade,
            Binding::Bridge,
            Binding::Withdrawn("passt"),
        ];
        assert_eq!(all, expected);
        assert_eq!(Interface::of(0, &several, &[]).binding, Binding::Masquerade);
        let empty = wire::Interface::default();
        assert_eq!(Interface::of(0, &empty, &[]).binding, Binding::Missing);
    }

    #[test]
    fn name_of_a_secondary_pod_interface_is_a_short_hash_of_the_network() {
        // SHA-256 of "blue" begins with these digits.
        assert_eq!(pod_interface_name("blue"), "pod16477688c0e");
        let networks = json!([
            {"name": "a", "pod": {}},
            {"name": "b", "multus": {"networkName": "x", "default": true}},
            {"name": "blue", "multus": {"networkName": "x"}},
        ]);
        let networks: Vec<wire::Network> = serde_json::from_value(networks).expect("networks");
        for (name, expected) in [("a", "eth0"), ("b", "eth0"), ("blue", "pod16477688c0e")] {
            let spec = wire::Interface {
                name: name.to_owned(),
                ..wire::Interface::default()
            };
            let interface = Interface::of(0, &spec, &networks);
            assert_eq!(interface.pod_interface(PRIMARY_POD_INTERFACE), expected);
        }
    }

    #[test]
    fn names_of_definitions_are_names_of_objects() {
        for (name, expected) in [
            ("lan", Some(("own", "lan"))),
            ("vlan-120.a", Some(("own", "vlan-120.a"))),
            ("other/lan", Some(("other", "lan"))),
            ("", None),
            ("/lan", None),
            ("other/", None),
            ("a/b/c", None),
            ("..", None),
            ("../lan", None),
            ("lan?watch=1", None),
            ("lan%2e", None),
            ("Lan", None),
            ("l\u{e4}n", None),
        ] {
            assert_eq!(definition_key(name, "own"), expected, "{name}");
        }
        assert_eq!(definition_key(&"a".repeat(254), "own"), None);
    }

    #[test]
    fn bridge_interfaces_of_secondary_networks_come_and_go() {
        let networks = json!([
            {"name": "pod", "pod": {}},
            {"name": "lan", "multus": {"networkName": "x"}},
            {"name": "first", "multus": {"networkName": "x", "default": true}},
        ]);
        let networks: Vec<wire::Network> = serde_json::from_value(networks).expect("networks");
        for (name, member, expected) in [
            ("lan", "bridge", true),
            ("lan", "sriov", false),
            ("lan", "binding", false),
            ("pod", "bridge", false),
            ("first", "bridge", false),
            ("none", "bridge", false),
        ] {
            let spec = json!({"name": name, member: {}});
            let spec: wire::Interface = serde_json::from_value(spec).expect("an interface");
            let interface = Interface::of(0, &spec, &networks);
            assert_eq!(interface.is_pluggable(), expected, "{name} {member}");
        }
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
        let defaults: Vec<_> = networks
            .iter()
            .map(|one| Network::of(one).is_default())
            .collect();
        assert_eq!(defaults, [true, false, false, false]);
        let spec = wire::Interface {
            name: "b".to_owned(),
            state: Some(InterfaceState::Absent),
            ..wire::Interface::default()
        };
        let interface = Interface::of(0, &spec, &networks);
        assert!(matches!(interface.network, Some(Network::Multus(_))));
        assert_eq!(interface.link, LinkState::Absent);
        assert!(!interface.is_primary());
        assert_eq!(interface.pod_interface("eth0"), pod_interface_name("b"));
    }
}
