//! Networks of a running pod that come and go with the interfaces of its guest: pure.
//!
//! The pod names the networks in an annotation, which the network plugin of the cluster, or the node of a single host,
//! carries out on a running pod as well.

use std::collections::BTreeSet;

use kubevirt_api::vmi_status::VirtualMachineInstancePhase as Phase;
use model::pod_interface_name;
use serde_json::{Value, json};

use super::pod::LauncherPod;
use crate::view::{Guest, Nic};

/// Whether networks of the pod can change now: a pod to which the guest moves was made with those of the VMI.
fn is_settled(vmi: &Guest) -> bool {
    *vmi.phase() == Phase::Running && !vmi.is_deleting() && !vmi.status.is_migrating
}

/// The annotation with the pod's networks, if it has to change: with the interfaces that the guest is to get, and
/// without those that it has lost. `None` also for one in another format than ours.
pub(super) fn annotation(vmi: &Guest, pod: &LauncherPod) -> Option<String> {
    if !is_settled(vmi) {
        return None;
    }
    let mut all: Vec<Value> = match pod.networks.as_deref() {
        None | Some("") => Vec::new(),
        Some(text) => serde_json::from_str(text).ok()?,
    };
    let own = vmi.metadata.namespace.as_deref().unwrap_or("default");
    let mut is_changed = false;
    for nic in &vmi.nics {
        let interface = pod_interface_name(&nic.name);
        let is_it = |one: &Value| one["interface"] == interface.as_str();
        match (nic.is_absent, all.iter().any(is_it)) {
            (false, false) => {
                all.push(item(nic, own, &interface));
                is_changed = true;
            }
            (true, true) if !nic.is_in_guest => {
                all.retain(|one| !is_it(one));
                is_changed = true;
            }
            _ => {}
        }
    }
    is_changed.then(|| Value::from(all).to_string())
}

/// In the format of the multi-network standard, as in a new pod.
fn item(nic: &Nic, own: &str, interface: &str) -> Value {
    let (namespace, name) = nic
        .definition
        .split_once('/')
        .unwrap_or((own, &nic.definition));
    let mut item = json!({"name": name, "namespace": namespace, "interface": interface});
    if let Some(mac) = &nic.mac {
        item["mac"] = mac.as_str().into();
    }
    item
}

/// The interfaces that leave the VMI: neither guest nor pod have them any more.
pub(super) fn gone(vmi: &Guest, pod: &LauncherPod) -> BTreeSet<String> {
    if !is_settled(vmi) {
        return BTreeSet::new();
    }
    let is_named = |interface: &str| {
        let text = pod.networks.as_deref().unwrap_or_default();
        text.contains(interface) || pod.joined.contains(interface)
    };
    let gone = vmi
        .nics
        .iter()
        .filter(|nic| nic.is_absent && !nic.is_shown && !is_named(&pod_interface_name(&nic.name)));
    gone.map(|nic| nic.name.clone()).collect()
}

#[cfg(test)]
mod tests {
    use kubevirt_api::annotations;

    use super::*;

    fn vmi(state: Option<&str>, sources: Option<&str>) -> Guest {
        let shown = sources.map(|sources| json!({"name": "lan", "infoSource": sources}));
        let shown: Vec<Value> = shown.into_iter().collect();
        serde_json::from_value(json!({
            "metadata": {"namespace": "ns", "name": "a"},
            "spec": {
                "domain": {"devices": {"interfaces": [
                    {"name": "default", "masquerade": {}},
                    {"name": "lan", "bridge": {}, "macAddress": "02:00:00:00:00:0b", "state": state},
                ]}},
                "networks": [
                    {"name": "default", "pod": {}},
                    {"name": "lan", "multus": {"networkName": "other/n"}},
                ],
            },
            "status": {"phase": "Running", "interfaces": shown},
        }))
        .unwrap()
    }

    fn pod(networks: &Value, joined: &[&str]) -> LauncherPod {
        let report: Vec<Value> = joined
            .iter()
            .map(|name| json!({"interface": pod_interface_name(name)}))
            .collect();
        serde_json::from_value(json!({"metadata": {"annotations": {
            annotations::CNI_NETWORKS: networks.to_string(),
            annotations::CNI_NETWORK_STATUS: Value::from(report).to_string(),
        }}}))
        .unwrap()
    }

    fn of_lan() -> Value {
        json!({"name": "n", "namespace": "other", "interface": pod_interface_name("lan"),
            "mac": "02:00:00:00:00:0b"})
    }

    #[test]
    fn pod_names_the_networks_of_the_guest() {
        let other = json!({"name": "x", "interface": "net9"});
        let (alone, both) = (json!([other]), json!([other, of_lan()]));
        for (state, sources, networks, expected) in [
            (None, None, &alone, Some(&both)),
            (None, None, &both, None),
            (Some("absent"), Some("domain, multus-status"), &both, None),
            (Some("absent"), Some("multus-status"), &both, Some(&alone)),
            (Some("absent"), None, &both, Some(&alone)),
            (Some("absent"), None, &alone, None),
        ] {
            let found = annotation(&vmi(state, sources), &pod(networks, &[]));
            let found = found.map(|text| serde_json::from_str::<Value>(&text).unwrap());
            assert_eq!(found.as_ref(), expected, "{state:?} {sources:?} {networks}");
        }
        let none = LauncherPod::default();
        let first = annotation(&vmi(None, None), &none).unwrap();
        let first: Value = serde_json::from_str(&first).unwrap();
        assert_eq!(first, json!([of_lan()]));
        // Not ours.
        assert_eq!(annotation(&vmi(None, None), &pod(&json!({}), &[])), None);
        let mut early = vmi(None, None);
        early.status.phase = Phase::Scheduled;
        assert_eq!(annotation(&early, &none), None);
    }

    #[test]
    fn interface_leaves_the_vmi_last() {
        let (none, named) = (json!([]), json!([of_lan()]));
        for (state, sources, networks, joined, expected) in [
            (Some("absent"), None, &none, &[][..], true),
            (Some("absent"), Some("domain"), &none, &[], false),
            (Some("absent"), None, &named, &[], false),
            (Some("absent"), None, &none, &["lan"], false),
            (None, None, &none, &[], false),
        ] {
            let found = gone(&vmi(state, sources), &pod(networks, joined));
            assert_eq!(
                !found.is_empty(),
                expected,
                "{state:?} {sources:?} {networks}"
            );
        }
    }
}
