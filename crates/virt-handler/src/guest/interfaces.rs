//! The interfaces in a VMI's status, from every source: pure.

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::{
    VirtualMachineInstance, annotations, vmi_status::VirtualMachineInstanceNetworkInterface,
};
use launcher_channel::{Agent, AgentInterface, InterfaceLink};
use model::{AllocatedDevices, Binding, DeviceAddress, Guest, LinkState, PciAddress};
use serde::Deserialize;

/// Limit of interfaces in the status that only the guest agent reports.
const MAX_GUEST_ONLY_INTERFACES: usize = 10;

const DOMAIN: &str = "domain";
const GUEST_AGENT: &str = "guest-agent";
const MULTUS_STATUS: &str = "multus-status";

/// The pod's interfaces, as the network plugin reports them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Attached {
    /// On the default network.
    primary: Option<String>,
    /// On secondary networks.
    secondary: BTreeSet<String>,
    /// Devices of the node in place of interfaces, by the interface's name.
    devices: BTreeMap<String, PciAddress>,
}

/// One network in the plugin's report.
#[derive(Debug, Deserialize)]
struct ReportedNetwork {
    #[serde(default)]
    interface: String,
    #[serde(default)]
    default: bool,
    #[serde(default, rename = "device-info")]
    device: Option<ReportedDevice>,
}

/// The device that a network plugin has configured.
#[derive(Debug, Deserialize)]
struct ReportedDevice {
    #[serde(default)]
    pci: Option<ReportedPci>,
}

#[derive(Debug, Deserialize)]
struct ReportedPci {
    #[serde(default, rename = "pci-address")]
    address: String,
}

impl Attached {
    /// From the pod's annotation; a missing or unreadable one reports nothing.
    pub(crate) fn of(pod: &Pod) -> Self {
        let annotations = pod.metadata.annotations.as_ref();
        let report = annotations.and_then(|all| all.get(annotations::CNI_NETWORK_STATUS));
        let networks = report.and_then(|text| serde_json::from_str(text).ok());
        let networks: Vec<ReportedNetwork> = networks.unwrap_or_default();
        let mut found = Self::default();
        for network in networks {
            let pci = network.device.and_then(|device| device.pci);
            let address = pci.and_then(|pci| PciAddress::parse(&pci.address));
            if let Some(address) = address {
                found.devices.insert(network.interface.clone(), address);
            }
            if network.default {
                found.primary = Some(network.interface).filter(|name| !name.is_empty());
            } else {
                found.secondary.insert(network.interface);
            }
        }
        found
    }

    /// The devices of the guest's SR-IOV interfaces, by interface: of the network plugin, or of a resource claim.
    pub(crate) fn virtual_functions(
        &self,
        guest: &Guest<'_>,
        allocated: &AllocatedDevices,
    ) -> BTreeMap<String, PciAddress> {
        let interfaces = guest.plugged_interfaces();
        let functions = interfaces.filter(|interface| interface.binding == Binding::Sriov);
        let found = functions.filter_map(|interface| {
            let name = interface.name();
            let networks = &guest.vmi.spec.networks;
            let network = networks.iter().find(|network| network.name == name);
            let claim = network.and_then(|network| network.resource_claim.as_ref());
            let device = match claim {
                None => *self.devices.get(&interface.pod_interface(self.primary()))?,
                Some(claim) => {
                    let (claim, request) = claim.names()?;
                    match allocated.of_claim(claim, request)? {
                        DeviceAddress::Pci(device) => device,
                        DeviceAddress::Mediated(_) | DeviceAddress::Usb(_) => return None,
                    }
                }
            };
            Some((name.to_owned(), device))
        });
        found.collect()
    }

    /// Whether the pod has an interface of this name on a secondary network.
    pub(super) fn has(&self, interface: &str) -> bool {
        self.secondary.contains(interface)
    }

    /// Name of the pod's interface on its default network.
    pub(crate) fn primary(&self) -> &str {
        let reported = self.primary.as_deref();
        reported.unwrap_or(model::PRIMARY_POD_INTERFACE)
    }
}

