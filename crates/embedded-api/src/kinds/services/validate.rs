//! Validation of services.

use std::{collections::BTreeSet, net::IpAddr};

use apimachinery::{Violation, names};
use serde_json::{Value, json};

use super::super::fields::{check_enum, port_name};
use crate::services::{is_external, is_headless, needs_health_check};

const TYPES: [&str; 4] = ["ClusterIP", "ExternalName", "LoadBalancer", "NodePort"];
const LAST_TIMEOUT: i64 = 86_400;

/// One group of checks.
type Check = fn(&Value, &mut Vec<Violation>);

const CHECKS: [Check; 7] = [
    check_type,
    check_ports,
    check_duplicate_ports,
    check_affinity,
    check_addresses,
    check_traffic,
    check_balancer,
];

pub(super) fn service(live: Option<&Value>, service: &Value) -> Vec<Violation> {
    let spec = &service["spec"];
    let mut wrong = Vec::new();
    if let Some(live) = live {
        check_change(&live["spec"], spec, &mut wrong);
    }
    for check in CHECKS {
        check(spec, &mut wrong);
    }
    wrong
}

fn check_change(live: &Value, spec: &Value, wrong: &mut Vec<Violation>) {
    let is_external_name = |spec: &Value| spec["type"] == "ExternalName";
    let before = items(&live["clusterIPs"]);
    if !is_external_name(live) && !is_external_name(spec) && !before.is_empty() {
        let found = &spec["clusterIPs"];
        let why = match items(found).first() {
            None => Some("primary clusterIP can not be unset"),
            Some(first) if Some(first) != before.first() => Some("may not change once set"),
            Some(_) => None,
        };
        let found = if found.is_null() {
            json!([])
        } else {
            found.clone()
        };
        wrong.extend(why.map(|why| Violation::invalid("spec.clusterIPs[0]", found, why)));
    }
    if needs_health_check(live)
        && needs_health_check(spec)
        && live["healthCheckNodePort"] != spec["healthCheckNodePort"]
    {
        let why = "field is immutable";
        wrong.push(Violation::forbidden("spec.healthCheckNodePort", why));
    }
    let is_balancer = |spec: &Value| spec["type"] == "LoadBalancer";
    if is_balancer(live)
        && is_balancer(spec)
        && live["loadBalancerClass"] != spec["loadBalancerClass"]
    {
        let found = spec["loadBalancerClass"].clone();
        let why = "may not change once set";
        wrong.push(Violation::invalid("spec.loadBalancerClass", found, why));
    }
}

fn check_type(spec: &Value, wrong: &mut Vec<Violation>) {
    let kind = spec["type"].as_str().unwrap_or_default();
    if items(&spec["ports"]).is_empty() && !is_headless(spec) && kind != "ExternalName" {
        wrong.push(Violation::required("spec.ports", ""));
    }
    if is_headless(spec) && matches!(kind, "LoadBalancer" | "NodePort") {
        let why = format!("may not be set to 'None' for {kind} services");
        wrong.push(Violation::invalid("spec.clusterIPs[0]", "None", why));
    }
    if kind == "ExternalName" {
        for field in ["clusterIPs", "ipFamilies", "ipFamilyPolicy"] {
            let is_empty = spec[field].is_null() || spec[field] == json!([]);
            if !is_empty {
                let why = "may not be set for ExternalName services";
                wrong.push(Violation::forbidden(format!("spec.{field}"), why));
            }
        }
        let name = spec["externalName"].as_str().unwrap_or_default();
        let name = name.strip_suffix('.').unwrap_or(name);
        if name.is_empty() {
            wrong.push(Violation::required("spec.externalName", ""));
        } else {
            let found = names::dns_subdomain(name).into_iter();
            wrong.extend(found.map(|why| Violation::invalid("spec.externalName", name, why)));
        }
    }
    check_enum(spec, "spec", "type", &TYPES, wrong);
}

fn check_ports(spec: &Value, wrong: &mut Vec<Violation>) {
    let ports = items(&spec["ports"]);
    let mut seen = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let path = format!("spec.ports[{at}]");
        let name = port["name"].as_str().unwrap_or_default();
        if name.is_empty() {
            if ports.len() > 1 {
                wrong.push(Violation::required(format!("{path}.name"), ""));
            }
        } else {
            let found = names::dns_label(name).into_iter();
            wrong.extend(found.map(|why| Violation::invalid(format!("{path}.name"), name, why)));
            if !seen.insert(name) {
                wrong.push(Violation::duplicate(format!("{path}.name"), name));
            }
        }
        check_number(&port["port"], &format!("{path}.port"), wrong);
        check_enum(port, &path, "protocol", &["SCTP", "TCP", "UDP"], wrong);
        match &port["targetPort"] {
            Value::String(name) => {
                let at = format!("{path}.targetPort");
                let found = port_name(name).into_iter();
                wrong.extend(found.map(|why| Violation::invalid(at.clone(), name.as_str(), why)));
            }
            number => check_number(number, &format!("{path}.targetPort"), wrong),
        }
        if spec["type"] == "ClusterIP" && port["nodePort"].as_i64().is_some_and(|one| one != 0) {
            let why = "may not be used when `type` is 'ClusterIP'";
            wrong.push(Violation::forbidden(format!("{path}.nodePort"), why));
        }
    }
}

