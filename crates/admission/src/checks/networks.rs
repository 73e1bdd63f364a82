//! Networks and interfaces, which are paired by name.

use std::{collections::BTreeSet, net::Ipv4Addr};

use cluster_config::Permission;
use kubevirt_api::disks::Disk;
use kubevirt_api::network::{self as wire, Interface, InterfaceState};
use model::{Binding, Network, PciAddress};
use validation::Violation;

use super::{
    disks::pci_address_problem,
    input::{Input, Occasion, given, repeated},
    names::{dns_label_problem, dns_subdomain_problem},
};

const MODELS: &[&str] = &[
    "virtio", "e1000", "e1000e", "igb", "ne2k_pci", "pcnet", "rtl8139",
];
const PRIVATE_OPTIONS: std::ops::RangeInclusive<i64> = 224..=254;
/// More than a guest has slots for: each is a request to the API server, again and again while one is missing.
const MAX_NETWORKS: usize = 64;
/// The gateway's address on the link of a masqueraded interface.
const RESERVED_MAC: [u8; 6] = [2, 0, 0, 0, 0, 0];

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
        match Network::all(network).count() {
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
        let Some(multus) = &network.multus else {
            continue;
        };
        let path = format!("networks[{i}].multus.networkName");
        if multus.network_name.is_empty() {
            let detail = "empty; name a NetworkAttachmentDefinition";
            found.push(input.required(&path, detail));
        } else if let Some(detail) = definition_problem(&multus.network_name) {
            found.push(input.invalid(&path, detail));
        }
    }
    if input.spec.networks.len() > MAX_NETWORKS {
        let detail = format!("more than {MAX_NETWORKS} networks; remove some");
        found.push(input.invalid("networks", detail));
    }
    found
}

/// Why no `NetworkAttachmentDefinition` has this name, with its namespace in front if it has one.
fn definition_problem(name: &str) -> Option<String> {
    let Some((namespace, name)) = name.split_once('/') else {
        return dns_subdomain_problem(name);
    };
    dns_label_problem(namespace).or_else(|| dns_subdomain_problem(name))
}

pub(super) fn single_pod(input: &Input<'_>) -> Vec<Violation> {
    let networks = &input.spec.networks;
    let all = networks.iter().flat_map(Network::all);
    let (pods, others): (Vec<_>, Vec<_>) = all
        .filter(|network| network.is_default())
        .partition(|network| matches!(network, Network::Pod(_)));
    let mut found = Vec::new();
    if pods.len() > 1 {
        let detail = "more than one pod network; keep one";
        found.push(input.duplicate("domain.devices.interfaces", detail));
    }
    if others.len() > 1 || (!pods.is_empty() && !others.is_empty()) {
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
        let is_valid = !interface.name.is_empty()
            && interface
                .name
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b));
        if !is_valid {
            let detail = format!(
                "{:?} has invalid characters; use letters, digits, - and _",
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

pub(super) fn removed_bindings(input: &Input<'_>) -> Vec<Violation> {
    if input.occasion == Occasion::Change {
        return Vec::new();
    }
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        for binding in Binding::all(interface) {
            if let Binding::Withdrawn(name) = binding {
                let detail = "this binding was removed; use masquerade: {}";
                found.push(input.invalid(&format!("{path}.{name}"), detail));
            }
        }
    }
    found
}

pub(super) fn bindings(input: &Input<'_>) -> Vec<Violation> {
    interfaces(input)
        .filter_map(|(path, interface)| {
            // Another rule refuses withdrawn ones, so all of them count as one.
            let (withdrawn, usable): (Vec<_>, Vec<_>) = Binding::all(interface)
                .partition(|binding| matches!(binding, Binding::Withdrawn(_)));
            match usable.len() + usize::from(!withdrawn.is_empty()) {
                1 => None,
                0 => Some(input.invalid(&path, "no binding; use masquerade: {}")),
                _ => Some(input.invalid(&path, "several bindings; choose one")),
            }
        })
        .collect()
}

/// Whether an interface is on the pod network; also true if its network is missing, which another
/// rule reports.
pub(super) fn is_on_pod_network(input: &Input<'_>, interface: &Interface) -> bool {
    network_of(input, interface).is_none_or(|network| {
        Network::all(network).all(|network| matches!(network, Network::Pod(_)))
    })
}

fn has(interface: &Interface, binding: Binding<'_>) -> bool {
    Binding::all(interface).any(|given| given == binding)
}

pub(super) fn masquerade(input: &Input<'_>) -> Vec<Violation> {
    interfaces(input)
        .filter(|(_, interface)| {
            has(interface, Binding::Masquerade) && !is_on_pod_network(input, interface)
        })
        .map(|(path, _)| {
            let detail = "supported on the pod network only; use bridge on others";
            input.invalid(&format!("{path}.masquerade"), detail)
        })
        .collect()
}

pub(super) fn bridge(input: &Input<'_>) -> Vec<Violation> {
    if input.config.bridge_on_pod_network == Permission::Allowed {
        return Vec::new();
    }
    interfaces(input)
        .filter(|(_, interface)| {
            has(interface, Binding::Bridge) && is_on_pod_network(input, interface)
        })
        .map(|(path, _)| {
            let detail =
                "this cluster does not permit bridges on the pod network; use masquerade: {}";
            input.invalid(&format!("{path}.bridge"), detail)
        })
        .collect()
}

pub(super) fn passt(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        if !has(interface, Binding::Passt) {
            continue;
        }
        let path = format!("{path}.passtBinding");
        found.extend(input.needs_gate(&path, "PasstBinding"));
        if !is_on_pod_network(input, interface) {
            let detail = "supported on the pod network only; use bridge on others";
            found.push(input.invalid(&path, detail));
        }
    }
    found
}

