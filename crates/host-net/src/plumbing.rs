//! Carries out a plan inside the namespace of the calling thread, and takes it away again.
//!
//! Every step makes one thing so; cut off anywhere, a second run completes it. Links come first,
//! the rules that name them last.

use std::net::IpAddr;

use net_plan::{Cidr, Plumbing, PodInterface, PodRoute};

use crate::{LinkKind, Net, NetError};

/// What is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Names of the links that the plan asked for.
    pub links: Vec<String>,
    /// How many packet rules the kernel took.
    pub rules: usize,
}

/// The interface of this name with its global addresses and the routes through it.
pub fn observe_interface(net: &mut Net, name: &str) -> Result<PodInterface, NetError> {
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
    Ok(PodInterface {
        name: link.name,
        mac,
        mtu: link.mtu,
        ipv4,
        ipv6,
        routes,
    })
}

/// Makes everything the plan asks for.
pub fn plumb(net: &mut Net, plan: &Plumbing) -> Result<Applied, NetError> {
    for bridge in &plan.bridges {
        net.ensure_bridge(bridge)?;
    }
    for tap in &plan.taps {
        net.ensure_tap(tap)?;
    }
    for sysctl in &plan.sysctls {
        net.ensure_sysctl(sysctl)?;
    }
    for table in &plan.tables {
        net.ensure_chains(table)?;
    }
    let bridges = plan.bridges.iter().map(|bridge| bridge.name.clone());
    let taps = plan.taps.iter().map(|tap| tap.name.clone());
    let chains = plan.tables.iter().flat_map(|table| &table.chains);
    Ok(Applied {
        links: bridges.chain(taps).collect(),
        rules: chains.map(|chain| chain.rules.len()).sum(),
    })
}

/// Takes away rules and links of the plan; settings stay, since others may rely on them. What is
/// gone already is fine.
pub fn unplumb(net: &mut Net, plan: &Plumbing) -> Result<(), NetError> {
    for table in &plan.tables {
        net.remove_chains(table)?;
    }
    let taps = plan
        .taps
        .iter()
        .map(|tap| (&tap.name, LinkKind::Tun, "tap"));
    let bridges = plan
        .bridges
        .iter()
        .map(|bridge| (&bridge.name, LinkKind::Bridge, "bridge"));
    for (name, kind, wanted) in taps.chain(bridges) {
        if let Some(link) = net.link(name)? {
            crate::link::of_kind(link, &kind, wanted)?;
            net.delete_link(name)?;
        }
    }
    Ok(())
}
