//! The whole plan of one VMI.

use std::net::{IpAddr, Ipv4Addr};

use kubevirt_api::{
    VirtualMachineInstance,
    network::{Interface, InterfaceState, Network},
    vmi_status::VirtualMachineInstanceNetworkInterface,
};
use launcher_channel::{DhcpServer, Route};

use crate::{
    Bridge, Cidr, MacAddress, Observed, PlanError, Plumbing, PodInterface, Sysctl, Tap, bridge,
    masquerade::{self, Side},
    resolv_conf,
};

/// QEMU's user and group in a launcher pod.
const OWNER: u32 = 107;
/// What a tap device can have at most.
const MAX_QUEUES: u32 = 256;

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub plumbing: Plumbing,
    /// For the launcher, one for each in-pod bridge with IPv4.
    pub dhcp: Vec<DhcpServer>,
    /// For the domain, in the order of the VMI.
    pub interfaces: Vec<GuestInterface>,
    /// `status.interfaces` as known before any guest agent answers.
    pub status: Vec<VirtualMachineInstanceNetworkInterface>,
}

/// What the domain must say about one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestInterface {
    /// Name of the interface and its network in the VMI.
    pub name: String,
    pub tap: String,
    pub mac: MacAddress,
    pub mtu: u32,
    /// As the VMI says it; `None` is virtio.
    pub model: Option<String>,
    pub boot_order: Option<u64>,
    pub acpi_index: Option<i64>,
    pub pci_address: Option<String>,
    pub link: LinkState,
    /// Number of queues of a multi-queue device.
    pub queues: Option<u32>,
    /// The pod's own interface that the guest is reached through.
    pub pod_interface: String,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkState {
    Up,
    Down,
}

impl LinkState {
    fn as_str(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// How the guest is joined to the pod network.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Binding {
    Masquerade,
    Bridge,
}

/// Plans the network of a VMI, after defaults were filled in. A VMI without interfaces has an
/// empty plan; interfaces that are to be absent are left out.
pub fn plan(vmi: &VirtualMachineInstance, seen: &Observed) -> Result<Plan, PlanError> {
    let mut plan = Plan::default();
    let interfaces = vmi.spec.domain.devices.interfaces.iter().enumerate();
    let wanted =
        |(_, interface): &(usize, &Interface)| interface.state != Some(InterfaceState::Absent);
    for (position, interface) in interfaces.filter(wanted) {
        let binding = binding_of(interface)?;
        let network = network_of(vmi, interface)?;
        if !plan.interfaces.is_empty() {
            return Err(PlanError::SecondInterface {
                interface: interface.name.clone(),
            });
        }
        if interface.dhcp_options.is_some() {
            return Err(PlanError::DhcpOptionsNotSupported {
                interface: interface.name.clone(),
            });
        }
        let guest = guest_interface(vmi, seen, interface)?;
        match binding {
            Binding::Masquerade => {
                add_masquerade(&mut plan, vmi, seen, (&guest, interface, network))?;
            }
            Binding::Bridge => add_bridge(&mut plan, vmi, seen, (&guest, position))?,
        }
        plan.status.push(status(&guest, seen));
        plan.interfaces.push(guest);
    }
    Ok(plan)
}

fn binding_of(interface: &Interface) -> Result<Binding, PlanError> {
    match (&interface.masquerade, &interface.bridge) {
        (Some(_), _) => Ok(Binding::Masquerade),
        (None, Some(_)) => Ok(Binding::Bridge),
        (None, None) => Err(PlanError::BindingNotSupported {
            interface: interface.name.clone(),
            binding: name_of_binding(interface),
        }),
    }
}

/// The pod network that the interface is on; any other is refused.
fn network_of<'a>(
    vmi: &'a VirtualMachineInstance,
    interface: &Interface,
) -> Result<&'a Network, PlanError> {
    let network = vmi
        .spec
        .networks
        .iter()
        .find(|network| network.name == interface.name)
        .ok_or_else(|| PlanError::NoSuchNetwork {
            interface: interface.name.clone(),
        })?;
    if network.pod.is_none() {
        return Err(PlanError::NotThePodNetwork {
            network: network.name.clone(),
        });
    }
    Ok(network)
}