/// The links that the VMI asks for, by interface.
pub(crate) fn wanted_links(vmi: &VirtualMachineInstance) -> BTreeMap<String, InterfaceLink> {
    let guest = Guest::of(vmi);
    let wanted = guest.plugged_interfaces().map(|interface| {
        let link = match interface.link {
            LinkState::Down => InterfaceLink::Down,
            LinkState::Up | LinkState::Absent => InterfaceLink::Up,
        };
        (interface.name().to_owned(), link)
    });
    wanted.collect()
}

/// Whether the guest has an interface whose link is not what the VMI asks for.
pub(crate) fn has_other_links(
    vmi: &VirtualMachineInstance,
    now: &BTreeMap<String, InterfaceLink>,
) -> bool {
    let wanted = wanted_links(vmi);
    let mut known = now.iter();
    known.any(|(name, link)| wanted.get(name).is_some_and(|wanted| wanted != link))
}

/// Shows the links that the guest has.
pub(super) fn set_links(
    all: &mut [VirtualMachineInstanceNetworkInterface],
    now: &BTreeMap<String, InterfaceLink>,
) {
    for interface in all {
        let name = interface.name.as_ref();
        if let Some(link) = name.and_then(|name| now.get(name)) {
            interface.link_state = Some(match link {
                InterfaceLink::Up => "up".to_owned(),
                InterfaceLink::Down => "down".to_owned(),
            });
        }
    }
}

/// What an interface is known from, in the API's order. `plugged` says which of those that come and go the guest has.
fn sources(
    interface: &VirtualMachineInstanceNetworkInterface,
    agent: Option<&AgentInterface>,
    attached: &Attached,
    plugged: &BTreeMap<&str, bool>,
) -> String {
    let in_pod = interface.pod_interface_name.as_ref();
    let is_attached = in_pod.is_some_and(|name| attached.secondary.contains(name));
    let name = interface.name.as_deref();
    let in_guest = name.is_none_or(|name| plugged.get(name) != Some(&false));
    let all = [
        in_guest.then_some(DOMAIN),
        agent.map(|_| GUEST_AGENT),
        is_attached.then_some(MULTUS_STATUS),
    ];
    let all: Vec<&str> = all.into_iter().flatten().collect();
    all.join(", ")
}

/// Shows interfaces that come and go as long as the guest or its pod has them. Returns which of them the guest has.
fn show_plugged<'a>(
    vmi: &'a VirtualMachineInstance,
    all: &mut Vec<VirtualMachineInstanceNetworkInterface>,
    attached: &Attached,
    live: &BTreeMap<String, InterfaceLink>,
) -> BTreeMap<&'a str, bool> {
    let guest = Guest::of(vmi);
    let mut plugged = BTreeMap::new();
    for interface in guest.interfaces.iter().filter(|one| one.is_pluggable()) {
        let name = interface.name();
        let in_pod = model::pod_interface_name(name);
        let in_guest = live.contains_key(name);
        plugged.insert(name, in_guest);
        let is_it =
            |one: &VirtualMachineInstanceNetworkInterface| one.name.as_deref() == Some(name);
        if !in_guest && !attached.has(&in_pod) {
            all.retain(|one| !is_it(one));
        } else if !all.iter().any(is_it) {
            let mut before = vmi.status.iter().flat_map(|status| &status.interfaces);
            let before = before.find(|one| is_it(one)).cloned();
            all.push(
                before.unwrap_or_else(|| VirtualMachineInstanceNetworkInterface {
                    name: Some(name.to_owned()),
                    mac: interface.spec.mac_address.clone(),
                    pod_interface_name: Some(in_pod),
                    ..VirtualMachineInstanceNetworkInterface::default()
                }),
            );
        }
    }
    plugged
}

