//! Endpoint slices, made of pods or of Endpoints. Pure.

use std::collections::BTreeMap;

use apimachinery::meta;
use serde_json::{Map, Value, json};

use super::pods::{self, Port};

pub(super) const SERVICE_NAME: &str = "kubernetes.io/service-name";
pub(super) const MANAGED_BY: &str = "endpointslice.kubernetes.io/managed-by";
const HEADLESS: &str = "service.kubernetes.io/headless";
/// Endpoints of one slice.
const OF_PODS: usize = 100;
const OF_ENDPOINTS: usize = 1000;
/// Annotations of Endpoints that mean nothing on a slice.
const NOT_COPIED: [&str; 2] = [
    "kubectl.kubernetes.io/last-applied-configuration",
    "endpoints.kubernetes.io/last-change-trigger-time",
];

/// Who makes the slices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Maker {
    /// From the pods of a service.
    Selection,
    /// From Endpoints of a user.
    Mirror,
}

impl Maker {
    /// The value of the label.
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Selection => "endpointslice-controller.k8s.io",
            Self::Mirror => "endpointslicemirroring-controller.k8s.io",
        }
    }
}

/// The slices of a service with a selector: at least one, even without pods.
pub(super) fn of_pods(service: &Value, all: &[Value]) -> Vec<Value> {
    let publish_all = service["spec"]["publishNotReadyAddresses"] == true;
    let mut groups: BTreeMap<Vec<Port>, Vec<Value>> = BTreeMap::new();
    for pod in all.iter().filter(|pod| pods::is_selected(service, pod)) {
        let (Some(ip), Some(ports)) = (pods::address(pod), pods::ports(service, pod)) else {
            continue;
        };
        let (serving, terminating) = (pods::is_ready(pod), meta::is_deleting(pod));
        let mut endpoint = json!({
            "addresses": [ip],
            "conditions": {
                "ready": publish_all || (serving && !terminating),
                "serving": serving,
                "terminating": terminating,
            },
        });
        if let Some(name) = pods::hostname(service, pod) {
            endpoint["hostname"] = name.into();
        }
        endpoint["targetRef"] = pods::reference(pod);
        if pod["spec"]["nodeName"].is_string() {
            endpoint["nodeName"] = pod["spec"]["nodeName"].clone();
        }
        groups.entry(ports).or_default().push(endpoint);
    }
    let mut slices = Vec::new();
    for (ports, mut endpoints) in groups {
        endpoints.sort_by_key(|one| one["addresses"].to_string());
        let ports: Vec<Value> = ports.iter().map(port).collect();
        slices.extend(split("IPv4", &ports, &endpoints, OF_PODS));
    }
    if slices.is_empty() {
        slices.push(json!({"addressType": "IPv4", "ports": [], "endpoints": []}));
    }
    let metadata = of_service(service);
    for slice in &mut slices {
        slice["metadata"] = metadata.clone();
    }
    slices
}

/// The slices of Endpoints that a user wrote.
pub(super) fn of_endpoints(endpoints: &Value) -> Vec<Value> {
    let items = |value: &Value| value.as_array().cloned().unwrap_or_default();
    let mut slices = Vec::new();
    for subset in items(&endpoints["subsets"]) {
        let ports: Vec<Value> = items(&subset["ports"]).iter().map(mirrored_port).collect();
        let mut by_family: BTreeMap<&str, Vec<Value>> = BTreeMap::new();
        for (list, ready) in [("addresses", true), ("notReadyAddresses", false)] {
            for address in items(&subset[list]) {
                let ip = address["ip"].as_str().unwrap_or_default();
                let family = if ip.contains(':') { "IPv6" } else { "IPv4" };
                let endpoint = mirrored(&address, ready);
                by_family.entry(family).or_default().push(endpoint);
            }
        }
        for (family, endpoints) in by_family {
            slices.extend(split(family, &ports, &endpoints, OF_ENDPOINTS));
        }
    }
    let metadata = of_copy(endpoints);
    for slice in &mut slices {
        slice["metadata"] = metadata.clone();
    }
    slices
}

fn split(
    family: &str,
    ports: &[Value],
    endpoints: &[Value],
    at_most: usize,
) -> impl Iterator<Item = Value> {
    endpoints
        .chunks(at_most)
        .map(move |part| json!({"addressType": family, "ports": ports, "endpoints": part}))
}

fn port(port: &Port) -> Value {
    let mut out = json!({"name": port.name, "protocol": port.protocol, "port": port.number});
    if let Some(app) = &port.app_protocol {
        out["appProtocol"] = app.as_str().into();
    }
    out
}

fn mirrored_port(port: &Value) -> Value {
    let mut out = json!({
        "name": port["name"].as_str().unwrap_or_default(),
        "protocol": port["protocol"].as_str().unwrap_or("TCP"),
        "port": port["port"],
    });
    if port["appProtocol"].is_string() {
        out["appProtocol"] = port["appProtocol"].clone();
    }
    out
}

fn mirrored(address: &Value, ready: bool) -> Value {
    let mut out = json!({"addresses": [address["ip"]], "conditions": {"ready": ready}});
    for field in ["hostname", "targetRef", "nodeName"] {
        if !address[field].is_null() {
            out[field] = address[field].clone();
        }
    }
    out
}

