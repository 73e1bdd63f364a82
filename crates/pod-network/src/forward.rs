//! Detection of firewalls of other programs that block the pods' traffic.

use host_net::{Net, NetError};
use net_plan::nft::Family;

/// Number of netfilter's forward hook.
const FORWARD: u32 = 2;

/// Warns, once per start, about a firewall whose forward chain drops by default. A rule in our own
/// table cannot overrule another table, and a rule added to that table would open what its owner
/// closed.
pub(crate) fn warn_of_firewalls(net: &mut Net, bridge: &str, own: &str) -> Result<(), NetError> {
    for chain in net.base_chains(Family::Ip)? {
        if chain.hook == FORWARD && chain.drops_by_default && chain.table != own {
            tracing::warn!(
                table = chain.table,
                chain = chain.name,
                bridge,
                "a firewall drops forwarded packets by default: pods reach nothing beyond this host \
                 until it allows packets from the bridge and the replies to them"
            );
        }
    }
    Ok(())
}