fn name_of_binding(interface: &Interface) -> String {
    let named = [
        (interface.sriov.is_some(), "sriov"),
        (
            interface.passt_binding.is_some() || interface.passt.is_some(),
            "passt",
        ),
        (interface.slirp.is_some(), "slirp"),
        (interface.macvtap.is_some(), "macvtap"),
    ];
    let core = named
        .iter()
        .find(|(used, _)| *used)
        .map(|(_, name)| (*name).to_owned());
    let plugin = || {
        interface
            .binding
            .as_ref()
            .map(|plugin| format!("{:?} plugin", plugin.name))
    };
    core.or_else(plugin).unwrap_or_else(|| "empty".to_owned())
}

fn add_masquerade(
    plan: &mut Plan,
    vmi: &VirtualMachineInstance,
    seen: &Observed,
    (guest, interface, network): (&GuestInterface, &Interface, &Network),
) -> Result<(), PlanError> {
    let pod = &seen.interface;
    let sides = masquerade::sides(network, pod)?;
    let bridge = Bridge {
        name: bridge_name(pod),
        mac: MacAddress::BRIDGE,
        mtu: pod.mtu,
        addresses: sides.iter().map(|side| side.gateway).collect(),
    };
    plan.plumbing.sysctls = masquerade::sysctls(&sides, &bridge.name);
    plan.plumbing.tables = masquerade::tables(interface, &sides, &pod.name, &bridge.name)?;
    let lease = sides.iter().find_map(Lease::behind);
    join(plan, vmi, seen, (guest, bridge, lease));
    Ok(())
}

fn add_bridge(
    plan: &mut Plan,
    vmi: &VirtualMachineInstance,
    seen: &Observed,
    (guest, position): (&GuestInterface, usize),
) -> Result<(), PlanError> {
    let pod = &seen.interface;
    let lease = pod.ipv4.map(|(address, prefix_length)| {
        let (router, routes) = bridge::routes(pod);
        Lease {
            server: bridge::server(position),
            address,
            prefix_length,
            router,
            routes,
        }
    });
    let bridge = Bridge {
        name: bridge_name(pod),
        mac: bridge::mac(pod),
        mtu: pod.mtu,
        addresses: lease
            .iter()
            .map(|lease| Cidr::v4(lease.server, 32))
            .collect(),
    };
    plan.plumbing.given.push(bridge::given(pod, &bridge.name)?);
    plan.plumbing.sysctls = bridge::sysctls(pod);
    join(plan, vmi, seen, (guest, bridge, lease));
    Ok(())
}

fn bridge_name(pod: &PodInterface) -> String {
    format!("k6t-{}", bridge::suffix(&pod.name))
}

/// The bridge with the guest's tap on it, and the server that gives the guest its address.
fn join(
    plan: &mut Plan,
    vmi: &VirtualMachineInstance,
    seen: &Observed,
    (guest, bridge, lease): (&GuestInterface, Bridge, Option<Lease>),
) {
    plan.plumbing.taps.push(Tap {
        name: guest.tap.clone(),
        bridge: bridge.name.clone(),
        mtu: bridge.mtu,
        owner: OWNER,
        queues: guest.queues.unwrap_or(1),
    });
    if let Some(lease) = lease {
        // The launcher answers DHCP without any capability.
        plan.plumbing.sysctls.push(Sysctl {
            name: "net/ipv4/ip_unprivileged_port_start".to_owned(),
            value: "0".to_owned(),
        });
        plan.dhcp
            .push(dhcp(vmi, seen, guest, (lease, &bridge.name)));
    }
    plan.plumbing.bridges.push(bridge);
}

fn guest_interface(
    vmi: &VirtualMachineInstance,
    seen: &Observed,
    interface: &Interface,
) -> Result<GuestInterface, PlanError> {
    let model = interface.model.clone().filter(|model| !model.is_empty());
    let virtio = model.as_deref().is_none_or(|model| model == "virtio");
    let multiqueue = vmi.spec.domain.devices.network_interface_multiqueue == Some(true);
    Ok(GuestInterface {
        name: interface.name.clone(),
        tap: "tap0".to_owned(),
        mac: guest_mac(interface, seen)?,
        mtu: seen.interface.mtu,
        model,
        boot_order: interface.boot_order,
        acpi_index: interface.acpi_index,
        pci_address: interface
            .pci_address
            .clone()
            .filter(|address| !address.is_empty()),
        link: match interface.state {
            Some(InterfaceState::Down) => LinkState::Down,
            _ => LinkState::Up,
        },
        queues: (multiqueue && virtio).then(|| vcpus(vmi).min(MAX_QUEUES)),
        pod_interface: seen.interface.name.clone(),
    })
}