fn check_number(number: &Value, path: &str, wrong: &mut Vec<Violation>) {
    let is_valid = number
        .as_i64()
        .is_some_and(|number| (1..=65535).contains(&number));
    if !is_valid {
        let found = number.as_i64().unwrap_or_default();
        let why = "must be between 1 and 65535, inclusive";
        wrong.push(Violation::invalid(path, found, why));
    }
}

/// The same node port, or the same port, may occur once per protocol.
fn check_duplicate_ports(spec: &Value, wrong: &mut Vec<Violation>) {
    let ports = items(&spec["ports"]);
    let mut seen = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        let number = port["nodePort"].as_i64().unwrap_or_default();
        if number != 0 && !seen.insert((port["protocol"].to_string(), number)) {
            let path = format!("spec.ports[{at}].nodePort");
            wrong.push(Violation::duplicate(path, number));
        }
    }
    let mut seen = BTreeSet::new();
    for (at, port) in ports.iter().enumerate() {
        if !seen.insert((port["protocol"].to_string(), port["port"].to_string())) {
            let found =
                json!({"protocol": port["protocol"], "port": port["port"], "targetPort": 0});
            wrong.push(Violation::duplicate(format!("spec.ports[{at}]"), found));
        }
    }
}

fn check_affinity(spec: &Value, wrong: &mut Vec<Violation>) {
    check_enum(
        spec,
        "spec",
        "sessionAffinity",
        &["ClientIP", "None"],
        wrong,
    );
    if spec["sessionAffinity"] == "ClientIP" {
        let seconds = spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].as_i64();
        let seconds = seconds.unwrap_or_default();
        if !(1..=LAST_TIMEOUT).contains(&seconds) {
            let path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds";
            let why = format!("must be greater than 0 and less than {LAST_TIMEOUT}");
            wrong.push(Violation::invalid(path, seconds, why));
        }
    }
}

fn check_addresses(spec: &Value, wrong: &mut Vec<Violation>) {
    let why = "must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)";
    for field in ["clusterIPs", "externalIPs"] {
        for (at, address) in items(&spec[field]).iter().enumerate() {
            let text = address.as_str().unwrap_or_default();
            let is_none = field == "clusterIPs" && at == 0 && text == "None";
            if !is_none && text.parse::<IpAddr>().is_err() {
                wrong.push(Violation::invalid(format!("spec.{field}[{at}]"), text, why));
            }
        }
    }
    if spec["type"] == "ExternalName" {
        return;
    }
    let all = items(&spec["clusterIPs"]);
    let first = spec["clusterIP"].as_str().unwrap_or_default();
    match all.first().and_then(Value::as_str) {
        None if first.is_empty() => {}
        None => wrong.push(Violation::required("spec.clusterIPs", "")),
        Some(_) if first.is_empty() => {
            let why = "must be empty when `clusterIP` is not specified";
            wrong.push(Violation::invalid("spec.clusterIPs", json!(all), why));
        }
        Some(found) if found != first => {
            let why = "first value must match `clusterIP`";
            wrong.push(Violation::invalid("spec.clusterIPs", json!(all), why));
        }
        Some(_) if all.len() > 1 && is_headless(spec) => {
            let why = "'None' must be the first and only value";
            wrong.push(Violation::invalid("spec.clusterIPs", json!(all), why));
        }
        Some(_) if all.len() > 1 => {
            let why = "may specify no more than one IP for each IP family";
            wrong.push(Violation::invalid("spec.clusterIPs", json!(all), why));
        }
        Some(_) => {}
    }
    let policies = ["PreferDualStack", "RequireDualStack", "SingleStack"];
    check_enum(spec, "spec", "ipFamilyPolicy", &policies, wrong);
    for (at, family) in items(&spec["ipFamilies"]).iter().enumerate() {
        let found = family.as_str().unwrap_or_default();
        if !["IPv4", "IPv6"].contains(&found) {
            let path = format!("spec.ipFamilies[{at}]");
            wrong.push(Violation::not_supported(path, found, ["IPv4", "IPv6"]));
        }
    }
}

fn check_traffic(spec: &Value, wrong: &mut Vec<Violation>) {
    let field = "externalTrafficPolicy";
    let found = spec[field].as_str().unwrap_or_default();
    if is_external(spec) {
        check_enum(spec, "spec", field, &["Cluster", "Local"], wrong);
    } else if !found.is_empty() {
        let why = "may only be set for externally-accessible services";
        wrong.push(Violation::invalid(format!("spec.{field}"), found, why));
    }
    check_enum(
        spec,
        "spec",
        "internalTrafficPolicy",
        &["Cluster", "Local"],
        wrong,
    );
    let check_port = spec["healthCheckNodePort"].as_i64().unwrap_or_default();
    if !needs_health_check(spec) && check_port != 0 {
        let why =
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'";
        wrong.push(Violation::invalid(
            "spec.healthCheckNodePort",
            check_port,
            why,
        ));
    }
}

