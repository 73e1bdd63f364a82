//! The bridge binding: the pod's interface becomes a port of a bridge that the guest is on, too, and
//! the guest has the pod's addresses for its own.

use std::net::{IpAddr, Ipv4Addr};

use launcher_channel::Route;

use crate::{Cidr, GivenInterface, MacAddress, PlanError, PodInterface, PodRoute, StandIn, Sysctl};

/// Under this name a pod's interface is a port.
pub fn port_name(pod_interface: &str) -> String {
    format!("{}-nic", suffix(pod_interface))
}

/// The part of a pod interface's name that the names of others are made from.
pub(crate) fn suffix(pod_interface: &str) -> &str {
    pod_interface.strip_prefix("pod").unwrap_or(pod_interface)
}

/// The address of the bridge and of the port: one of the pod's own that no guest has. Each pod's
/// is another, since its neighbours may hear of it.
pub(crate) fn mac(pod: &PodInterface) -> MacAddress {
    let mut mac = pod.mac;
    mac.0[0] = (mac.0[0] ^ 0x40) | 0x02;
    mac
}

/// The bridge's own address, by which the DHCP server for the interface at this position in the
/// VMI speaks: `169.254.75.1`, and the position's digits. It leads nowhere.
pub(crate) fn server(position: usize) -> Ipv4Addr {
    let last = match u8::try_from(position) {
        Ok(digit @ 0..=9) => 10 + digit,
        Ok(digits @ 10..=99) => 100 + digits,
        // There is one such interface, so they need not differ.
        _ => 199,
    };
    Ipv4Addr::new(169, 254, 75, last)
}

pub(crate) fn given(pod: &PodInterface, bridge: &str) -> Result<GivenInterface, PlanError> {
    let remark = pod.remark().ok_or_else(|| PlanError::TooManyRoutes {
        interface: pod.name.clone(),
    })?;
    Ok(GivenInterface {
        name: pod.name.clone(),
        renamed: port_name(&pod.name),
        bridge: bridge.to_owned(),
        mac: mac(pod),
        remark,
        stand_in: StandIn {
            mac: pod.mac,
            mtu: pod.mtu,
            addresses: pod.addresses(),
        },
    })
}

/// The pod must not answer for the address that is the guest's now, though its stand-in has it.
pub(crate) fn sysctls(pod: &PodInterface) -> Vec<Sysctl> {
    let silent = Sysctl {
        name: "net/ipv4/conf/all/arp_ignore".to_owned(),
        value: "1".to_owned(),
    };
    pod.ipv4.map(|_| silent).into_iter().collect()
}

/// The router of the pod, and its other routes: those on the link first, since others may lead
/// through them. What follows from the guest's own address is left out.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_hashed_interfaces_stay_short_enough() {
        assert_eq!(port_name("eth0"), "eth0-nic");
        assert_eq!(port_name("pod0123456789a"), "0123456789a-nic");
    }

    #[test]
    fn servers_are_told_apart_by_a_digit() {
        for (position, expected) in [
            (0, "169.254.75.10"),
            (3, "169.254.75.13"),
            (12, "169.254.75.112"),
            (400, "169.254.75.199"),
        ] {
            assert_eq!(server(position).to_string(), expected);
        }
    }

    #[test]
    fn the_guest_learns_the_routes_of_its_pod() {
        // Address, routes as the kernel lists them, what the guest is told.
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
        for (address, seen, router, expected) in cases {
            let own: Cidr = address.parse().unwrap();
            let IpAddr::V4(ipv4) = own.address else {
                panic!("{address} is of the other family")
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
                routes: seen.iter().map(route).collect(),
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
            assert_eq!(rest, expected, "{address} {seen:?}");
        }
    }
}
