//! Applies a [`Plumbing`] in the namespace of the calling thread. The objects live as long as the
//! namespace.
//!
//! Every step is idempotent: after a crash at any point, a second run completes the work. Links come
//! first, the rules that name them last. Sysctls come before the handover of the pod's interface: the
//! pod must not answer ARP requests for the guest's address.

use std::net::IpAddr;

use net_plan::{Cidr, Plumbing, PodInterface, PodRoute, Unplumbing};

use crate::{LinkKind, Net, NetError};

/// The result of [`plumb`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Names of the planned links.
    pub links: Vec<String>,
    /// Number of packet rules in the kernel.
    pub rules: usize,
}

/// The interface with its global addresses and routes, as they were before a handover to a guest.
pub fn observe_interface(net: &mut Net, name: &str) -> Result<PodInterface, NetError> {
    if let Some(saved) = net.saved_state(name)? {
        return Ok(saved);
    }
    let link = net.existing_link(name)?;
    let addresses = net.addresses(&link)?;
    let routes = net.routes()?;
    let (mut ipv4, mut ipv6) = (None, None);
    for Cidr {
        address,
        prefix_length,
    } in addresses
    {
        match address {
            IpAddr::V4(address) => ipv4 = ipv4.or(Some((address, prefix_length))),
            IpAddr::V6(address) => ipv6 = ipv6.or(Some((address, prefix_length))),
        }
    }
    let mac = link.mac.ok_or_else(|| NetError::Foreign {
        name: name.to_owned(),
        found: format!("{} without an Ethernet address", link.kind.as_str()),
        wanted: "Ethernet interface",
    })?;
    let through = |route: &&crate::Route| route.link == Some(link.index);
    let routes = routes
        .iter()
        .filter(through)
        .map(|route| PodRoute {
            destination: route.destination,
            via: route.via,
        })
        .collect();
    let receives_own_only = link.kind == LinkKind::Macvlan;
    Ok(PodInterface {
        name: link.name,
        mac,
        mtu: link.mtu,
        ipv4,
        ipv6,
        routes,
        receives_own_only,
    })
}

/// Creates or updates everything in the plan.
pub fn plumb(net: &mut Net, plan: &Plumbing) -> Result<Applied, NetError> {
    for bridge in &plan.bridges {
        net.ensure_bridge(bridge)?;
    }
    for sysctl in &plan.sysctls {
        net.ensure_sysctl(sysctl)?;
    }
    for given in &plan.given {
        net.ensure_handover(given)?;
    }
    for tap in &plan.taps {
        net.ensure_tap(tap)?;
    }
    for shared in &plan.shared_addresses {
        net.ensure_shared_address(shared)?;
    }
    for table in &plan.tables {
        net.ensure_chains(table)?;
    }
    let bridges = plan.bridges.iter().map(|bridge| bridge.name.clone());
    let given = plan.given.iter().map(|given| given.renamed.clone());
    let taps = plan.taps.iter().map(|tap| tap.name.clone());
    let chains = plan.tables.iter().flat_map(|table| &table.chains);
    Ok(Applied {
        links: bridges.chain(given).chain(taps).collect(),
        rules: chains.map(|chain| chain.rules.len()).sum(),
    })
}

/// Removes the links of one interface, of which some may be gone. The pod's interface gets its name back, and keeps the
/// alias with its state: after a crash at any step, another run completes the work, and a new [`plumb`] undoes it.
pub fn unplumb(net: &mut Net, links: &Unplumbing) -> Result<(), NetError> {
    net.undo_handover(links)?;
    failpoints::after("host-net/unplumb/undo-handover");
    let taps = links.taps.iter().map(|tap| (tap, LinkKind::Tun));
    for (name, kind) in taps.chain([(&links.bridge, LinkKind::Bridge)]) {
        if net.link(name)?.is_some_and(|link| link.kind == kind) {
            net.delete_link(name)?;
            failpoints::after("host-net/unplumb/delete-link");
        }
    }
    Ok(())
}