pub(super) fn models(input: &Input<'_>) -> Vec<Violation> {
    interfaces(input)
        .filter_map(|(path, interface)| {
            let model = interface.model.as_deref().unwrap_or_default();
            let choices = MODELS.join(", ");
            (!model.is_empty() && !MODELS.contains(&model)).then(|| {
                let detail = format!("{model:?} is unknown; use one of {choices}");
                input.not_supported(&format!("{path}.model"), detail)
            })
        })
        .collect()
}

pub(super) fn states(input: &Input<'_>) -> Vec<Violation> {
    interfaces(input)
        .filter_map(|(path, interface)| {
            let detail = state_problem(input, interface)?;
            Some(input.invalid(&format!("{path}.state"), detail))
        })
        .collect()
}

pub(super) fn pci_addresses(input: &Input<'_>) -> Vec<Violation> {
    let disks = input.spec.domain.devices.disks.iter();
    let of_disk = |disk: &Disk| {
        disk.disk
            .as_ref()?
            .pci_address
            .as_deref()
            .and_then(PciAddress::parse)
    };
    let mut used: BTreeSet<PciAddress> = disks.filter_map(of_disk).collect();
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        let Some(text) = interface.pci_address.as_deref() else {
            continue;
        };
        let detail = match PciAddress::parse(text) {
            None => pci_address_problem(text),
            Some(address) if used.insert(address) => continue,
            Some(address) => format!("{address} is the address of another device; choose another"),
        };
        found.push(input.invalid(&format!("{path}.pciAddress"), detail));
    }
    found
}

