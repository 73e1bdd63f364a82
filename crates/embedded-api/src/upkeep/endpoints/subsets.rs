//! The Endpoints of a service with a selector. Pure.

use std::collections::BTreeMap;

use apimachinery::meta;
use serde_json::{Value, json};

use super::pods::{self, Port};

/// The subsets: one per list of ports.
pub(super) fn of(service: &Value, all: &[Value]) -> Vec<Value> {
    let publish_all = service["spec"]["publishNotReadyAddresses"] == true;
    let mut groups: BTreeMap<Vec<Port>, (Vec<Value>, Vec<Value>)> = BTreeMap::new();
    for pod in all.iter().filter(|pod| pods::is_selected(service, pod)) {
        if meta::is_deleting(pod) {
            continue;
        }
        let (Some(ip), Some(ports)) = (pods::address(pod), pods::ports(service, pod)) else {
            continue;
        };
        let mut address = json!({"ip": ip, "targetRef": pods::reference(pod)});
        if let Some(name) = pods::hostname(service, pod) {
            address["hostname"] = name.into();
        }
        if pod["spec"]["nodeName"].is_string() {
            address["nodeName"] = pod["spec"]["nodeName"].clone();
        }
        let (ready, not_ready) = groups.entry(ports).or_default();
        if publish_all || pods::is_ready(pod) {
            ready.push(address);
        } else {
            not_ready.push(address);
        }
    }
    groups
        .into_iter()
        .map(|(ports, addresses)| subset(&ports, addresses))
        .collect()
}

fn subset(ports: &[Port], (ready, not_ready): (Vec<Value>, Vec<Value>)) -> Value {
    let mut subset = json!({});
    for (field, mut addresses) in [("addresses", ready), ("notReadyAddresses", not_ready)] {
        addresses.sort_by_key(|one| one["ip"].to_string());
        if !addresses.is_empty() {
            subset[field] = addresses.into();
        }
    }
    if !ports.is_empty() {
        subset["ports"] = ports.iter().map(port).collect::<Vec<_>>().into();
    }
    subset
}

fn port(port: &Port) -> Value {
    let mut out = json!({"port": port.number, "protocol": port.protocol});
    if !port.name.is_empty() {
        out["name"] = port.name.as_str().into();
    }
    if let Some(app) = &port.app_protocol {
        out["appProtocol"] = app.as_str().into();
    }
    out
}

#[cfg(test)]
mod tests {
    use super::{super::pods::tests::pod, *};

    #[test]
    fn endpoints_follow_selector_and_readiness() {
        let service = json!({"metadata": {"name": "s"}, "spec": {
            "selector": {"app": "a"},
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}],
        }});
        let mut over = pod("over", "10.0.0.4", "True");
        over["status"]["phase"] = "Failed".into();
        let mut other = pod("other", "10.0.0.5", "True");
        other["metadata"]["labels"] = json!({});
        let mut leaving = pod("leaving", "10.0.0.6", "True");
        leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        let all = [
            pod("b", "10.0.0.3", "True"),
            pod("a", "10.0.0.2", "True"),
            pod("late", "10.0.0.9", "False"),
            pod("waiting", "", "False"),
            over,
            other,
            leaving,
        ];
        let found = of(&service, &all);
        let ips = |list: &str| -> Vec<&str> {
            let all = found[0][list].as_array().expect("a list").iter();
            all.map(|one| one["ip"].as_str().expect("an address"))
                .collect()
        };
        assert_eq!(ips("addresses"), ["10.0.0.2", "10.0.0.3"]);
        assert_eq!(ips("notReadyAddresses"), ["10.0.0.9"]);
        assert_eq!(found[0]["addresses"][0]["hostname"], "a");
        assert_eq!(
            found[0]["ports"],
            json!([{"name": "http", "port": 8080, "protocol": "TCP"}])
        );
        let none = json!({"spec": {"selector": {"app": "x"}}});
        assert!(of(&none, &all).is_empty());
    }
}
