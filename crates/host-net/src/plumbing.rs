//! Carries out a plan inside the namespace of the calling thread. What is made goes with it.
//!
//! Every step makes one thing so; cut off anywhere, a second run completes it. Links come first,
//! the rules that name them last. The settings come before the pod's interface is given away: the
//! pod may not answer for what is the guest's.

use std::net::IpAddr;

use net_plan::{Cidr, Plumbing, PodInterface, PodRoute};

use crate::{Net, NetError};

/// What is there now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Applied {
    /// Names of the links that the plan asked for.
    pub links: Vec<String>,
    /// How many packet rules the kernel took.
    pub rules: usize,
}

/// The interface of this name with its global addresses and the routes through it, as they were
/// before it was given to a guest.
pub fn observe_interface(net: &mut Net, name: &str) -> Result<PodInterface, NetError> {
    if let Some(seen) = net.remembered(name)? {
        return Ok(seen);
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
    for sysctl in &plan.sysctls {
        net.ensure_sysctl(sysctl)?;
    }
    for given in &plan.given {
        net.ensure_given(given)?;
    }
    for tap in &plan.taps {
        net.ensure_tap(tap)?;
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
