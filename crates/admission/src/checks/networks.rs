//! Networks and the interfaces that join them: pairs of the same name.

use std::{collections::BTreeSet, net::Ipv4Addr};

use kubevirt_api::network::{Interface, InterfaceState, Network, Port};

use super::{
    Input,
    disks::{is_pci_address, pci_fault},
    repeated,
};
use crate::{cluster_config::Permission, violation::Violation};

const MODELS: &[&str] = &[
    "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139", "virtio", "",
];
const PRIVATE_OPTIONS: std::ops::RangeInclusive<i64> = 224..=254;
/// The guest's own address on the link of a masqueraded interface.
const RESERVED_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];
const MAX_PORT_NAME: usize = 15;

pub(super) fn names(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for i in repeated(&input.spec.networks, |network| &network.name) {
        let detail = "another network has this name; names must be unique";
        found.push(input.duplicate(&format!("networks[{i}].name"), detail));
    }
    for (i, network) in input.spec.networks.iter().enumerate() {
        if !interfaces(input).any(|(_, interface)| interface.name == network.name) {
            let detail = format!(
                "no interface is named {:?}; add one to domain.devices.interfaces",
                network.name
            );
            found.push(input.required(&format!("networks[{i}].name"), detail));
        }
    }
    found
}

pub(super) fn types(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (i, network) in input.spec.networks.iter().enumerate() {
        let given = [
            network.pod.is_some(),
            network.multus.is_some(),
            network.resource_claim.is_some(),
        ];
        match given.iter().filter(|given| **given).count() {
            1 => {}
            0 => {
                let detail = "no type; use pod: {}";
                found.push(input.required(&format!("networks[{i}]"), detail));
            }
            _ => {
                let detail = "several types; choose one of pod, multus and resourceClaim";
                found.push(input.required(&format!("networks[{i}]"), detail));
            }
        }
        if network
            .multus
            .as_ref()
            .is_some_and(|multus| multus.network_name.is_empty())
        {
            let detail = "empty; name a NetworkAttachmentDefinition";
            found.push(input.required(&format!("networks[{i}].multus.networkName"), detail));
        }
    }
    found
}

pub(super) fn pod_network_is_single(input: &Input<'_>) -> Vec<Violation> {
    let networks = &input.spec.networks;
    let pods = networks
        .iter()
        .filter(|network| network.pod.is_some())
        .count();
    let defaults = networks
        .iter()
        .filter(|network| {
            network
                .multus
                .as_ref()
                .is_some_and(|multus| multus.default == Some(true))
        })
        .count();
    let mut found = Vec::new();
    if pods > 1 {
        let detail = "more than one pod network; a pod has one, keep one";
        found.push(input.duplicate("networks", detail));
    }
    if defaults > 1 || (pods > 0 && defaults > 0) {
        let detail = "more than one default network; keep one of pod and multus with default: true";
        found.push(input.invalid("networks", detail));
    }
    found
}

pub(super) fn interface_names(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    let list = &input.spec.domain.devices.interfaces;
    for i in repeated(list, |interface| &interface.name) {
        let detail = "another interface has this name; names must be unique";
        found.push(input.duplicate(&format!("domain.devices.interfaces[{i}].name"), detail));
    }
    for (path, interface) in interfaces(input) {
        let fits = !interface.name.is_empty()
            && interface
                .name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if !fits {
            let detail = format!(
                "{:?} does not fit; use letters, digits, - and _",
                interface.name
            );
            found.push(input.invalid(&format!("{path}.name"), detail));
        } else if network_of(input, interface).is_none() {
            let detail = format!(
                "no network is named {:?}; add one to networks",
                interface.name
            );
            found.push(input.invalid(&format!("{path}.name"), detail));
        }
    }
    found
}

pub(super) fn bindings(input: &Input<'_>) -> Vec<Violation> {
    interfaces(input)
        .filter_map(|(path, interface)| {
            let withdrawn = [
                ("slirp", interface.slirp.is_some()),
                ("macvtap", interface.macvtap.is_some()),
                ("passt", interface.passt.is_some()),
            ];
            if let Some((name, _)) = withdrawn.into_iter().find(|(_, is_given)| *is_given) {
                let detail = "this binding was withdrawn; use masquerade: {}";
                return Some(input.invalid(&format!("{path}.{name}"), detail));
            }
            let given = [
                interface.bridge.is_some(),
                interface.masquerade.is_some(),
                interface.sriov.is_some(),
                interface.passt_binding.is_some(),
                interface.binding.is_some(),
            ];
            match given.iter().filter(|given| **given).count() {
                1 => None,
                0 => Some(input.invalid(&path, "no binding; use masquerade: {}")),
                _ => Some(input.invalid(&path, "several bindings; choose one")),
            }
        })
        .collect()
}

pub(super) fn masquerade(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        let is_pod = network_of(input, interface)
            .is_none_or(|network| network.multus.is_none() && network.resource_claim.is_none());
        if interface.masquerade.is_some() && !is_pod {
            let detail = "works on the pod network only; use bridge on others";
            found.push(input.invalid(&format!("{path}.masquerade"), detail));
        }
        let is_refused = input.config.bridge_on_pod_network == Permission::Refused;
        if interface.bridge.is_some() && is_pod && is_refused {
            let detail =
                "this cluster does not permit bridges on the pod network; use masquerade: {}";
            found.push(input.invalid(&format!("{path}.bridge"), detail));
        }
    }
    found
}

