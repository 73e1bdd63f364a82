//! Assigned values across an update. Pure.

use std::collections::BTreeSet;

use serde_json::Value;

use super::spec::{
    is_absent, is_external, needs_cluster_ip, needs_health_check, needs_node_ports, node_ports,
    number, remove,
};

/// Restores assigned values that the client did not send.
pub(super) fn keep(live: &Value, spec: &mut Value) {
    if needs_cluster_ip(live) && needs_cluster_ip(spec) {
        let is_same_address =
            is_absent(&spec["clusterIP"]) || spec["clusterIP"] == live["clusterIP"];
        for field in ["clusterIP", "clusterIPs"] {
            let is_kept = is_absent(&spec[field]) && (field == "clusterIP" || is_same_address);
            if is_kept && !is_absent(&live[field]) {
                spec[field] = live[field].clone();
            }
        }
        // A new address in one of the two fields is meant for both.
        if spec["clusterIP"] != live["clusterIP"] && spec["clusterIPs"] == live["clusterIPs"] {
            spec["clusterIPs"] = Value::Array(vec![spec["clusterIP"].clone()]);
        }
        for field in ["ipFamilyPolicy", "ipFamilies"] {
            if is_absent(&spec[field]) && !is_absent(&live[field]) {
                spec[field] = live[field].clone();
            }
        }
    }
    if needs_node_ports(live) && needs_node_ports(spec) {
        keep_node_ports(live, spec);
    }
    if needs_health_check(live)
        && needs_health_check(spec)
        && number(&spec["healthCheckNodePort"]).is_none()
    {
        spec["healthCheckNodePort"] = live["healthCheckNodePort"].clone();
    }
}

/// A port without a number keeps that of the live port of the same name.
fn keep_node_ports(live: &Value, spec: &mut Value) {
    let name = |port: &Value| port["name"].as_str().unwrap_or_default().to_owned();
    let used: BTreeSet<u16> = node_ports(spec).collect();
    let known = live["ports"].as_array().cloned().unwrap_or_default();
    let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
    for port in ports.into_iter().flatten() {
        if number(&port["nodePort"]).is_some() {
            continue;
        }
        let same = known.iter().find(|one| name(one) == name(port));
        let before = same.and_then(|one| number(&one["nodePort"]));
        if let Some(before) = before.filter(|before| !used.contains(before)) {
            port["nodePort"] = before.into();
        }
    }
}

/// Removes assigned values that do not fit the new type, unless the client changed them too.
pub(super) fn drop_unfit(live: &Value, service: &mut Value) {
    let Some(spec) = service.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    if needs_cluster_ip(live) && !needs_cluster_ip(spec) {
        let is_same = |field: &str| spec[field] == live[field];
        let mut unfit = Vec::new();
        if is_same("clusterIP") && is_same("clusterIPs") {
            unfit.extend(["clusterIP", "clusterIPs"]);
        }
        unfit.extend(
            ["ipFamilies", "ipFamilyPolicy"]
                .into_iter()
                .filter(|field| is_same(field)),
        );
        for field in unfit {
            remove(spec, field);
        }
    }
    if needs_node_ports(live) && !needs_node_ports(spec) {
        let before: BTreeSet<u16> = node_ports(live).collect();
        if node_ports(spec).all(|port| before.contains(&port)) {
            let ports = spec.get_mut("ports").and_then(Value::as_array_mut);
            ports
                .into_iter()
                .flatten()
                .for_each(|port| remove(port, "nodePort"));
        }
    }
    let was_balancer = live["type"] == "LoadBalancer" && spec["type"] != "LoadBalancer";
    for (field, is_unfit) in [
        (
            "healthCheckNodePort",
            needs_health_check(live) && !needs_health_check(spec),
        ),
        ("allocateLoadBalancerNodePorts", was_balancer),
        ("loadBalancerClass", was_balancer),
        (
            "externalTrafficPolicy",
            is_external(live) && !is_external(spec),
        ),
    ] {
        if is_unfit && spec[field] == live[field] {
            remove(spec, field);
        }
    }
    if spec["type"] != "LoadBalancer" && service["status"].is_object() {
        service["status"]["loadBalancer"] = Value::Object(serde_json::Map::new());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn live() -> Value {
        json!({"type": "NodePort", "clusterIP": "10.96.0.9", "clusterIPs": ["10.96.0.9"],
               "ipFamilies": ["IPv4"], "ipFamilyPolicy": "SingleStack",
               "externalTrafficPolicy": "Cluster",
               "ports": [{"name": "a", "port": 1, "nodePort": 30001},
                         {"name": "b", "port": 2, "nodePort": 30002}]})
    }

    #[test]
    fn values_that_the_client_omits_are_kept() {
        let mut spec = json!({"type": "NodePort", "ports": [
            {"name": "b", "port": 2}, {"name": "c", "port": 3}, {"name": "a", "port": 1, "nodePort": 30009}]});
        keep(&live(), &mut spec);
        assert_eq!(spec["clusterIP"], "10.96.0.9");
        assert_eq!(spec["clusterIPs"], json!(["10.96.0.9"]));
        assert_eq!(spec["ipFamilies"], json!(["IPv4"]));
        assert_eq!(spec["ports"][0]["nodePort"], 30002);
        assert_eq!(spec["ports"][1]["nodePort"], Value::Null);
        assert_eq!(spec["ports"][2]["nodePort"], 30009);
    }

    #[test]
    fn values_that_do_not_fit_a_new_type_are_dropped() {
        let changed = |kind: &str| {
            let mut service = json!({"spec": live(), "status": {}});
            service["spec"]["type"] = kind.into();
            drop_unfit(&live(), &mut service);
            service["spec"].take()
        };
        let internal = changed("ClusterIP");
        assert_eq!(internal["ports"][0], json!({"name": "a", "port": 1}));
        assert_eq!(internal.get("externalTrafficPolicy"), None);
        assert_eq!(internal["clusterIP"], "10.96.0.9");
        let external = changed("ExternalName");
        for field in ["clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            assert_eq!(external.get(field), None, "{field}");
        }
        let mut edited = json!({"spec": live()});
        edited["spec"]["type"] = "ClusterIP".into();
        edited["spec"]["ports"][0]["nodePort"] = 30007.into();
        drop_unfit(&live(), &mut edited);
        // Validation reports it.
        assert_eq!(edited["spec"]["ports"][0]["nodePort"], 30007);
    }
}
