//! The bridge binding: the pod's interface and the guest's tap become ports of one bridge, and the
//! guest takes over the pod's addresses.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use launcher_channel::Route;

use crate::{Cidr, GivenInterface, MacAddress, PlanError, PodInterface, PodRoute, StandIn, Sysctl};

/// The name of a pod's interface as a port of the bridge.
pub fn port_name(pod_interface: &str) -> String {
    format!("{}-nic", suffix(pod_interface))
}

/// The part of a pod interface's name from which the names of other links are derived.
pub(crate) fn suffix(pod_interface: &str) -> &str {
    pod_interface.strip_prefix("pod").unwrap_or(pod_interface)
}

/// The hardware address of the bridge and of the port, derived from the pod's address, which the guest
/// uses. It differs between pods, since it may be visible outside of the pod.
pub(crate) fn mac(pod: &PodInterface) -> MacAddress {
    let mut mac = pod.mac;
    mac.0[0] = (mac.0[0] ^ 0x40) | 0x02;
    mac
}

/// The bridge's own address, which the DHCP server uses: `169.254.75.1`, followed by the digits of the
/// interface's index in the VMI. Nothing is routed to it.
pub(crate) fn server(index: usize) -> Ipv4Addr {
    let last = match u8::try_from(index) {
        Ok(digit @ 0..=9) => 10 + digit,
        Ok(digits @ 10..=99) => 100 + digits,
        // A guest has one such interface, so the address need not be unique.
        _ => 199,
    };
    Ipv4Addr::new(169, 254, 75, last)
}

/// `guest` is the hardware address of the guest.
pub(crate) fn given(
    pod: &PodInterface,
    bridge: &str,
    guest: MacAddress,
) -> Result<GivenInterface, PlanError> {
    let alias = pod.to_alias().ok_or_else(|| PlanError::TooManyRoutes {
        interface: pod.name.clone(),
    })?;
    Ok(GivenInterface {
        name: pod.name.clone(),
        renamed: port_name(&pod.name),
        bridge: bridge.to_owned(),
        // A link that filters by its address must have that of the guest.
        mac: if pod.receives_own_only {
            guest
        } else {
            mac(pod)
        },
        alias,
        stand_in: StandIn {
            mac: pod.mac,
            mtu: pod.mtu,
            addresses: pod.addresses(),
        },
    })
}

/// The pod must not answer ARP requests for the guest's address, although its stand-in has it.
pub(crate) fn sysctls(pod: &PodInterface) -> Vec<Sysctl> {
    let arp_ignore = Sysctl {
        name: "net/ipv4/conf/all/arp_ignore".to_owned(),
        value: "1".to_owned(),
    };
    pod.ipv4.map(|_| arp_ignore).into_iter().collect()
}

/// The router of the pod, and its other routes. Routes on the link come first, since others may use
/// them. The route that follows from the guest's own address is left out.
pub(crate) fn routes(pod: &PodInterface) -> (Option<Ipv4Addr>, Vec<Route>) {
    let own = pod
        .ipv4
        .map(|(one, length)| Cidr::v4(one, length).network());
    let mut router = None;
    let mut routes = Vec::new();
    for PodRoute { destination, via } in &pod.routes {
        let IpAddr::V4(address) = destination.address else {
            continue;
        };
        let via = match via {
            Some(IpAddr::V4(via)) => Some(*via),
            Some(IpAddr::V6(_)) => continue,
            None => None,
        };
        if destination.prefix_length == 0 && via.is_some() {
            router = router.or(via);
        } else if via.is_some() || own != Some(destination.network()) {
            routes.push(Route {
                destination: address,
                prefix_length: destination.prefix_length,
                via: via.unwrap_or(Ipv4Addr::UNSPECIFIED),
            });
        }
    }
    routes.sort_by_key(|route| !route.via.is_unspecified());
    (router, routes)
}

/// The router of the pod that advertisements can name: one with a link-local address.
pub(crate) fn ipv6_router(pod: &PodInterface) -> Option<Ipv6Addr> {
    let is_default = |route: &&PodRoute| {
        route.destination.prefix_length == 0 && route.destination.address.is_ipv6()
    };
    match pod.routes.iter().find(is_default)?.via? {
        IpAddr::V6(via) if via.is_unicast_link_local() => Some(via),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn port_names_of_hashed_interfaces_fit_the_kernel() {
        assert_eq!(port_name("eth0"), "eth0-nic");
        assert_eq!(port_name("pod0123456789a"), "0123456789a-nic");
    }

    #[test]
    fn server_address_ends_with_the_index() {
        for (index, expected) in [
            (0, "169.254.75.10"),
            (3, "169.254.75.13"),
            (12, "169.254.75.112"),
            (400, "169.254.75.199"),
        ] {
            assert_eq!(server(index).to_string(), expected);
        }
    }

    #[test]
    fn guest_gets_the_routes_of_its_pod() {
        // Address, routes as the kernel lists them, router and routes of the guest.
        type Case = (
            &'static str,
            &'static [(&'static str, &'static str)],
            Option<&'static str>,
            &'static [(&'static str, u8, &'static str)],
        );
        let cases: [Case; 5] = [
            (
                "10.244.0.39/24",
                &[("0.0.0.0/0", "10.244.0.1"), ("10.244.0.0/24", "")],
                Some("10.244.0.1"),
                &[],
            ),
            (
                "10.244.0.39/24",
                &[
                    ("0.0.0.0/0", "10.244.0.1"),
                    ("10.96.0.0/12", "10.244.0.7"),
                    ("10.244.0.0/16", ""),
                ],
                Some("10.244.0.1"),
                &[
                    ("10.244.0.0", 16, "0.0.0.0"),
                    ("10.96.0.0", 12, "10.244.0.7"),
                ],
            ),
            // A router outside of the pod's own network, as some plug-ins have it.
            (
                "10.1.2.3/32",
                &[("0.0.0.0/0", "169.254.1.1"), ("169.254.1.1/32", "")],
                Some("169.254.1.1"),
                &[("169.254.1.1", 32, "0.0.0.0")],
            ),
            (
                "10.1.2.3/32",
                &[("0.0.0.0/0", "")],
                None,
                &[("0.0.0.0", 0, "0.0.0.0")],
            ),
            ("10.1.2.3/24", &[("::/0", "fd00::1")], None, &[]),
        ];
        for (address, observed, router, expected) in cases {
            let own: Cidr = address.parse().unwrap();
            let IpAddr::V4(ipv4) = own.address else {
                panic!("{address} is not IPv4")
            };
            let route = |(destination, via): &(&str, &str)| PodRoute {
                destination: destination.parse().unwrap(),
                via: via.parse().ok(),
            };
            let pod = PodInterface {
                name: "eth0".to_owned(),
                mac: MacAddress([2; 6]),
                mtu: 1500,
                ipv4: Some((ipv4, own.prefix_length)),
                ipv6: None,
                routes: observed.iter().map(route).collect(),
                receives_own_only: false,
            };
            let (found, rest) = routes(&pod);
            assert_eq!(found.map(|found| found.to_string()).as_deref(), router);
            let rest: Vec<_> = rest
                .iter()
                .map(|one| {
                    (
                        one.destination.to_string(),
                        one.prefix_length,
                        one.via.to_string(),
                    )
                })
                .collect();
            let rest: Vec<_> = rest
                .iter()
                .map(|(to, length, via)| (&**to, *length, &**via))
                .collect();
            assert_eq!(rest, expected, "{address} {observed:?}");
        }
    }
}
