//! The part of the network that has IPv6: addresses of the host, forwarding, and address translation.

use host_net::{Link, Net, NetError};
use net_plan::{Cidr, nft::Family};

use crate::{
    PodNetworkError,
    masquerade::masquerade,
    settings::{IPV6_ROUTER, LINK_LOCAL, Range},
};

/// Sets it up on the bridge, or removes what is left of an earlier range.
pub(crate) fn ensure(
    net: &mut Net,
    bridge: &Link,
    range: &Range,
    table: &str,
) -> Result<(), PodNetworkError> {
    let own = range.ipv6_of(range.gateway);
    let (Some(network), Some(own)) = (range.ipv6, own) else {
        remove_addresses(net, bridge, None)?;
        net.remove_address(bridge, router())?;
        return match net.delete_table(Family::Ip6, table) {
            // A kernel without IPv6 has no such tables.
            Err(NetError::NotSupported { .. }) => Ok(()),
            done => Ok(done?),
        };
    };
    if !net.enable_ipv6(&bridge.name)? {
        return Err(PodNetworkError::NoIpv6 { range: network });
    }
    remove_addresses(net, bridge, Some(own))?;
    net.ensure_address(bridge, own)?;
    net.ensure_address(bridge, router())?;
    net.replace_table(&masquerade(table, network))?;
    Ok(net.forward_ipv6()?)
}

fn router() -> Cidr {
    Cidr::v6(IPV6_ROUTER, LINK_LOCAL.prefix_length)
}

fn remove_addresses(
    net: &mut Net,
    bridge: &Link,
    kept: Option<Cidr>,
) -> Result<(), PodNetworkError> {
    for address in net.addresses(bridge)? {
        if address.address.is_ipv6() && Some(address) != kept {
            net.remove_address(bridge, address)?;
        }
    }
    Ok(())
}

/// Gives the pod's interface its address and the default route.
pub(crate) fn attach(pod: &mut Net, link: &Link, address: Cidr) -> Result<(), NetError> {
    pod.enable_ipv6(&link.name)?;
    pod.ensure_address(link, address)?;
    pod.ensure_route(link, default_route(), Some(IPV6_ROUTER.into()))
}

pub(crate) fn default_route() -> Cidr {
    Cidr::v6(std::net::Ipv6Addr::UNSPECIFIED, 0)
}