fn of_service(service: &Value) -> Value {
    let mut labels = labels(service, Maker::Selection);
    if service["spec"]["clusterIP"] == "None" {
        labels.insert(HEADLESS.to_owned(), "".into());
    }
    metadata(service, "Service", &labels)
}

fn of_copy(endpoints: &Value) -> Value {
    let mut metadata = metadata(endpoints, "Endpoints", &labels(endpoints, Maker::Mirror));
    let annotations = endpoints["metadata"]["annotations"].as_object();
    let annotations = annotations.into_iter().flatten();
    let copied: Map<String, Value> = annotations
        .filter(|(key, _)| !NOT_COPIED.contains(&key.as_str()))
        .map(|(key, value)| (key.clone(), value.clone()))
        .collect();
    if !copied.is_empty() {
        metadata["annotations"] = copied.into();
    }
    metadata
}

/// The labels of the source, with those of the slice.
fn labels(source: &Value, maker: Maker) -> Map<String, Value> {
    let mut labels: Map<String, Value> = meta::labels(source)
        .filter(|(key, _)| *key != HEADLESS)
        .map(|(key, value)| (key.to_owned(), value.into()))
        .collect();
    labels.insert(SERVICE_NAME.to_owned(), meta::name(source).into());
    labels.insert(MANAGED_BY.to_owned(), maker.name().into());
    labels
}

fn metadata(owner: &Value, kind: &str, labels: &Map<String, Value>) -> Value {
    json!({
        "generateName": format!("{}-", meta::name(owner)),
        "labels": labels,
        "ownerReferences": [{
            "apiVersion": "v1", "kind": kind, "name": meta::name(owner),
            "uid": meta::uid(owner), "controller": true, "blockOwnerDeletion": true,
        }],
    })
}

#[cfg(test)]
mod tests {
    use super::{super::pods::tests::pod, *};

    fn service() -> Value {
        json!({"metadata": {"name": "s", "uid": "u", "labels": {"l": "m"}}, "spec": {
            "clusterIP": "None", "selector": {"app": "a"},
            "ports": [{"name": "http", "port": 80, "targetPort": "web"}]}})
    }

    #[test]
    fn slices_have_the_pods_of_a_service() {
        let mut leaving = pod("leaving", "10.0.0.3", "True");
        leaving["metadata"]["deletionTimestamp"] = "2026-01-02T03:04:05Z".into();
        let found = of_pods(&service(), &[pod("b", "10.0.0.2", "True"), leaving]);
        assert_eq!(found.len(), 1);
        let conditions = |at: usize| found[0]["endpoints"][at]["conditions"].clone();
        assert_eq!(
            conditions(0),
            json!({"ready": true, "serving": true, "terminating": false})
        );
        assert_eq!(
            conditions(1),
            json!({"ready": false, "serving": true, "terminating": true})
        );
        assert_eq!(found[0]["endpoints"][0]["hostname"], "b");
        assert_eq!(
            found[0]["ports"],
            json!([{"name": "http", "protocol": "TCP", "port": 8080}])
        );
        assert_eq!(
            found[0]["metadata"]["labels"],
            json!({"l": "m", SERVICE_NAME: "s", MANAGED_BY: "endpointslice-controller.k8s.io",
                   HEADLESS: ""})
        );
        assert_eq!(found[0]["metadata"]["ownerReferences"][0]["uid"], "u");
    }

    #[test]
    fn slices_are_bounded_and_never_missing() {
        let many: Vec<Value> = (0..201)
            .map(|at| {
                pod(
                    &format!("p{at}"),
                    &format!("10.0.{}.{}", at / 200, at % 200),
                    "True",
                )
            })
            .collect();
        let sizes = |all: &[Value]| -> Vec<usize> {
            let found = of_pods(&service(), all);
            let lengths = found
                .iter()
                .map(|one| one["endpoints"].as_array().map_or(0, Vec::len));
            lengths.collect()
        };
        assert_eq!(sizes(&many), [100, 100, 1]);
        assert_eq!(sizes(&[]), [0]);
    }

    #[test]
    fn endpoints_of_users_are_copied() {
        let endpoints = json!({
            "metadata": {"name": "e", "uid": "u", "labels": {"l": "m"}, "annotations":
                {"a": "b", "kubectl.kubernetes.io/last-applied-configuration": "{}"}},
            "subsets": [{
                "addresses": [{"ip": "10.0.0.1", "hostname": "h"}, {"ip": "fd00::1"}],
                "notReadyAddresses": [{"ip": "10.0.0.2"}],
                "ports": [{"port": 80}],
            }],
        });
        let found = of_endpoints(&endpoints);
        assert_eq!(
            found[0]["endpoints"],
            json!([{"addresses": ["10.0.0.1"], "conditions": {"ready": true}, "hostname": "h"},
                   {"addresses": ["10.0.0.2"], "conditions": {"ready": false}}])
        );
        assert_eq!(found[1]["addressType"], "IPv6");
        assert_eq!(
            found[1]["ports"],
            json!([{"name": "", "protocol": "TCP", "port": 80}])
        );
        assert_eq!(found[0]["metadata"]["annotations"], json!({"a": "b"}));
        let labels = &found[0]["metadata"]["labels"];
        assert_eq!(
            labels[MANAGED_BY],
            "endpointslicemirroring-controller.k8s.io"
        );
        assert!(of_endpoints(&json!({"metadata": {"name": "e"}})).is_empty());
    }
}
