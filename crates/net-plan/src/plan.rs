//! The whole plan of one guest.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use kubevirt_api::{
    RUNTIME_USER, network::PodNetwork, vmi_status::VirtualMachineInstanceNetworkInterface,
};
use launcher_channel::{DhcpServer, Ipv6Router, Ipv6Server, PasstServer, Route};
use model::{Attachment, Binding, Guest, Interface, Network, Supported, Unsupported};

use crate::interface::link_state;
use crate::{
    Bridge, Cidr, MacAddress, Observed, PlanError, Plumbing, PodInterface, SharedAddress, Sysctl,
    Tap, bridge, dhcp_options,
    guest_mac::{self, OnBridge},
    masquerade::{self, Side},
    passt, plugin, resolv_conf,
};

#[derive(Debug, Clone, Default, PartialEq)]
pub struct Plan {
    pub plumbing: Plumbing,
    /// For the launcher, one for each in-pod bridge with IPv4.
    pub dhcp: Vec<DhcpServer>,
    /// The same for IPv6.
    pub ipv6: Vec<Ipv6Server>,
    /// For the launcher, one for each interface with this binding.
    pub passt: Vec<PasstServer>,
    /// For the domain, in the order of the VMI.
    pub interfaces: Vec<GuestInterface>,
    /// `status.interfaces` before the guest agent reports.
    pub status: Vec<VirtualMachineInstanceNetworkInterface>,
}

/// The facts that the domain needs about one interface.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct GuestInterface {
    /// Name of the interface and its network in the VMI.
    pub name: String,
    /// Its end in the pod; passt has none.
    pub tap: Option<String>,
    pub mac: MacAddress,
    pub mtu: u32,
    /// Number of queues of a multi-queue device.
    pub queues: Option<u32>,
}

impl Plan {
    /// The guest's interfaces that share their hardware address with the pod's, so that no other pod on the same
    /// link can have it.
    pub fn bound_interfaces(&self) -> impl Iterator<Item = &str> {
        let is_bound = |interface: &&GuestInterface| {
            let mut shared = self.plumbing.shared_addresses.iter();
            shared.any(|one| interface.tap.as_ref() == Some(&one.tap))
        };
        let bound = self.interfaces.iter().filter(is_bound);
        bound.map(|interface| interface.name.as_str())
    }

    /// The primary interface comes first.
    fn add_status(
        &mut self,
        interface: &Interface<'_>,
        status: VirtualMachineInstanceNetworkInterface,
    ) {
        if interface.is_primary() {
            self.status.insert(0, status);
        } else {
            self.status.push(status);
        }
    }
}

/// Names of the pod's interfaces that the guest's are connected to; `primary` is that on the default
/// network.
pub fn pod_interfaces(guest: &Guest<'_>, primary: &str) -> Vec<String> {
    let interfaces = guest.plugged_interfaces();
    interfaces
        .map(|interface| interface.pod_interface(primary))
        .collect()
}

/// Plans the network of a guest, after defaults were filled in. A guest without interfaces has an
/// empty plan; absent interfaces are left out.
pub fn plan(guest: &Supported<'_>, observed: &Observed) -> Result<Plan, PlanError> {
    plan_guest(guest, observed)
}

