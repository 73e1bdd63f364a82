//! The devices of a pod's networks, which the sidecars of some network bindings read as a file: pure.

use std::collections::{BTreeMap, BTreeSet};

use kubevirt_api::annotations;
use serde::{Deserialize, Serialize};
use serde_json::Value;

/// One network in the report of the network plugin.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Reported {
    #[serde(default)]
    interface: String,
    #[serde(default)]
    mac: String,
    mtu: Option<u32>,
    device_info: Option<Value>,
}

#[derive(Debug, Serialize)]
struct NetworkInfo<'a> {
    interfaces: Vec<Interface<'a>>,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Interface<'a> {
    network: &'a str,
    device_info: &'a Value,
    #[serde(skip_serializing_if = "str::is_empty")]
    mac: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    mtu: Option<u32>,
}

/// The annotation that a pod with these annotations needs and does not have; `None` also while the network plugin has
/// not reported.
pub(super) fn missing(annotated: &BTreeMap<String, String>) -> Option<String> {
    let mut networks: Vec<String> =
        serde_json::from_str(annotated.get(annotations::DEVICE_NETWORKS)?).ok()?;
    networks.sort();
    let report = annotated.get(annotations::CNI_NETWORK_STATUS)?;
    let report: Vec<Reported> = serde_json::from_str(report).ok()?;
    let interfaces = networks.iter().filter_map(|network| {
        let in_pod = model::pod_interface_name(network);
        let reported = report.iter().find(|one| one.interface == in_pod)?;
        Some(Interface {
            network,
            device_info: reported.device_info.as_ref()?,
            mac: &reported.mac,
            mtu: reported.mtu,
        })
    });
    let info = NetworkInfo {
        interfaces: interfaces.collect(),
    };
    if info.interfaces.is_empty() {
        return None;
    }
    let text = serde_json::to_string(&info).ok()?;
    (annotated.get(annotations::NETWORK_INFO) != Some(&text)).then_some(text)
}

/// The pod's interfaces that the network plugin reports, but not that on the default network.
pub(super) fn interfaces(annotated: &BTreeMap<String, String>) -> BTreeSet<String> {
    let report = annotated.get(annotations::CNI_NETWORK_STATUS);
    let report = report.and_then(|text| serde_json::from_str::<Vec<Reported>>(text).ok());
    let all = report.into_iter().flatten().map(|one| one.interface);
    all.filter(|name| name != model::PRIMARY_POD_INTERFACE)
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn devices_of_the_named_networks_are_published_once() {
        let device =
            json!({"type": "vdpa", "version": "1.1.0", "vdpa": {"path": "/dev/vhost-vdpa-0"}});
        let of = |network: &str| model::pod_interface_name(network);
        let report = json!([
            {"name": "cni", "interface": "eth0", "ips": ["10.244.0.5"], "default": true, "dns": {}},
            {"name": "ns/b", "interface": of("blue"), "mac": "02:00:00:00:00:0b", "mtu": 9000,
                "device-info": device},
            {"name": "ns/g", "interface": of("green"), "mac": "02:00:00:00:00:0c"},
            {"name": "ns/o", "interface": of("other"), "device-info": device},
            {"name": "ns/a", "interface": of("amber"), "device-info": device},
        ])
        .to_string();
        let networks = json!(["green", "blue", "amber", "absent"]).to_string();
        let mut annotated = BTreeMap::new();
        assert_eq!(missing(&annotated), None);
        annotated.insert(annotations::CNI_NETWORK_STATUS.to_owned(), report);
        assert_eq!(missing(&annotated), None, "no sidecar reads it");
        annotated.insert(annotations::DEVICE_NETWORKS.to_owned(), networks);
        let found = missing(&annotated).expect("devices");
        let read: Value = serde_json::from_str(&found).expect("JSON");
        let expected = json!({"interfaces": [
            {"network": "amber", "deviceInfo": device},
            {"network": "blue", "deviceInfo": device, "mac": "02:00:00:00:00:0b", "mtu": 9000},
        ]});
        assert_eq!(read, expected);
        annotated.insert(annotations::NETWORK_INFO.to_owned(), "{}".to_owned());
        assert_eq!(missing(&annotated).as_ref(), Some(&found));
        annotated.insert(annotations::NETWORK_INFO.to_owned(), found);
        assert_eq!(missing(&annotated), None);
        annotated.insert(annotations::CNI_NETWORK_STATUS.to_owned(), "{}".to_owned());
        assert_eq!(missing(&annotated), None);
    }
}
