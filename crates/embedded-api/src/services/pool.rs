//! Assignment of addresses and ports to one service. Pure.

use std::{collections::BTreeSet, net::Ipv4Addr};

use apimachinery::{Violation, meta};
use serde_json::{Value, json};

use super::{
    ServiceSettings,
    spec::{
        assigns_node_ports, has_selector, is_absent, is_headless, needs_cluster_ip,
        needs_health_check, needs_node_ports, node_ports, number,
    },
};

/// Why a service gets no address or port.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Refusal {
    /// The client asked for something that it cannot have.
    Invalid(Box<Violation>),
    /// Nothing is free, or the request cannot be served.
    Failed(String),
}

impl Refusal {
    fn invalid(wrong: Violation) -> Self {
        Self::Invalid(Box::new(wrong))
    }
}

/// The addresses and ports of all other services.
#[derive(Debug, Clone)]
pub(super) struct Pool {
    settings: ServiceSettings,
    addresses: BTreeSet<Ipv4Addr>,
    ports: BTreeSet<u16>,
}

impl Pool {
    pub(super) fn new<'a>(
        settings: ServiceSettings,
        others: impl Iterator<Item = &'a Value>,
    ) -> Self {
        let mut pool = Self {
            settings,
            addresses: BTreeSet::new(),
            ports: BTreeSet::new(),
        };
        for service in others {
            let spec = &service["spec"];
            let addresses = spec["clusterIPs"].as_array().into_iter().flatten();
            let addresses = addresses.chain([&spec["clusterIP"]]);
            pool.addresses.extend(addresses.filter_map(address));
            pool.ports.extend(node_ports(spec));
        }
        pool
    }

    /// Completes a service; `live` is its spec before an update.
    pub(super) fn assign(
        &mut self,
        live: Option<&Value>,
        service: &mut Value,
    ) -> Result<(), Refusal> {
        let seed = meta::uid(service).to_owned();
        let spec = &mut service["spec"];
        if needs_cluster_ip(spec) {
            // Also `None`, the address of a headless service.
            if !is_absent(&spec["clusterIP"]) && is_absent(&spec["clusterIPs"]) {
                spec["clusterIPs"] = json!([spec["clusterIP"]]);
            }
            set_families(spec)?;
            let had_address =
                live.is_some_and(|live| needs_cluster_ip(live) && !is_absent(&live["clusterIP"]));
            if !is_headless(spec) && !had_address {
                self.assign_address(spec, &seed)?;
            }
        }
        // The service's own ports stay its own.
        let own: BTreeSet<u16> = live
            .map(|live| node_ports(live).collect())
            .unwrap_or_default();
        if needs_node_ports(spec) {
            self.assign_ports(spec, &own, &seed)?;
        }
        if needs_health_check(spec) {
            self.assign_health_check(spec, &own, &seed)?;
        }
        Ok(())
    }

    fn assign_address(&self, spec: &mut Value, seed: &str) -> Result<(), Refusal> {
        if is_absent(&spec["clusterIP"]) {
            let mut candidates = self.settings.candidates(seed);
            let free = candidates.find(|one| !self.addresses.contains(one));
            let Some(free) = free else {
                let why = "failed to allocate a serviceIP: range is full";
                return Err(Refusal::Failed(why.to_owned()));
            };
            spec["clusterIP"] = free.to_string().into();
            spec["clusterIPs"] = json!([free.to_string()]);
            return Ok(());
        }
        // Validation reports a malformed one.
        let Some(wanted) = address(&spec["clusterIP"]) else {
            return Ok(());
        };
        let why = if !self.settings.holds(wanted) {
            format!(
                "the provided IP ({wanted}) is not in the valid range. The range of valid IPs is {}",
                self.settings
            )
        } else if self.addresses.contains(&wanted) {
            "provided IP is already allocated".to_owned()
        } else {
            return Ok(());
        };
        let why = format!("failed to allocate IP {wanted}: {why}");
        let wrong = Violation::invalid("spec.clusterIPs", spec["clusterIPs"].clone(), why);
        Err(Refusal::invalid(wrong))
    }

    /// Ports with the same number share their node port, whatever their protocols.
    fn assign_ports(
        &mut self,
        spec: &mut Value,
        own: &BTreeSet<u16>,
        seed: &str,
    ) -> Result<(), Refusal> {
        let assigns = assigns_node_ports(spec);
        let Some(ports) = spec.get_mut("ports").and_then(Value::as_array_mut) else {
            return Ok(());
        };
        let mut taken_here = BTreeSet::new();
        for (at, port) in ports.iter().enumerate() {
            let Some(wanted) = number(&port["nodePort"]) else {
                continue;
            };
            if !own.contains(&wanted) && !taken_here.contains(&wanted) {
                self.take(wanted).map_err(|why| {
                    let field = format!("spec.ports[{at}].nodePort");
                    Refusal::invalid(Violation::invalid(field, wanted, why))
                })?;
            }
            taken_here.insert(wanted);
        }
        if !assigns {
            return Ok(());
        }
        for at in 0..ports.len() {
            let missing = ports
                .get(at)
                .is_some_and(|port| number(&port["nodePort"]).is_none());
            if !missing {
                continue;
            }
            let wanted = ports.get(at).map(|port| port["port"].clone());
            let same = ports.iter().find(|other| {
                Some(&other["port"]) == wanted.as_ref() && number(&other["nodePort"]).is_some()
            });
            let assigned = match same.and_then(|other| number(&other["nodePort"])) {
                Some(shared) => shared,
                None => self.next(own, &taken_here, seed)?,
            };
            taken_here.insert(assigned);
            if let Some(port) = ports.get_mut(at) {
                port["nodePort"] = assigned.into();
            }
        }
        Ok(())
    }

    fn assign_health_check(
        &mut self,
        spec: &mut Value,
        own: &BTreeSet<u16>,
        seed: &str,
    ) -> Result<(), Refusal> {
        let here: BTreeSet<u16> = node_ports(spec).collect();
        match number(&spec["healthCheckNodePort"]) {
            Some(wanted) if own.contains(&wanted) => {}
            Some(wanted) => self.take(wanted).map_err(|why| {
                let what = "failed to allocate requested HealthCheck NodePort";
                Refusal::Failed(format!("{what} {wanted}: {why}"))
            })?,
            None => spec["healthCheckNodePort"] = self.next(own, &here, seed)?.into(),
        }
        Ok(())
    }

    fn take(&mut self, wanted: u16) -> Result<(), String> {
        if !ServiceSettings::is_node_port(wanted) {
            let range = ServiceSettings::node_port_range();
            return Err(format!(
                "provided port is not in the valid range. The range of valid ports is {range}"
            ));
        }
        if !self.ports.insert(wanted) {
            return Err("provided port is already allocated".to_owned());
        }
        Ok(())
    }

    fn next(
        &mut self,
        own: &BTreeSet<u16>,
        here: &BTreeSet<u16>,
        seed: &str,
    ) -> Result<u16, Refusal> {
        let is_free =
            |port: &u16| !self.ports.contains(port) && !own.contains(port) && !here.contains(port);
        let Some(free) = ServiceSettings::node_ports(seed).find(is_free) else {
            let why = "failed to allocate a nodePort: range is full";
            return Err(Refusal::Failed(why.to_owned()));
        };
        self.ports.insert(free);
        Ok(free)
    }
}