fn check_balancer(spec: &Value, wrong: &mut Vec<Violation>) {
    if spec["type"] == "LoadBalancer" {
        return;
    }
    let why = "may only be used when `type` is 'LoadBalancer'";
    for (field, path) in [
        ("loadBalancerSourceRanges", "spec.LoadBalancerSourceRanges"),
        (
            "allocateLoadBalancerNodePorts",
            "spec.allocateLoadBalancerNodePorts",
        ),
        ("loadBalancerClass", "spec.loadBalancerClass"),
    ] {
        if !spec[field].is_null() && spec[field] != json!([]) {
            wrong.push(Violation::forbidden(path, why));
        }
    }
}

fn items(list: &Value) -> &[Value] {
    list.as_array().map_or(&[], Vec::as_slice)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(live: Option<Value>, spec: &Value) -> Vec<String> {
        let mut object = json!({"metadata": {"name": "s"}, "spec": spec});
        super::super::defaults::service(&mut object);
        let live = live.map(|spec| json!({"spec": spec}));
        let found = service(live.as_ref(), &object);
        found.iter().map(ToString::to_string).collect()
    }

    #[test]
    fn invalid_services_are_refused_with_the_field() {
        for (spec, expected) in [
            (json!({"ports": [{"port": 80}]}), vec![]),
            (json!({}), vec!["spec.ports: Required value"]),
            (
                json!({"ports": [{"port": 80}, {"name": "a", "port": 81}]}),
                vec!["spec.ports[0].name: Required value"],
            ),
            (
                json!({"ports": [{"port": 0, "targetPort": "a--b"}]}),
                vec![
                    "spec.ports[0].port: Invalid value: 0: must be between 1 and 65535, inclusive",
                    "spec.ports[0].targetPort: Invalid value: \"a--b\": must not contain consecutive hyphens",
                ],
            ),
            (
                json!({"ports": [{"port": 80, "nodePort": 30080}]}),
                vec![
                    "spec.ports[0].nodePort: Forbidden: may not be used when `type` is 'ClusterIP'",
                ],
            ),
            (
                json!({"type": "Nodeport", "ports": [{"port": 80}]}),
                vec![
                    "spec.type: Unsupported value: \"Nodeport\": supported values: \"ClusterIP\", \
                      \"ExternalName\", \"LoadBalancer\", \"NodePort\"",
                ],
            ),
            (
                json!({"ports": [{"port": 80}], "sessionAffinity": "ClientIP",
                       "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 86401}}}),
                vec![
                    "spec.sessionAffinityConfig.clientIP.timeoutSeconds: Invalid value: 86401: must be \
                      greater than 0 and less than 86400",
                ],
            ),
            (
                json!({"type": "ExternalName", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]}),
                vec![
                    "spec.clusterIPs: Forbidden: may not be set for ExternalName services",
                    "spec.externalName: Required value",
                ],
            ),
            (
                json!({"type": "NodePort", "clusterIP": "None", "clusterIPs": ["None"],
                       "ports": [{"port": 80}]}),
                vec![
                    "spec.clusterIPs[0]: Invalid value: \"None\": may not be set to 'None' for NodePort services",
                ],
            ),
            (
                json!({"ports": [{"port": 80}], "externalTrafficPolicy": "Local"}),
                vec![
                    "spec.externalTrafficPolicy: Invalid value: \"Local\": may only be set for \
                      externally-accessible services",
                ],
            ),
            (
                json!({"ports": [{"port": 80}], "clusterIP": "10.0.0.x", "clusterIPs": ["10.0.0.x"]}),
                vec![
                    "spec.clusterIPs[0]: Invalid value: \"10.0.0.x\": must be a valid IP address, \
                      (e.g. 10.9.8.7 or 2001:db8::ffff)",
                ],
            ),
            (
                json!({"type": "NodePort", "ports": [
                    {"name": "a", "port": 80, "nodePort": 30080},
                    {"name": "b", "port": 80, "nodePort": 30080}]}),
                vec![
                    "spec.ports[1].nodePort: Duplicate value: 30080",
                    "spec.ports[1]: Duplicate value: {\"protocol\":\"TCP\",\"port\":80,\"targetPort\":0}",
                ],
            ),
        ] {
            assert_eq!(texts(None, &spec), expected, "{spec}");
        }
    }

    #[test]
    fn cluster_ip_cannot_change() {
        let live =
            json!({"type": "ClusterIP", "clusterIP": "10.0.0.1", "clusterIPs": ["10.0.0.1"]});
        let spec =
            json!({"clusterIP": "10.0.0.2", "clusterIPs": ["10.0.0.2"], "ports": [{"port": 1}]});
        assert_eq!(
            texts(Some(live), &spec),
            ["spec.clusterIPs[0]: Invalid value: [\"10.0.0.2\"]: may not change once set"]
        );
    }
}
