//! Defaults of services.

use serde_json::{Value, json};

use super::super::fields::{each, fill, fill_absent};
use crate::services::{is_external, remove};

/// Three hours, in seconds.
const AFFINITY_TIMEOUT: i64 = 10_800;

pub(super) fn service(service: &mut Value) {
    let Some(spec) = service.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    fill(spec, "sessionAffinity", "None");
    if spec["sessionAffinity"] == "None" {
        remove(spec, "sessionAffinityConfig");
    }
    if spec["sessionAffinity"] == "ClientIP"
        && spec["sessionAffinityConfig"]["clientIP"]["timeoutSeconds"].is_null()
    {
        spec["sessionAffinityConfig"] = json!({"clientIP": {"timeoutSeconds": AFFINITY_TIMEOUT}});
    }
    fill(spec, "type", "ClusterIP");
    each(spec, "ports", |port| {
        fill(port, "protocol", "TCP");
        let number = port["port"].clone();
        fill(port, "targetPort", number);
    });
    if is_external(spec) {
        fill(spec, "externalTrafficPolicy", "Cluster");
    }
    if matches!(
        spec["type"].as_str(),
        Some("ClusterIP" | "NodePort" | "LoadBalancer")
    ) {
        fill_absent(spec, "internalTrafficPolicy", "Cluster");
    }
    if spec["type"] == "LoadBalancer" {
        fill_absent(spec, "allocateLoadBalancerNodePorts", true);
    }
    fill(service, "status", json!({"loadBalancer": {}}));
    if let Some(balancer) = service.pointer_mut("/status/loadBalancer") {
        each(balancer, "ingress", |entry| {
            if entry["ip"].is_string() {
                fill_absent(entry, "ipMode", "VIP");
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn defaults_depend_on_the_type() {
        for (spec, expected) in [
            (
                json!({"ports": [{"port": 80}]}),
                json!({"ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                       "sessionAffinity": "None", "type": "ClusterIP",
                       "internalTrafficPolicy": "Cluster"}),
            ),
            (
                json!({"type": "", "sessionAffinity": "ClientIP", "ports": [
                    {"port": 80, "protocol": "", "targetPort": 0}]}),
                json!({"type": "ClusterIP", "sessionAffinity": "ClientIP",
                       "ports": [{"port": 80, "protocol": "TCP", "targetPort": 80}],
                       "sessionAffinityConfig": {"clientIP": {"timeoutSeconds": 10800}},
                       "internalTrafficPolicy": "Cluster"}),
            ),
            (
                json!({"type": "NodePort", "sessionAffinityConfig": {"clientIP": {}}}),
                json!({"type": "NodePort", "sessionAffinity": "None",
                       "externalTrafficPolicy": "Cluster", "internalTrafficPolicy": "Cluster"}),
            ),
            (
                json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local"}),
                json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local",
                       "sessionAffinity": "None", "internalTrafficPolicy": "Cluster",
                       "allocateLoadBalancerNodePorts": true}),
            ),
            (
                json!({"type": "ExternalName", "externalName": "a.b"}),
                json!({"type": "ExternalName", "externalName": "a.b", "sessionAffinity": "None"}),
            ),
        ] {
            let mut object = json!({"spec": spec});
            service(&mut object);
            assert_eq!(object["spec"], expected);
            let before = object.clone();
            service(&mut object);
            assert_eq!(object, before, "defaults are idempotent");
        }
    }
}
