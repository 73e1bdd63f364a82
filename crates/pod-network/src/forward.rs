//! Whether other programs' firewalls let pods through.

use host_net::{Net, NetError};
use net_plan::nft::Family;

/// Number of netfilter's forward hook.
const FORWARD: u32 = 2;

/// Says so, once at each start, when a firewall drops what it does not know: a rule of ours cannot
/// overrule another table's, and a rule put into that table would open what its owner closed.
pub(crate) fn warn_of_firewalls(net: &mut Net, bridge: &str, own: &str) -> Result<(), NetError> {
    for chain in net.base_chains(Family::Ip)? {
        if chain.hook == FORWARD && chain.drops_by_default && chain.table != own {
            tracing::warn!(
                table = chain.table,
                chain = chain.name,
                bridge,
                "a firewall drops forwarded packets by default: pods reach nothing beyond this host \
                 until it allows packets from the bridge and their answers"
            );
        }
    }
    Ok(())
}