fn plan_guest(guest: &Guest<'_>, observed: &Observed) -> Result<Plan, PlanError> {
    let mut plan = Plan::default();
    for interface in guest.plugged_interfaces() {
        let network = interface.network.ok_or_else(|| PlanError::NoSuchNetwork {
            interface: interface.name().to_owned(),
        })?;
        let mut known = plan.status.iter();
        if known.any(|one| one.name.as_deref() == Some(interface.name())) {
            return Err(PlanError::SecondInterface {
                interface: interface.name().to_owned(),
            });
        }
        if interface.binding == Binding::Sriov {
            plan.status.push(virtual_function(interface, network)?);
            continue;
        }
        let plugin = plugin::of(interface, observed)?;
        let attachment = plugin.map(|plugin| plugin.attachment);
        if attachment == Some(Attachment::Sidecar) {
            let status = plugin::sidecar_status(guest, interface, network, observed)?;
            plan.add_status(interface, status);
            continue;
        }
        let pod = pod_interface(interface, network, observed)?;
        let tap = match interface.binding {
            Binding::Passt => None,
            _ => Some(plugin::tap(plugin, interface, pod, observed)?),
        };
        let on_bridge = match (interface.binding, attachment) {
            (Binding::Bridge, _) | (_, Some(Attachment::ManagedTap)) => OnBridge::Yes,
            _ => OnBridge::No,
        };
        let device = guest_interface(guest, pod, interface, tap, on_bridge)?;
        let connection = Connection {
            guest,
            pod,
            resolv_conf: &observed.resolv_conf,
            interface,
            device: &device,
        };
        match (interface.binding, network) {
            (Binding::Masquerade, Network::Pod(settings)) => {
                connection.add_masquerade(&mut plan, settings)?;
            }
            (Binding::Bridge, _) => connection.add_bridge(&mut plan)?,
            (Binding::Passt, Network::Pod(_)) => connection.add_passt(&mut plan)?,
            (Binding::Masquerade | Binding::Passt, _) => {
                return Err(PlanError::OnlyOnPodNetwork {
                    field: interface.field(interface.binding.member()),
                });
            }
            (Binding::Plugin(_), _) if attachment == Some(Attachment::ManagedTap) => {
                connection.add_managed_tap(&mut plan)?;
            }
            // The network plugin has made the tap.
            (Binding::Plugin(_), _) => {}
            (Binding::Withdrawn(_), _) => return Err(Unsupported::binding(interface).into()),
            (Binding::Sriov | Binding::Missing, _) => {
                return Err(PlanError::Missing {
                    field: interface.field("masquerade"),
                });
            }
        }
        let status = connection.status();
        plan.add_status(interface, status);
        plan.interfaces.push(device);
    }
    Ok(plan)
}

/// The status of an interface that is a device of the node: the network plugin has configured it, and the pod
/// has nothing to plumb.
fn virtual_function(
    interface: &Interface<'_>,
    network: Network<'_>,
) -> Result<VirtualMachineInstanceNetworkInterface, PlanError> {
    match network {
        Network::Multus(multus) if multus.default != Some(true) => {}
        Network::ResourceClaim(_) => {}
        Network::Missing => {
            return Err(Unsupported::network(interface.name(), network).into());
        }
        Network::Multus(_) | Network::Pod(_) => {
            return Err(PlanError::NotOnPodNetwork {
                field: interface.field(interface.binding.member()),
            });
        }
    }
    let mac = interface.spec.mac_address.as_ref();
    Ok(VirtualMachineInstanceNetworkInterface {
        name: Some(interface.name().to_owned()),
        mac: mac.filter(|mac| !mac.is_empty()).cloned(),
        pod_interface_name: Some(interface.pod_interface("")),
        info_source: Some("domain".to_owned()),
        ..VirtualMachineInstanceNetworkInterface::default()
    })
}

/// An interface of the guest and the pod's interface that it is connected to.
struct Connection<'a> {
    guest: &'a Guest<'a>,
    pod: &'a PodInterface,
    resolv_conf: &'a str,
    interface: &'a Interface<'a>,
    device: &'a GuestInterface,
}