/// The domain's interfaces, completed with the guest agent's report, and those that only the agent
/// reports. `live` are those that the running domain has, if the launcher says so.
pub(super) fn list(
    vmi: &VirtualMachineInstance,
    domain: &[VirtualMachineInstanceNetworkInterface],
    agent: Option<&Agent>,
    attached: &Attached,
    live: Option<&BTreeMap<String, InterfaceLink>>,
) -> Vec<VirtualMachineInstanceNetworkInterface> {
    let reported = agent.map_or(&[][..], |agent| &agent.interfaces);
    let mut all = domain.to_vec();
    let plugged = live.map_or_else(BTreeMap::new, |live| {
        show_plugged(vmi, &mut all, attached, live)
    });
    for known in &mut all {
        known.info_source = Some(sources(known, None, attached, &plugged));
    }
    let mut guest_only = Vec::new();
    for interface in reported {
        let same = |one: &&mut VirtualMachineInstanceNetworkInterface| {
            let mac = one.mac.as_ref().map(|mac| mac.to_lowercase());
            mac.is_some() && mac == interface.mac
        };
        match all.iter_mut().find(same) {
            Some(known) => {
                known.interface_name = Some(interface.name.clone());
                known.info_source = Some(sources(known, Some(interface), attached, &plugged));
                // Behind address translation nothing outside reaches the guest's own address.
                if !is_masqueraded(vmi, known.name.as_deref()) {
                    known.ip_addresses.clone_from(&interface.addresses);
                    known.ip_address = interface.addresses.first().cloned();
                }
            }
            None if guest_only.len() < MAX_GUEST_ONLY_INTERFACES => {
                guest_only.push(guest_only_interface(interface));
            }
            None => {}
        }
    }
    all.extend(guest_only);
    all
}

fn is_masqueraded(vmi: &VirtualMachineInstance, name: Option<&str>) -> bool {
    let interfaces = &vmi.spec.domain.devices.interfaces;
    let found = interfaces
        .iter()
        .find(|one| Some(one.name.as_str()) == name);
    found.is_some_and(|interface| interface.masquerade.is_some())
}