fn guest_mac(interface: &Interface, seen: &Observed) -> Result<MacAddress, PlanError> {
    let Some(text) = interface
        .mac_address
        .as_deref()
        .filter(|text| !text.is_empty())
    else {
        return Ok(seen.interface.mac);
    };
    let bad = |problem| PlanError::BadMacAddress {
        interface: interface.name.clone(),
        value: text.to_owned(),
        problem,
    };
    let mac: MacAddress = text
        .parse()
        .map_err(|_| bad("is not six hexadecimal bytes"))?;
    let of_bridge = if interface.masquerade.is_some() {
        MacAddress::BRIDGE
    } else {
        bridge::mac(&seen.interface)
    };
    if mac == of_bridge || mac == MacAddress::BRIDGE {
        return Err(bad("is the address of the bridge in the pod"));
    }
    if !mac.is_unicast() {
        return Err(bad("is not a unicast address"));
    }
    Ok(mac)
}

/// Sockets, cores and threads; what is not said counts once.
fn vcpus(vmi: &VirtualMachineInstance) -> u32 {
    let Some(cpu) = &vmi.spec.domain.cpu else {
        return 1;
    };
    [cpu.sockets, cpu.cores, cpu.threads]
        .into_iter()
        .map(|count| count.unwrap_or(1).max(1))
        .fold(1, u32::saturating_mul)
}

/// The address that a guest gets, and what goes with it.
struct Lease {
    server: Ipv4Addr,
    address: Ipv4Addr,
    prefix_length: u8,
    router: Option<Ipv4Addr>,
    routes: Vec<Route>,
}

impl Lease {
    /// Of a guest behind translation; there is none for IPv6.
    fn behind(side: &Side) -> Option<Self> {
        let (IpAddr::V4(gateway), IpAddr::V4(address)) = (side.gateway.address, side.guest) else {
            return None;
        };
        Some(Self {
            server: gateway,
            address,
            prefix_length: side.gateway.prefix_length,
            router: Some(gateway),
            routes: Vec::new(),
        })
    }
}

fn dhcp(
    vmi: &VirtualMachineInstance,
    seen: &Observed,
    guest: &GuestInterface,
    (lease, bridge): (Lease, &str),
) -> DhcpServer {
    let namespace = vmi.metadata.namespace.as_deref().unwrap_or("default");
    DhcpServer {
        interface: bridge.to_owned(),
        client_mac: guest.mac.to_string(),
        server: lease.server,
        address: lease.address,
        prefix_length: lease.prefix_length,
        router: lease.router,
        dns: resolv_conf::name_servers(&seen.resolv_conf),
        search: resolv_conf::search(&seen.resolv_conf, namespace, vmi.spec.subdomain.as_deref()),
        routes: lease.routes,
        mtu: u16::try_from(guest.mtu).unwrap_or(u16::MAX),
        host_name: host_name(vmi),
    }
}

/// The first label of the host name, or of the VMI's name, in the 63 bytes of a label.
fn host_name(vmi: &VirtualMachineInstance) -> String {
    let own = vmi.spec.hostname.as_deref().filter(|name| !name.is_empty());
    let name = own.or(vmi.metadata.name.as_deref()).unwrap_or_default();
    let label = name.split('.').next().unwrap_or_default();
    let short: String = label.chars().take(63).collect();
    short.trim_end_matches('-').to_owned()
}

/// A guest is reached at the pod's addresses, translated or its own, so these are shown.
fn status(guest: &GuestInterface, seen: &Observed) -> VirtualMachineInstanceNetworkInterface {
    let pod = &seen.interface;
    let addresses = pod.addresses().into_iter();
    let addresses: Vec<_> = addresses.map(|one| one.address.to_string()).collect();
    VirtualMachineInstanceNetworkInterface {
        name: Some(guest.name.clone()),
        mac: Some(guest.mac.to_string()),
        ip_address: addresses.first().cloned(),
        ip_addresses: addresses,
        pod_interface_name: Some(guest.pod_interface.clone()),
        info_source: Some("domain".to_owned()),
        queue_count: Some(i32::try_from(guest.queues.unwrap_or(1)).unwrap_or(i32::MAX)),
        link_state: Some(guest.link.as_str().to_owned()),
        interface_name: None,
    }
}

#[cfg(test)]
mod tests;
