//! The way from the node to a guest, for port forwarding.

use std::net::IpAddr;

use model::{Binding, Network, Supported};

use crate::{PlanError, masquerade};

/// Where the first interface of a guest is reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reach {
    /// From inside the pod's network namespace, at these private addresses, one of each family. No port
    /// list applies there.
    InPod(Vec<IpAddr>),
    /// From outside the pod, at the pod's addresses: the guest has taken them over, or
    /// passt or a plugin serves the guest's ports there.
    PodAddresses,
}

/// `None`: the guest has no interface on the pod network.
pub fn reach(guest: &Supported<'_>) -> Result<Option<Reach>, PlanError> {
    let on_pod_network = guest
        .plugged_interfaces()
        .find_map(|interface| match interface.network {
            Some(Network::Pod(settings)) => Some((interface, settings)),
            _ => None,
        });
    let Some((interface, settings)) = on_pod_network else {
        return Ok(None);
    };
    Ok(match interface.binding {
        Binding::Masquerade => {
            let addresses = masquerade::guest_addresses(interface.name(), settings)?;
            Some(Reach::InPod(addresses.to_vec()))
        }
        // Whatever a plugin does, nothing but the pod's addresses leads to the pod.
        Binding::Bridge | Binding::Passt | Binding::Plugin(_) => Some(Reach::PodAddresses),
        Binding::Sriov | Binding::Withdrawn(_) | Binding::Missing => None,
    })
}

#[cfg(test)]
mod tests {
    use kubevirt_api::VirtualMachineInstance;
    use serde_json::{Value, json};

    use super::*;

    fn reached(interfaces: &Value, pod: &Value) -> Option<Reach> {
        let vmi: VirtualMachineInstance = serde_json::from_value(json!({"spec": {
            "domain": {"devices": {"interfaces": interfaces}},
            "networks": [{"name": "default", "pod": pod}],
        }}))
        .unwrap();
        reach(&Supported::of(&vmi).unwrap()).unwrap()
    }

    #[test]
    fn masqueraded_guest_is_reached_inside_its_pod() {
        let interfaces = json!([{"name": "default", "masquerade": {}}]);
        let addresses = |texts: [&str; 2]| {
            let parsed = texts.map(|text| text.parse().unwrap());
            Some(Reach::InPod(parsed.to_vec()))
        };
        assert_eq!(
            reached(&interfaces, &json!({})),
            addresses(["10.0.2.2", "fd10:0:2::2"])
        );
        assert_eq!(
            reached(&interfaces, &json!({"vmNetworkCIDR": "192.168.7.0/28"})),
            addresses(["192.168.7.2", "fd10:0:2::2"])
        );
    }

    #[test]
    fn guest_with_the_pods_addresses_is_reached_there() {
        let bridge = json!([{"name": "default", "bridge": {}}]);
        assert_eq!(reached(&bridge, &json!({})), Some(Reach::PodAddresses));
        let passt = json!([{"name": "default", "passtBinding": {}}]);
        assert_eq!(reached(&passt, &json!({})), Some(Reach::PodAddresses));
        let plugin = json!([{"name": "default", "binding": {"name": "p"}}]);
        assert_eq!(reached(&plugin, &json!({})), Some(Reach::PodAddresses));
        assert_eq!(reached(&json!([]), &json!({})), None);
    }
}