fn guest_only_interface(interface: &AgentInterface) -> VirtualMachineInstanceNetworkInterface {
    VirtualMachineInstanceNetworkInterface {
        mac: interface.mac.clone(),
        ip_address: interface.addresses.first().cloned(),
        ip_addresses: interface.addresses.clone(),
        interface_name: Some(interface.name.clone()),
        info_source: Some(GUEST_AGENT.to_owned()),
        ..VirtualMachineInstanceNetworkInterface::default()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn vmi() -> VirtualMachineInstance {
        serde_json::from_value(json!({"spec": {"domain": {"devices": {"interfaces": [
            {"name": "default", "masquerade": {}}, {"name": "lan", "bridge": {}},
        ]}}}}))
        .unwrap()
    }

    fn domain(name: &str, mac: &str) -> VirtualMachineInstanceNetworkInterface {
        VirtualMachineInstanceNetworkInterface {
            name: Some(name.to_owned()),
            mac: Some(mac.to_owned()),
            ip_address: Some("10.244.0.5".to_owned()),
            ip_addresses: vec!["10.244.0.5".to_owned()],
            info_source: Some("domain".to_owned()),
            ..VirtualMachineInstanceNetworkInterface::default()
        }
    }

    fn reported(name: &str, mac: &str, address: &str) -> AgentInterface {
        AgentInterface {
            name: name.to_owned(),
            mac: Some(mac.to_owned()),
            addresses: vec![address.to_owned()],
        }
    }

    #[test]
    fn agent_adds_names_and_addresses_except_behind_masquerade() {
        let agent = Agent {
            interfaces: vec![
                reported("eth1", "02:00:00:00:00:0b", "192.168.1.7"),
                reported("eth0", "02:00:00:00:00:0a", "10.0.2.2"),
                reported("docker0", "02:42:00:00:00:01", "172.17.0.1"),
            ],
            ..Agent::default()
        };
        let known = [
            domain("default", "02:00:00:00:00:0A"),
            domain("lan", "02:00:00:00:00:0b"),
        ];
        let all = list(&vmi(), &known, Some(&agent), &Attached::default(), None);
        let lines: Vec<_> = all
            .iter()
            .map(|one| {
                let text = |text: &Option<String>| text.clone().unwrap_or_default();
                [
                    &one.name,
                    &one.interface_name,
                    &one.ip_address,
                    &one.info_source,
                ]
                .map(text)
                .join(" ")
            })
            .collect();
        assert_eq!(
            lines,
            [
                "default eth0 10.244.0.5 domain, guest-agent",
                "lan eth1 192.168.1.7 domain, guest-agent",
                " docker0 172.17.0.1 guest-agent",
            ]
        );
        assert_eq!(
            list(&vmi(), &known, None, &Attached::default(), None),
            known
        );
    }

    #[test]
    fn number_of_guest_only_interfaces_is_bounded() {
        let agent = Agent {
            interfaces: vec![reported("x", "02:00:00:00:00:ff", "10.0.0.1"); 64],
            ..Agent::default()
        };
        assert_eq!(
            list(&vmi(), &[], Some(&agent), &Attached::default(), None).len(),
            MAX_GUEST_ONLY_INTERFACES
        );
    }

    #[test]
    fn device_of_an_interface_is_that_of_the_plugins_report_or_of_its_claim() {
        let interface = |network: &str| json!({"name": network, "sriov": {}});
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {
            "domain": {"devices": {"interfaces": [interface("a"), interface("b"), interface("c"),
                {"name": "d", "bridge": {}}, interface("e"), interface("f")]}},
            "networks": [
                {"name": "e", "resourceClaim": {"claimName": "ports", "requestName": "port"}},
                {"name": "f", "resourceClaim": {"claimName": "ports", "requestName": "other"}},
            ],
        }}))
        .unwrap();
        let report = |network: &str, address: &str| {
            json!({
                "name": "ns/n",
                "interface": model::pod_interface_name(network),
                "device-info": {"type": "pci", "version": "1.0.0", "pci": {"pci-address": address}},
            })
        };
        let reports = json!([
            {"name": "cni", "interface": "eth0", "default": true},
            report("b", "0000:65:02.1"),
            report("a", "0000:65:02.0"),
            report("c", "../../65:02.2"),
            report("d", "0000:65:02.3"),
            report("f", "0000:65:02.4"),
            {"name": "ns/n", "interface": "net9", "device-info": {"type": "memif"}},
        ]);
        let annotations = json!({annotations::CNI_NETWORK_STATUS: reports.to_string()});
        let pod = serde_json::from_value(json!({"metadata": {"annotations": annotations}}));
        let port = PciAddress::parse("0000:66:02.0").map(DeviceAddress::Pci);
        let claimed = AllocatedDevices::default().with_claimed("ports", "port", port.unwrap());
        let found = Attached::of(&pod.unwrap()).virtual_functions(&Guest::of(&vmi), &claimed);
        let found: Vec<_> = found
            .iter()
            .map(|(name, address)| format!("{name} {address}"))
            .collect();
        assert_eq!(
            found,
            ["a 0000:65:02.0", "b 0000:65:02.1", "e 0000:66:02.0"]
        );
    }

    #[test]
    fn secondary_networks_that_the_plugin_reports_are_named() {
        let pod = |text: &str| -> Pod {
            let annotations = json!({annotations::CNI_NETWORK_STATUS: text});
            serde_json::from_value(json!({"metadata": {"annotations": annotations}})).unwrap()
        };
        let report = json!([
            {"name": "default", "interface": "eth0", "ips": ["10.244.0.5"], "default": true, "dns": {}},
            {"name": "ns/lan", "interface": "podabc", "mac": "02:00:00:00:00:0b", "dns": {}},
        ]);
        let attached = Attached::of(&pod(&report.to_string()));
        let in_pod = |name: &str, mac: &str, pod: &str| VirtualMachineInstanceNetworkInterface {
            pod_interface_name: Some(pod.to_owned()),
            ..domain(name, mac)
        };
        let known = [
            in_pod("default", "02:00:00:00:00:0a", "eth0"),
            in_pod("lan", "02:00:00:00:00:0b", "podabc"),
        ];
        let agent = Agent {
            interfaces: vec![reported("eth1", "02:00:00:00:00:0b", "192.168.1.7")],
            ..Agent::default()
        };
        let found = |agent, attached| {
            let all = list(&vmi(), &known, agent, attached, None);
            all.into_iter()
                .filter_map(|one| one.info_source)
                .collect::<Vec<_>>()
        };
        assert_eq!(
            found(Some(&agent), &attached),
            ["domain", "domain, guest-agent, multus-status"]
        );
        assert_eq!(found(None, &attached), ["domain", "domain, multus-status"]);
        assert_eq!(attached.primary(), "eth0");
        let other = json!([{"name": "default", "interface": "ovn-udn1", "default": true}]);
        assert_eq!(Attached::of(&pod(&other.to_string())).primary(), "ovn-udn1");
        assert_eq!(Attached::default().primary(), "eth0");
        for unreadable in ["", "x", "{}", "[1]"] {
            assert_eq!(Attached::of(&pod(unreadable)), Attached::default());
        }
        assert_eq!(Attached::of(&Pod::default()), Attached::default());
    }

    #[test]
    fn interface_that_comes_or_goes_is_shown_while_guest_or_pod_has_it() {
        let lan = model::pod_interface_name("lan");
        let vmi = |state: Option<&str>| -> VirtualMachineInstance {
            let shown = json!({"name": "lan", "mac": "02:00:00:00:00:0b", "podInterfaceName": lan});
            serde_json::from_value(json!({
                "spec": {
                    "domain": {"devices": {"interfaces": [
                        {"name": "default", "masquerade": {}},
                        {"name": "lan", "bridge": {}, "state": state},
                    ]}},
                    "networks": [
                        {"name": "default", "pod": {}},
                        {"name": "lan", "multus": {"networkName": "n"}},
                    ],
                },
                "status": {"interfaces": [shown]},
            }))
            .unwrap()
        };
        let pod = |has_it: bool| -> Attached {
            let secondary = has_it.then(|| lan.clone()).into_iter().collect();
            Attached {
                secondary,
                ..Attached::default()
            }
        };
        let up = |name: &str| (name.to_owned(), InterfaceLink::Up);
        let prepared = |has_it: bool| {
            let mut all = vec![domain("default", "02:00:00:00:00:0a")];
            let in_pod = VirtualMachineInstanceNetworkInterface {
                pod_interface_name: Some(lan.clone()),
                ..domain("lan", "02:00:00:00:00:0b")
            };
            all.extend(has_it.then_some(in_pod));
            all
        };
        for (state, is_prepared, in_pod, in_guest, expected) in [
            (None, true, true, true, Some("domain, multus-status")),
            (None, false, true, false, Some("multus-status")),
            (None, true, true, false, Some("multus-status")),
            (None, false, false, false, None),
            (
                Some("absent"),
                false,
                true,
                true,
                Some("domain, multus-status"),
            ),
            (Some("absent"), false, false, true, Some("domain")),
            (Some("absent"), false, true, false, Some("multus-status")),
            (Some("absent"), true, false, false, None),
        ] {
            let mut live = BTreeMap::from([up("default")]);
            live.extend(in_guest.then(|| up("lan")));
            let all = list(
                &vmi(state),
                &prepared(is_prepared),
                None,
                &pod(in_pod),
                Some(&live),
            );
            assert_eq!(all[0].info_source.as_deref(), Some("domain"));
            let found = all.get(1).and_then(|one| one.info_source.as_deref());
            assert_eq!(
                found, expected,
                "{state:?} {is_prepared} {in_pod} {in_guest}"
            );
            let mac = all.get(1).and_then(|one| one.mac.as_deref());
            assert_eq!(mac, expected.map(|_| "02:00:00:00:00:0b"));
        }
    }

    #[test]
    fn links_that_differ_are_changed_and_the_present_ones_are_shown() {
        use InterfaceLink::{Down, Up};
        let vmi = |state: serde_json::Value| -> VirtualMachineInstance {
            let interfaces = json!([
                {"name": "default", "masquerade": {}, "state": state},
                {"name": "gone", "bridge": {}, "state": "absent"},
            ]);
            let devices = json!({"interfaces": interfaces});
            serde_json::from_value(json!({"spec": {"domain": {"devices": devices}}})).unwrap()
        };
        let now = |name: &str, link| BTreeMap::from([(name.to_owned(), link)]);
        for (state, links, expected) in [
            (json!("down"), now("default", Up), true),
            (json!("down"), now("default", Down), false),
            (json!("up"), now("default", Down), true),
            (json!(null), now("default", Down), true),
            (json!(null), now("default", Up), false),
            // An earlier launcher, and an interface that the VMI does not have.
            (json!("down"), BTreeMap::new(), false),
            (json!("up"), now("gone", Down), false),
            (json!("up"), now("other", Down), false),
        ] {
            assert_eq!(
                has_other_links(&vmi(state.clone()), &links),
                expected,
                "{state}"
            );
        }
        let mut shown = [
            domain("default", "02:00:00:00:00:0a"),
            domain("lan", "02:00:00:00:00:0b"),
        ];
        set_links(&mut shown, &now("lan", Down));
        let shown = shown.map(|one| one.link_state);
        assert_eq!(shown, [None, Some("down".to_owned())]);
    }
}