impl Connection<'_> {
    fn add_masquerade(&self, plan: &mut Plan, settings: &PodNetwork) -> Result<(), PlanError> {
        let pod = self.pod;
        let sides = masquerade::sides(self.interface.name(), settings, pod)?;
        let leases = Leases {
            ipv4: sides.iter().find_map(Lease::behind),
            ipv6: sides.iter().find_map(Ipv6Lease::behind),
        };
        let router = leases.ipv6.as_ref().map(|_| masquerade::router());
        let gateways = sides.iter().map(|side| side.gateway);
        let bridge = Bridge {
            name: bridge_name(pod),
            mac: MacAddress::BRIDGE,
            mtu: pod.mtu,
            addresses: gateways.chain(router).collect(),
        };
        let sysctls = masquerade::sysctls(&sides, &bridge.name);
        plan.plumbing.sysctls.extend(sysctls);
        let tables = masquerade::tables(self.interface.spec, &sides, &pod.name, &bridge.name)?;
        plan.plumbing.tables.extend(tables);
        self.connect(plan, bridge, leases);
        Ok(())
    }

    fn add_bridge(&self, plan: &mut Plan) -> Result<(), PlanError> {
        let pod = self.pod;
        let lease = pod.ipv4.map(|(address, prefix_length)| {
            let (router, routes) = bridge::routes(pod);
            Lease {
                server: bridge::server(self.interface.index),
                address,
                prefix_length,
                router,
                routes,
            }
        });
        let leases = Leases {
            ipv4: lease,
            ipv6: Ipv6Lease::of_pod(pod),
        };
        self.hand_over(plan, leases)
    }

    /// As by a bridge, but it is up to the binding how the guest gets its addresses.
    fn add_managed_tap(&self, plan: &mut Plan) -> Result<(), PlanError> {
        let leases = Leases {
            ipv4: None,
            ipv6: None,
        };
        self.hand_over(plan, leases)
    }

    /// Hands the pod's interface over to the guest.
    fn hand_over(&self, plan: &mut Plan, leases: Leases) -> Result<(), PlanError> {
        let pod = self.pod;
        let server = leases.ipv4.as_ref().map(|lease| lease.server);
        let bridge = Bridge {
            name: bridge_name(pod),
            mac: bridge::mac(pod),
            mtu: pod.mtu,
            addresses: server
                .map(|server| Cidr::v4(server, 32))
                .into_iter()
                .collect(),
        };
        let given = bridge::given(pod, &bridge.name, self.device.mac)?;
        if let (true, Some(tap)) = (pod.receives_own_only, &self.device.tap) {
            plan.plumbing.shared_addresses.push(SharedAddress {
                mac: given.mac,
                port: given.renamed.clone(),
                tap: tap.clone(),
            });
        }
        plan.plumbing.given.push(given);
        plan.plumbing.sysctls.extend(bridge::sysctls(pod));
        self.connect(plan, bridge, leases);
        Ok(())
    }

    fn add_passt(&self, plan: &mut Plan) -> Result<(), PlanError> {
        let server = passt::server(self.interface, self.pod)?;
        plan.passt.push(server);
        let sysctls = [unprivileged_ports(), unprivileged_echo()];
        plan.plumbing.sysctls.extend(sysctls);
        Ok(())
    }

    /// Adds the bridge with the guest's tap on it, and the DHCP servers for the guest's addresses.
    fn connect(&self, plan: &mut Plan, bridge: Bridge, leases: Leases) {
        let tap = self.device.tap.as_ref().map(|name| Tap {
            name: name.clone(),
            bridge: bridge.name.clone(),
            mtu: bridge.mtu,
            owner: RUNTIME_USER,
            queues: self.device.queues.unwrap_or(1),
        });
        plan.plumbing.taps.extend(tap);
        if let Some(lease) = leases.ipv4 {
            plan.plumbing.sysctls.push(unprivileged_ports());
            plan.dhcp.push(self.dhcp_server(&bridge.name, lease));
        }
        if let Some(lease) = leases.ipv6 {
            let server = self.ipv6_server(lease);
            plan.plumbing.taps.push(Tap {
                name: server.tap.clone(),
                bridge: bridge.name.clone(),
                mtu: bridge.mtu,
                owner: RUNTIME_USER,
                queues: 1,
            });
            plan.ipv6.push(server);
        }
        plan.plumbing.bridges.push(bridge);
    }

    fn dhcp_server(&self, bridge: &str, lease: Lease) -> DhcpServer {
        let options = dhcp_options::of(self.interface.spec.dhcp_options.as_ref());
        DhcpServer {
            interface: bridge.to_owned(),
            client_mac: self.device.mac.to_string(),
            server: lease.server,
            address: lease.address,
            prefix_length: lease.prefix_length,
            router: lease.router,
            dns: resolv_conf::name_servers(self.resolv_conf),
            search: self.search(),
            routes: lease.routes,
            mtu: u16::try_from(self.device.mtu).unwrap_or(u16::MAX),
            host_name: self.guest.hostname(),
            boot: options.boot,
            ntp: options.ntp,
            private: options.private,
        }
    }

    fn ipv6_server(&self, lease: Ipv6Lease) -> Ipv6Server {
        Ipv6Server {
            tap: format!("ra-{}", bridge::suffix(&self.pod.name)),
            client_mac: self.device.mac.to_string(),
            mac: server_mac(self.device.mac).to_string(),
            router: lease.router,
            address: lease.address,
            prefix_length: lease.prefix_length,
            dns: resolv_conf::ipv6_name_servers(self.resolv_conf),
            search: self.search(),
            mtu: u16::try_from(self.device.mtu).unwrap_or(u16::MAX),
        }
    }

    /// The guest's search domains.
    fn search(&self) -> Vec<String> {
        let vmi = self.guest.vmi;
        let namespace = vmi.metadata.namespace.as_deref().unwrap_or("default");
        resolv_conf::search(self.resolv_conf, namespace, vmi.spec.subdomain.as_deref())
    }

    /// A guest is reachable at the pod's addresses, translated or its own.
    fn status(&self) -> VirtualMachineInstanceNetworkInterface {
        let pod = self.pod;
        let addresses = pod.addresses().into_iter();
        let addresses: Vec<_> = addresses.map(|one| one.address.to_string()).collect();
        let queues = self.device.queues.unwrap_or(1);
        VirtualMachineInstanceNetworkInterface {
            name: Some(self.device.name.clone()),
            mac: Some(self.device.mac.to_string()),
            ip_address: addresses.first().cloned(),
            ip_addresses: addresses,
            pod_interface_name: Some(pod.name.clone()),
            info_source: Some("domain".to_owned()),
            queue_count: Some(i32::try_from(queues).unwrap_or(i32::MAX)),
            link_state: Some(link_state(self.interface).to_owned()),
            interface_name: None,
        }
    }
}

