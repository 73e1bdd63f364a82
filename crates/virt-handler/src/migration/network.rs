//! The network over which guests move between nodes: that of the pods, or one that the administrator names.
//!
//! **Invariant**: guests do not move over another network than the one that is named. If this node or the other one is
//! not on it, the migration fails and says so.

use std::net::{IpAddr, SocketAddr};

use error_chain::error_chain;
use host_net::{Net, NetError};
use kubevirt_api::{
    MIGRATION_INTERFACE,
    migration::{MigrationNetworkType, VirtualMachineInstanceMigrationState as State},
};
use net_plan::Cidr;

/// Where this virt-handler is reached for migrations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Offer {
    pub(super) address: SocketAddr,
    pub(super) network: MigrationNetworkType,
}

#[derive(Debug, thiserror::Error)]
pub(super) enum NetworkError {
    #[error(
        "node {node} is not on the migration network {named} (migrations.network): virt-handler's pod has no \
         interface {MIGRATION_INTERFACE} with an address"
    )]
    NotJoined { node: String, named: String },
    #[error("node {node} offers no address on the migration network {named} (migrations.network)")]
    NotOffered { node: String, named: String },
    #[error("read the addresses of {MIGRATION_INTERFACE}")]
    Read(#[from] NetError),
    #[error("read the addresses of {MIGRATION_INTERFACE}")]
    Ended(#[from] tokio::task::JoinError),
}

/// A node and the network that the administrator names.
#[derive(Debug, Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) node: &'a str,
    pub(super) named: Option<&'a str>,
}

/// The address to publish; `own` is that on the network of the pods.
pub(super) async fn offer(at: Place<'_>, own: SocketAddr) -> Result<Offer, NetworkError> {
    let Some(address) = joined(at).await? else {
        return Ok(Offer {
            address: own,
            network: MigrationNetworkType::Pod,
        });
    };
    Ok(Offer {
        address: SocketAddr::new(address, own.port()),
        network: MigrationNetworkType::Migration,
    })
}

/// Whether guests may be sent where the other node has published.
pub(super) async fn check(at: Place<'_>, state: &State) -> Result<(), NetworkError> {
    joined(at).await?;
    agrees(at.named, state)
}

/// The other node must be on the named network, too.
fn agrees(named: Option<&str>, state: &State) -> Result<(), NetworkError> {
    let offered = state.migration_network_type.as_ref();
    match named {
        Some(named) if offered != Some(&MigrationNetworkType::Migration) => {
            Err(NetworkError::NotOffered {
                node: state.target_node.clone().unwrap_or_default(),
                named: named.to_owned(),
            })
        }
        _ => Ok(()),
    }
}

/// This node's address on the named network; `None` if no network is named.
async fn joined(at: Place<'_>) -> Result<Option<IpAddr>, NetworkError> {
    let Some(named) = at.named else {
        return Ok(None);
    };
    // Netlink blocks for a moment.
    let found = tokio::task::spawn_blocking(addresses).await??;
    match choose(&found) {
        Some(address) => Ok(Some(address)),
        None => Err(NetworkError::NotJoined {
            node: at.node.to_owned(),
            named: named.to_owned(),
        }),
    }
}

/// Whether this virt-handler has an address on a network for migrations. What cannot be read counts as one: the
/// next migration says why.
pub(crate) fn has_joined() -> bool {
    match addresses() {
        Ok(all) => choose(&all).is_some(),
        Err(error) => {
            tracing::warn!(
                error = error_chain(&error),
                "failed to read the addresses of the migration network"
            );
            true
        }
    }
}

fn addresses() -> Result<Vec<Cidr>, NetError> {
    let mut net = Net::here()?;
    match net.link(MIGRATION_INTERFACE)? {
        Some(link) => net.addresses(&link),
        None => Ok(Vec::new()),
    }
}

/// The first address that another node can reach.
fn choose(all: &[Cidr]) -> Option<IpAddr> {
    let reachable = |address: &IpAddr| {
        let is_local = match address {
            IpAddr::V4(address) => address.is_link_local(),
            IpAddr::V6(address) => address.is_unicast_link_local(),
        };
        !is_local && !address.is_loopback() && !address.is_unspecified() && !address.is_multicast()
    };
    all.iter().map(|one| one.address).find(reachable)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    const NODE: Place<'_> = Place {
        node: "n1",
        named: Some("fast"),
    };

    #[test]
    fn address_that_other_nodes_reach_is_chosen() {
        let cidr = |text: &str| Cidr {
            address: text.parse().unwrap(),
            prefix_length: 24,
        };
        for (all, expected) in [
            (vec![], None),
            (vec!["169.254.1.1", "fe80::1", "127.0.0.1"], None),
            (vec!["fe80::1", "192.0.2.7"], Some("192.0.2.7")),
            (vec!["2001:db8::7", "192.0.2.7"], Some("2001:db8::7")),
        ] {
            let cidrs: Vec<Cidr> = all.iter().map(|text| cidr(text)).collect();
            let expected = expected.map(|text| text.parse().unwrap());
            assert_eq!(choose(&cidrs), expected, "{all:?}");
        }
    }

    #[tokio::test]
    async fn network_of_the_pods_is_used_only_if_no_other_is_named() {
        let own: SocketAddr = "10.0.0.1:8186".parse().unwrap();
        let at = Place {
            named: None,
            ..NODE
        };
        let offered = offer(at, own).await.unwrap();
        assert_eq!(offered.address, own);
        assert_eq!(offered.network, MigrationNetworkType::Pod);
        // No test runs on a computer that has this interface.
        let error = offer(NODE, own).await.unwrap_err().to_string();
        assert!(
            error.starts_with("node n1 is not on the migration network fast"),
            "{error}"
        );
        let state = State::default();
        assert!(check(NODE, &state).await.is_err());
        assert!(check(at, &state).await.is_ok());
    }

    #[test]
    fn old_node_sends_nothing_over_another_network() {
        let check = |named: Option<&str>, state: Value, expected: bool| {
            let parsed: State = serde_json::from_value(state.clone()).unwrap();
            let found = agrees(named, &parsed);
            assert_eq!(found.is_ok(), expected, "{named:?} {state}");
        };
        let migration = || json!({"targetNode": "n2", "migrationNetworkType": "Migration"});
        let pod = || json!({"targetNode": "n2", "migrationNetworkType": "Pod"});
        // A virt-handler of an earlier version publishes no type.
        let nothing = || json!({"targetNode": "n2"});
        check(None, nothing(), true);
        check(None, pod(), true);
        check(None, migration(), true);
        check(Some("fast"), migration(), true);
        check(Some("fast"), pod(), false);
        check(Some("fast"), nothing(), false);
    }
}