/// Networks by resource claim.
pub(super) fn claims(input: &Input<'_>) -> Vec<Violation> {
    let networks = &input.spec.networks;
    let has_claims = networks.iter().any(|one| one.resource_claim.is_some());
    let mut found = Vec::new();
    if has_claims && networks.iter().any(|one| one.multus.is_some()) {
        let detail = "networks by resourceClaim together with networks by multus; use one way";
        found.push(input.invalid("networks", detail));
    }
    let mut used = BTreeSet::new();
    for (i, network) in networks.iter().enumerate() {
        let Some(claim) = &network.resource_claim else {
            continue;
        };
        let path = format!("networks[{i}].resourceClaim");
        found.extend(input.needs_gate(&path, "NetworkDevicesWithDRA"));
        let interface = interfaces(input).find(|(_, one)| one.name == network.name);
        if let Some((at, interface)) = interface
            && !Binding::all(interface)
                .any(|binding| matches!(binding, Binding::Sriov | Binding::Plugin(_)))
        {
            let detail = "a network by resourceClaim needs sriov: {} or a binding plugin";
            found.push(input.invalid(&at, detail));
        }
        let name = given(claim.claim_name.as_deref());
        let request = given(claim.request_name.as_deref());
        for (field, value) in [("claimName", name), ("requestName", request)] {
            if value.is_none() {
                let detail = "empty; name the claim and the request in it";
                found.push(input.required(&format!("{path}.{field}"), detail));
            }
        }
        let own = &input.spec.resource_claims;
        if let Some(name) = name.filter(|name| own.iter().all(|claim| claim.name != *name)) {
            let detail = format!("no resource claim is named {name:?}; add it to resourceClaims");
            let field = input.at(&format!("{path}.claimName"));
            found.push(Violation::not_found(field, detail));
        }
        if let (Some(name), Some(request)) = (name, request)
            && !used.insert((name, request))
        {
            let detail = format!("request {request:?} of claim {name:?} is used twice");
            found.push(input.duplicate(&path, detail));
        }
    }
    found
}

fn state_problem(input: &Input<'_>, interface: &Interface) -> Option<String> {
    let state = interface.state.as_ref()?;
    match state {
        InterfaceState::Other(value) if !value.is_empty() => {
            Some(format!("{value:?} is unknown; use up, down or absent"))
        }
        InterfaceState::Up | InterfaceState::Down if has(interface, Binding::Sriov) => {
            Some("the link of an SR-IOV interface cannot be set; leave it out".to_owned())
        }
        InterfaceState::Absent => {
            let is_default = network_of(input, interface)
                .is_some_and(|network| Network::all(network).any(Network::is_default));
            (!has(interface, Binding::Bridge) || is_default).then(|| {
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
                    format!("{text:?} is not a MAC address; use the form 02:00:00:00:00:01");
                found.push(input.invalid(&field, detail));
            }
            Some(RESERVED_MAC) if has(interface, Binding::Masquerade) => {
                let detail = format!("{text} is the address of the gateway; use another one");
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

pub(super) fn dhcp_options(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        let Some(options) = &interface.dhcp_options else {
            continue;
        };
        let field = format!("{path}.dhcpOptions");
        let mut used = BTreeSet::new();
        for (i, private) in options.private_options.iter().enumerate() {
            let at = format!("{field}.privateOptions[{i}].option");
            if !PRIVATE_OPTIONS.contains(&private.option) {
                let detail = format!("{} is not private; use 224 to 254", private.option);
                found.push(input.invalid(&at, detail));
            } else if !used.insert(private.option) {
                found.push(input.invalid(&at, "repeated; keep one"));
            }
        }
        for (i, server) in options.ntp_servers.iter().enumerate() {
            if server.parse::<Ipv4Addr>().is_err() {
                let detail = format!("{server:?} is not an IPv4 address");
                found.push(input.invalid(&format!("{field}.ntpServers[{i}]"), detail));
            }
        }
    }
    found
}

pub(super) fn interfaces<'a>(
    input: &Input<'a>,
) -> impl Iterator<Item = (String, &'a Interface)> + use<'a> {
    let interfaces = &input.spec.domain.devices.interfaces;
    let at = |i| format!("domain.devices.interfaces[{i}]");
    interfaces
        .iter()
        .enumerate()
        .map(move |(i, interface)| (at(i), interface))
}

fn network_of<'a>(input: &Input<'a>, interface: &Interface) -> Option<&'a wire::Network> {
    input
        .spec
        .networks
        .iter()
        .find(|network| network.name == interface.name)
}