/// The launcher serves DHCP, and passt the ports of the guest, without any capability.
fn unprivileged_ports() -> Sysctl {
    Sysctl {
        name: "net/ipv4/ip_unprivileged_port_start".to_owned(),
        value: "0".to_owned(),
    }
}

/// passt sends the echo messages of the guest's pings.
fn unprivileged_echo() -> Sysctl {
    Sysctl {
        name: "net/ipv4/ping_group_range".to_owned(),
        value: format!("{RUNTIME_USER} {RUNTIME_USER}"),
    }
}

fn bridge_name(pod: &PodInterface) -> String {
    format!("k6t-{}", bridge::suffix(&pod.name))
}

/// The observed interface of the pod that belongs to an interface of the guest.
fn pod_interface<'a>(
    interface: &Interface<'_>,
    network: Network<'_>,
    observed: &'a Observed,
) -> Result<&'a PodInterface, PlanError> {
    let name = interface.pod_interface(&observed.primary);
    let mut all = observed.interfaces.iter();
    match (all.find(|one| one.name == name), network) {
        (_, Network::ResourceClaim(_) | Network::Missing) => {
            Err(Unsupported::network(interface.name(), network).into())
        }
        (Some(found), _) => Ok(found),
        (None, _) => Err(PlanError::NotAttached {
            interface: interface.name().to_owned(),
            network: match network {
                Network::Multus(multus) => multus.network_name.clone(),
                _ => interface.name().to_owned(),
            },
            pod_interface: name,
        }),
    }
}

fn guest_interface(
    guest: &Guest<'_>,
    pod: &PodInterface,
    interface: &Interface<'_>,
    tap: Option<String>,
    on_bridge: OnBridge,
) -> Result<GuestInterface, PlanError> {
    Ok(GuestInterface {
        name: interface.name().to_owned(),
        tap,
        mac: guest_mac::of(guest, interface, pod, on_bridge)?,
        mtu: pod.mtu,
        queues: guest.queues(interface),
    })
}

/// The hardware address of the server for IPv6, which has a link of its own. It differs from that of the guest,
/// the bridge and the pod.
fn server_mac(guest: MacAddress) -> MacAddress {
    let mut mac = guest;
    mac.0[0] = (mac.0[0] ^ 0x80) | 0x02;
    mac
}

/// What a guest gets by DHCP.
struct Leases {
    ipv4: Option<Lease>,
    ipv6: Option<Ipv6Lease>,
}

/// The guest's address, and the other values of its DHCP lease.
struct Lease {
    server: Ipv4Addr,
    address: Ipv4Addr,
    prefix_length: u8,
    router: Option<Ipv4Addr>,
    routes: Vec<Route>,
}

impl Lease {
    /// The lease of a masqueraded guest.
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

/// The guest's IPv6 address and its router.
struct Ipv6Lease {
    address: Ipv6Addr,
    prefix_length: u8,
    router: Option<Ipv6Router>,
}

impl Ipv6Lease {
    /// That of a masqueraded guest.
    fn behind(side: &Side) -> Option<Self> {
        let (IpAddr::V6(address), IpAddr::V6(router)) = (side.guest, masquerade::router().address)
        else {
            return None;
        };
        Some(Self {
            address,
            prefix_length: side.gateway.prefix_length,
            router: Some(Ipv6Router {
                address: router,
                mac: Some(MacAddress::BRIDGE.to_string()),
            }),
        })
    }

    /// That of a guest that takes over the pod's address.
    fn of_pod(pod: &PodInterface) -> Option<Self> {
        let (address, prefix_length) = pod.ipv6?;
        let router = bridge::ipv6_router(pod);
        Some(Self {
            address,
            prefix_length,
            router: router.map(|address| Ipv6Router { address, mac: None }),
        })
    }
}

#[cfg(test)]
mod tests;