pub(super) fn states_and_models(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        let model = interface.model.as_deref().unwrap_or_default();
        if !MODELS.contains(&model) {
            let detail = format!(
                "{model:?} is unknown; use virtio, e1000, e1000e, igb, ne2k_pci, pcnet or rtl8139"
            );
            found.push(input.not_supported(&format!("{path}.model"), detail));
        }
        if let Some(detail) = state_fault(input, interface) {
            found.push(input.invalid(&format!("{path}.state"), detail));
        }
        if let Some(address) = interface
            .pci_address
            .as_deref()
            .filter(|at| !is_pci_address(at))
        {
            found.push(input.invalid(&format!("{path}.pciAddress"), pci_fault(address)));
        }
    }
    found
}

fn state_fault(input: &Input<'_>, interface: &Interface) -> Option<String> {
    let state = interface.state.as_ref()?;
    match state {
        InterfaceState::Other(word) if !word.is_empty() => {
            Some(format!("{word:?} is unknown; use up, down or absent"))
        }
        InterfaceState::Up | InterfaceState::Down if interface.sriov.is_some() => {
            Some("the link of an SR-IOV interface cannot be set; leave it out".to_owned())
        }
        InterfaceState::Absent => {
            let is_pod = network_of(input, interface).is_some_and(|network| network.pod.is_some());
            (interface.bridge.is_none() || is_pod).then(|| {
                "only bridge interfaces of secondary networks can be unplugged; use up or down"
                    .to_owned()
            })
        }
        _ => None,
    }
}

pub(super) fn mac_addresses(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        let Some(text) = interface
            .mac_address
            .as_deref()
            .filter(|text| !text.is_empty())
        else {
            continue;
        };
        let field = format!("{path}.macAddress");
        match parse_mac(text) {
            None => {
                let detail =
                    format!("{text:?} is no MAC address; write one such as 02:00:00:00:00:01");
                found.push(input.invalid(&field, detail));
            }
            Some(RESERVED_MAC) if interface.masquerade.is_some() => {
                let detail = format!("{text} is the gateway's; use another one");
                found.push(input.invalid(&field, detail));
            }
            Some(_) => {}
        }
    }
    found
}

fn parse_mac(text: &str) -> Option<[u8; 6]> {
    let parts: Vec<&str> = text.split([':', '-']).collect();
    let mut mac = [0; 6];
    if parts.len() != mac.len() {
        return None;
    }
    for (byte, part) in mac.iter_mut().zip(parts) {
        let is_pair = part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        *byte = u8::from_str_radix(part, 16).ok().filter(|_| is_pair)?;
    }
    Some(mac)
}

pub(super) fn ports(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        let mut names = BTreeSet::new();
        for (i, port) in interface.ports.iter().enumerate() {
            let field = format!("{path}.ports[{i}]");
            found.extend(port_faults(input, &field, port));
            let name = port.name.as_deref().unwrap_or_default();
            if !name.is_empty() && !names.insert(name) {
                let detail = "another port has this name; names must be unique";
                found.push(input.duplicate(&format!("{field}.name"), detail));
            }
        }
        if !interface.ports.is_empty() && !interface.port_ranges.is_empty() {
            let detail = "ports and portRanges together; choose one";
            found.push(input.invalid(&format!("{path}.portRanges"), detail));
        }
    }
    found
}

fn port_faults(input: &Input<'_>, path: &str, port: &Port) -> Vec<Violation> {
    let mut found = Vec::new();
    let number = format!("{path}.port");
    if port.port == 0 {
        found.push(input.required(&number, "missing; write a number from 1 to 65535"));
    } else if u16::try_from(port.port).is_err() {
        let detail = format!("{} is no port; write a number from 1 to 65535", port.port);
        found.push(input.invalid(&number, detail));
    }
    let protocol = port.protocol.as_deref().unwrap_or_default();
    if !["TCP", "UDP", ""].contains(&protocol) {
        let detail = format!("{protocol:?} is unknown; use TCP or UDP");
        found.push(input.invalid(&format!("{path}.protocol"), detail));
    }
    if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty())
        && !is_port_name(name)
    {
        let detail = format!(
            "{name:?} is no port name; use at most {MAX_PORT_NAME} lower-case letters, digits and \
             single dashes, with at least one letter"
        );
        found.push(input.invalid(&format!("{path}.name"), detail));
    }
    found
}

fn is_port_name(name: &str) -> bool {
    name.len() <= MAX_PORT_NAME
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && name.bytes().any(|b| b.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

pub(super) fn dhcp_options(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        let Some(options) = &interface.dhcp_options else {
            continue;
        };
        let field = format!("{path}.dhcpOptions");
        let mut seen = BTreeSet::new();
        for (i, private) in options.private_options.iter().enumerate() {
            let at = format!("{field}.privateOptions[{i}].option");
            if !PRIVATE_OPTIONS.contains(&private.option) {
                let detail = format!("{} is not private; use 224 to 254", private.option);
                found.push(input.invalid(&at, detail));
            } else if !seen.insert(private.option) {
                found.push(input.invalid(&at, "given twice; keep one"));
            }
        }
        for (i, server) in options.ntp_servers.iter().enumerate() {
            if server.parse::<Ipv4Addr>().is_err() {
                let detail = format!("{server:?} is no IPv4 address");
                found.push(input.invalid(&format!("{field}.ntpServers[{i}]"), detail));
            }
        }
    }
    found
}

fn interfaces<'a>(input: &Input<'a>) -> impl Iterator<Item = (String, &'a Interface)> + use<'a> {
    let interfaces = &input.spec.domain.devices.interfaces;
    let at = |i| format!("domain.devices.interfaces[{i}]");
    interfaces
        .iter()
        .enumerate()
        .map(move |(i, interface)| (at(i), interface))
}

fn network_of<'a>(input: &Input<'a>, interface: &Interface) -> Option<&'a Network> {
    input
        .spec
        .networks
        .iter()
        .find(|network| network.name == interface.name)
}