fn address(value: &Value) -> Option<Ipv4Addr> {
    value.as_str()?.parse().ok()
}

/// This server has IPv4 alone. A headless service without selector may claim both families, since
/// its endpoints are not ours.
fn set_families(spec: &mut Value) -> Result<(), Refusal> {
    let is_free = is_headless(spec) && !has_selector(spec);
    if is_absent(&spec["ipFamilyPolicy"]) {
        let policy = if is_free {
            "RequireDualStack"
        } else {
            "SingleStack"
        };
        spec["ipFamilyPolicy"] = policy.into();
    }
    let policy = spec["ipFamilyPolicy"]
        .as_str()
        .unwrap_or_default()
        .to_owned();
    if is_absent(&spec["ipFamilies"]) {
        spec["ipFamilies"] = json!(["IPv4"]);
    }
    if is_free {
        let only = spec["ipFamilies"].as_array().filter(|all| all.len() == 1);
        if policy != "SingleStack"
            && let Some(first) = only.and_then(|all| all.first()).cloned()
        {
            let other = if first == "IPv4" { "IPv6" } else { "IPv4" };
            spec["ipFamilies"] = json!([first, other]);
        }
        return Ok(());
    }
    if policy == "RequireDualStack" {
        let why = "this cluster is not configured for dual-stack services";
        let wrong = Violation::invalid("spec.ipFamilyPolicy", policy, why);
        return Err(Refusal::invalid(wrong));
    }
    let families = spec["ipFamilies"].as_array().into_iter().flatten();
    for (at, family) in families.enumerate() {
        if family == "IPv6" {
            let why = "not configured on this cluster";
            let field = format!("spec.ipFamilies[{at}]");
            return Err(Refusal::invalid(Violation::invalid(field, "IPv6", why)));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn service(spec: &Value) -> Value {
        json!({"metadata": {"name": "s", "uid": "u"}, "spec": spec})
    }

    fn pool(others: &[Value]) -> Pool {
        let settings = ServiceSettings {
            prefix_length: 24,
            ..ServiceSettings::usual()
        };
        Pool::new(settings, others.iter())
    }

    fn assigned(others: &[Value], spec: &Value) -> Result<Value, String> {
        let mut one = service(spec);
        match pool(others).assign(None, &mut one) {
            Ok(()) => Ok(one["spec"].take()),
            Err(Refusal::Invalid(wrong)) => Err(wrong.to_string()),
            Err(Refusal::Failed(why)) => Err(why),
        }
    }

    #[test]
    fn requested_values_are_honoured_or_refused() {
        let other = service(
            &json!({"clusterIP": "10.96.0.7", "ports": [{"nodePort": 30080}],
                                   "healthCheckNodePort": 30081}),
        );
        let others = [other];
        let node_port =
            |port: u16| json!({"type": "NodePort", "ports": [{"port": 80, "nodePort": port}]});
        for (spec, expected) in [
            (json!({"type": "ClusterIP", "clusterIP": "10.96.0.8"}), None),
            (
                json!({"type": "ClusterIP", "clusterIP": "10.96.0.7"}),
                Some(
                    "spec.clusterIPs: Invalid value: [\"10.96.0.7\"]: failed to allocate IP \
                      10.96.0.7: provided IP is already allocated",
                ),
            ),
            (
                json!({"type": "ClusterIP", "clusterIP": "10.1.0.7"}),
                Some(
                    "spec.clusterIPs: Invalid value: [\"10.1.0.7\"]: failed to allocate IP \
                      10.1.0.7: the provided IP (10.1.0.7) is not in the valid range. The range of \
                      valid IPs is 10.96.0.0/24",
                ),
            ),
            (node_port(30079), None),
            (
                node_port(30080),
                Some(
                    "spec.ports[0].nodePort: Invalid value: 30080: provided port is already allocated",
                ),
            ),
            (
                node_port(30081),
                Some(
                    "spec.ports[0].nodePort: Invalid value: 30081: provided port is already allocated",
                ),
            ),
            (
                node_port(80),
                Some(
                    "spec.ports[0].nodePort: Invalid value: 80: provided port is not in the valid \
                      range. The range of valid ports is 30000-32767",
                ),
            ),
            (
                json!({"type": "ClusterIP", "ipFamilies": ["IPv6"]}),
                Some("spec.ipFamilies[0]: Invalid value: \"IPv6\": not configured on this cluster"),
            ),
            (
                json!({"type": "ClusterIP", "ipFamilyPolicy": "RequireDualStack"}),
                Some(
                    "spec.ipFamilyPolicy: Invalid value: \"RequireDualStack\": this cluster is not \
                      configured for dual-stack services",
                ),
            ),
        ] {
            let found = assigned(&others, &spec).err();
            assert_eq!(found.as_deref(), expected, "{spec}");
        }
    }

    #[test]
    fn missing_values_are_assigned_once() {
        let mut all: Vec<Value> = Vec::new();
        let mut addresses = BTreeSet::new();
        for at in 0..254 {
            let mut one = service(&json!({"type": "ClusterIP"}));
            one["metadata"]["uid"] = format!("uid-{at}").into();
            pool(&all).assign(None, &mut one).expect("a free address");
            assert!(addresses.insert(one["spec"]["clusterIP"].to_string()));
            all.push(one);
        }
        let full = assigned(&all, &json!({"type": "ClusterIP"}));
        assert_eq!(
            full.expect_err("full"),
            "failed to allocate a serviceIP: range is full"
        );
        let headless = json!({"type": "ClusterIP", "clusterIP": "None"});
        let headless = assigned(&all, &headless).expect("no address needed");
        assert_eq!(headless["clusterIPs"], json!(["None"]));
        assert_eq!(headless["ipFamilies"], json!(["IPv4", "IPv6"]));
    }

    #[test]
    fn ports_with_one_number_share_their_node_port() {
        let spec = assigned(
            &[],
            &json!({"type": "LoadBalancer", "externalTrafficPolicy": "Local", "ports": [
            {"name": "dns", "port": 53, "protocol": "UDP"},
            {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
            {"name": "web", "port": 80}]}),
        )
        .expect("assigned");
        let ports: Vec<u16> = node_ports(&spec).collect();
        assert_eq!(ports.len(), 4);
        assert_eq!(ports[0], ports[1]);
        assert!(ports[1] != ports[2] && ports[2] != ports[3] && ports[1] != ports[3]);
        let none = json!({"type": "LoadBalancer", "allocateLoadBalancerNodePorts": false,
                          "ports": [{"port": 80}]});
        let spec = assigned(&[], &none).expect("assigned");
        assert_eq!(node_ports(&spec).count(), 0);
    }

    #[test]
    fn an_update_keeps_its_own_ports_and_address() {
        let live = json!({"type": "NodePort", "clusterIP": "10.96.0.9",
                          "ports": [{"port": 1, "nodePort": 30001}]});
        let mut one = service(&live);
        one["spec"]["ports"] = json!([{"port": 1, "nodePort": 30001}, {"port": 2}]);
        pool(&[]).assign(Some(&live), &mut one).expect("assigned");
        let ports: Vec<u16> = node_ports(&one["spec"]).collect();
        assert_eq!(ports[0], 30001);
        assert!(ports[1] > 30001);
    }
}
