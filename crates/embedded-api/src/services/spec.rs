//! The fields of a service that decide about addresses and ports.

use serde_json::Value;

/// A service without a cluster IP of its own.
pub(crate) fn is_headless(spec: &Value) -> bool {
    spec["clusterIP"] == "None"
}

pub(super) fn needs_cluster_ip(spec: &Value) -> bool {
    spec["type"] != "ExternalName"
}

pub(super) fn needs_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort" || spec["type"] == "LoadBalancer"
}

/// Whether ports without a number get one.
pub(super) fn assigns_node_ports(spec: &Value) -> bool {
    spec["type"] == "NodePort"
        || (spec["type"] == "LoadBalancer" && spec["allocateLoadBalancerNodePorts"] != false)
}

/// Whether load balancers ask the node for ready endpoints.
pub(crate) fn needs_health_check(spec: &Value) -> bool {
    spec["type"] == "LoadBalancer" && spec["externalTrafficPolicy"] == "Local"
}

/// Whether packets from outside of the cluster may arrive.
pub(crate) fn is_external(spec: &Value) -> bool {
    let has_addresses = spec["externalIPs"]
        .as_array()
        .is_some_and(|all| !all.is_empty());
    needs_node_ports(spec) || (spec["type"] == "ClusterIP" && has_addresses)
}

pub(super) fn has_selector(spec: &Value) -> bool {
    spec["selector"]
        .as_object()
        .is_some_and(|all| !all.is_empty())
}

/// A port number; zero counts as absent.
pub(super) fn number(port: &Value) -> Option<u16> {
    let number = port.as_u64().and_then(|number| u16::try_from(number).ok());
    number.filter(|number| *number > 0)
}

/// Every node port in the spec, with that for health checks.
pub(super) fn node_ports(spec: &Value) -> impl Iterator<Item = u16> {
    let ports = spec["ports"].as_array().into_iter().flatten();
    ports
        .filter_map(|port| number(&port["nodePort"]))
        .chain(number(&spec["healthCheckNodePort"]))
}

pub(crate) fn remove(object: &mut Value, field: &str) {
    if let Value::Object(fields) = object {
        fields.shift_remove(field);
    }
}

pub(super) fn is_absent(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        _ => false,
    }
}
