//! Which frequencies of time stamp counters the guests of a cluster use.

use std::collections::BTreeSet;
use std::sync::Arc;

use cluster_config::ClusterConfig;

use crate::view::{Guest, Host};

/// The frequency of a new guest: the administrator's, else the lowest of the nodes that run guests or
/// may. `None` while no node has reported any.
pub(crate) fn guest_frequency(
    config: &ClusterConfig,
    hosts: &[Arc<Host>],
    vmis: &[Arc<Guest>],
) -> Option<i64> {
    let developer = config.written.developer_configuration.as_ref();
    let minimum = developer.and_then(|developer| developer.minimum_cluster_tsc_frequency);
    if let Some(minimum) = minimum.filter(|minimum| *minimum > 0) {
        return Some(minimum);
    }
    let busy: BTreeSet<&str> = vmis
        .iter()
        .filter(|vmi| !vmi.is_final())
        .filter_map(|vmi| vmi.status.node_name.as_deref())
        .collect();
    let name = |host: &Host| host.metadata.name.clone().unwrap_or_default();
    let counted = hosts
        .iter()
        .filter(|host| host.is_schedulable || busy.contains(&*name(host)));
    counted.filter_map(|host| Some(host.tsc?.frequency)).min()
}

/// The frequencies that a node should be labelled with.
pub(super) fn offered(
    host: &Host,
    config: &ClusterConfig,
    hosts: &[Arc<Host>],
    vmis: &[Arc<Guest>],
) -> BTreeSet<i64> {
    let Some(tsc) = host.tsc else {
        return BTreeSet::new();
    };
    let used = vmis
        .iter()
        .filter(|vmi| !vmi.is_final())
        .filter_map(|vmi| vmi.status.tsc_frequency);
    let wanted = used.chain(guest_frequency(config, hosts, vmis)).collect();
    tsc.offered(&wanted)
}

#[cfg(test)]
mod tests {
    use kubevirt_api::cluster_config::KubeVirtConfiguration;
    use serde_json::json;

    use super::*;

    fn host(name: &str, frequency: i64, is_schedulable: bool) -> Arc<Host> {
        let host = json!({"metadata": {"name": name, "labels": {
            "kubevirt.io/schedulable": is_schedulable.to_string(),
            "cpu-timer.node.kubevirt.io/tsc-frequency": frequency.to_string(),
            "cpu-timer.node.kubevirt.io/tsc-scalable": "true",
        }}});
        Arc::new(serde_json::from_value(host).unwrap())
    }

    fn guest(node: &str, frequency: i64, phase: &str) -> Arc<Guest> {
        let vmi = json!({"metadata": {"name": "a"}, "status": {
            "phase": phase, "nodeName": node, "topologyHints": {"tscFrequency": frequency},
        }});
        Arc::new(serde_json::from_value(vmi).unwrap())
    }

    fn config(minimum: Option<i64>) -> ClusterConfig {
        let written = json!({"developerConfiguration": {"minimumClusterTSCFrequency": minimum}});
        let written: KubeVirtConfiguration = serde_json::from_value(written).unwrap();
        ClusterConfig::from_kubevirt(&written)
    }

    #[test]
    fn guest_gets_the_lowest_frequency_of_nodes_that_run_guests_or_may() {
        let hosts = [
            host("a", 3000, true),
            host("b", 2000, true),
            host("c", 1000, false),
        ];
        let here = [guest("c", 3000, "Running")];
        let ended = [guest("c", 3000, "Succeeded")];
        for (minimum, vmis, expected) in [
            (None, &[][..], Some(2000)),
            (None, &here, Some(1000)),
            (None, &ended, Some(2000)),
            (Some(500), &here, Some(500)),
            (Some(0), &[], Some(2000)),
        ] {
            let found = guest_frequency(&config(minimum), &hosts, vmis);
            assert_eq!(found, expected, "{minimum:?}");
        }
        assert_eq!(guest_frequency(&config(None), &[], &here), None);
    }

    #[test]
    fn node_offers_its_own_frequency_and_what_guests_use() {
        let hosts = [host("a", 3000, true), host("b", 2000, true)];
        let vmis = [guest("a", 2500, "Running"), guest("a", 2700, "Failed")];
        let offered = |host: &Host| offered(host, &config(None), &hosts, &vmis);
        assert_eq!(offered(&hosts[0]), BTreeSet::from([2000, 2500, 3000]));
        assert_eq!(offered(&hosts[1]), BTreeSet::from([2000]));
        assert_eq!(offered(&Host::default()), BTreeSet::new());
    }
}
