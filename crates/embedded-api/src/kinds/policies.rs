//! Network policies: defaults and validation.

use std::net::IpAddr;

use apimachinery::{Violation, selector::LabelSelector};
use serde_json::{Value, json};

use super::{
    Strategy,
    fields::{each, fill, port_name},
};

pub(crate) const NETWORK_POLICY: Strategy = Strategy {
    default,
    validate: |_, policy| validate(policy),
    ..Strategy::PLAIN
};

/// The directions of connections, with their rules and the peers of a rule.
const DIRECTIONS: [(&str, &str, &str); 2] =
    [("Ingress", "ingress", "from"), ("Egress", "egress", "to")];
const PROTOCOLS: [&str; 3] = ["SCTP", "TCP", "UDP"];

fn default(policy: &mut Value) {
    let Some(spec) = policy.get_mut("spec").filter(|spec| spec.is_object()) else {
        return;
    };
    for (_, rules, _) in DIRECTIONS {
        each(spec, rules, |rule| {
            each(rule, "ports", |port| fill(port, "protocol", "TCP"));
        });
    }
    if items(&spec["policyTypes"]).is_empty() {
        let mut types = vec!["Ingress"];
        if !items(&spec["egress"]).is_empty() {
            types.push("Egress");
        }
        spec["policyTypes"] = json!(types);
    }
}

fn items(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn validate(policy: &Value) -> Vec<Violation> {
    let spec = &policy["spec"];
    let mut wrong = Vec::new();
    check_selector(&spec["podSelector"], "spec.podSelector", &mut wrong);
    for (_, rules, peers) in DIRECTIONS {
        for (at, rule) in items(&spec[rules]).iter().enumerate() {
            let path = format!("spec.{rules}[{at}]");
            for (at, port) in items(&rule["ports"]).iter().enumerate() {
                check_port(port, &format!("{path}.ports[{at}]"), &mut wrong);
            }
            for (at, peer) in items(&rule[peers]).iter().enumerate() {
                check_peer(peer, &format!("{path}.{peers}[{at}]"), &mut wrong);
            }
        }
    }
    let types = items(&spec["policyTypes"]);
    if types.len() > DIRECTIONS.len() {
        let why = "may not specify more than two policyTypes";
        wrong.push(Violation::invalid("spec.policyTypes", json!(types), why));
    }
    for (at, found) in types.iter().enumerate() {
        let known = DIRECTIONS.map(|(name, ..)| name);
        let found = found.as_str().unwrap_or_default();
        if !known.contains(&found) {
            let at = format!("spec.policyTypes[{at}]");
            wrong.push(Violation::not_supported(at, found, known));
        }
    }
    wrong
}

fn check_selector(selector: &Value, path: &str, wrong: &mut Vec<Violation>) {
    if let Err(error) = LabelSelector::from_object(selector) {
        wrong.push(Violation::invalid(
            path,
            selector.clone(),
            error.to_string(),
        ));
    }
}

fn check_port(port: &Value, path: &str, wrong: &mut Vec<Violation>) {
    let protocol = port["protocol"].as_str().unwrap_or_default();
    if !PROTOCOLS.contains(&protocol) {
        let at = format!("{path}.protocol");
        wrong.push(Violation::not_supported(at, protocol, PROTOCOLS));
    }
    let end = port["endPort"].as_i64();
    let mut refuse_end = |end: i64, why: &str| {
        wrong.push(Violation::invalid(format!("{path}.endPort"), end, why));
    };
    match (&port["port"], end) {
        (Value::Number(first), Some(end)) if first.as_i64().is_some_and(|first| end < first) => {
            refuse_end(end, "must be greater than or equal to `port`");
        }
        (Value::String(_), Some(end)) => {
            refuse_end(end, "may not be specified when `port` is non-numeric");
        }
        (Value::Null, Some(end)) => {
            refuse_end(end, "may not be specified when `port` is not specified");
        }
        _ => {}
    }
    if let Some(name) = port["port"].as_str() {
        let at = format!("{path}.port");
        let found = port_name(name).into_iter();
        wrong.extend(found.map(|why| Violation::invalid(at.clone(), name, why)));
    }
    for (field, number) in [("port", port["port"].as_i64()), ("endPort", end)] {
        if let Some(number) = number.filter(|number| !(1..=65535).contains(number)) {
            let why = "must be between 1 and 65535, inclusive";
            wrong.push(Violation::invalid(format!("{path}.{field}"), number, why));
        }
    }
}

fn check_peer(peer: &Value, path: &str, wrong: &mut Vec<Violation>) {
    let selectors = ["podSelector", "namespaceSelector"];
    for field in selectors {
        check_selector(&peer[field], &format!("{path}.{field}"), wrong);
    }
    let has_selector = selectors.iter().any(|field| !peer[field].is_null());
    let block = &peer["ipBlock"];
    if block.is_null() {
        if !has_selector {
            wrong.push(Violation::required(path, "must specify a peer"));
        }
        return;
    }
    if has_selector {
        let why = "may not specify both ipBlock and another peer";
        wrong.push(Violation::forbidden(path, why));
    }
    let found = block["cidr"].as_str().unwrap_or_default();
    let at = format!("{path}.ipBlock.cidr");
    if found.is_empty() {
        wrong.push(Violation::required(at, ""));
        return;
    }
    let why = "must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)";
    let Some(range) = Range::parse(found) else {
        wrong.push(Violation::invalid(at, found, why));
        return;
    };
    for (index, except) in items(&block["except"]).iter().enumerate() {
        let at = format!("{path}.ipBlock.except[{index}]");
        let found = except.as_str().unwrap_or_default();
        match Range::parse(found) {
            None => wrong.push(Violation::invalid(at, found, why)),
            Some(except) if range.has_part(except) => {}
            Some(_) => {
                let why = "must be a strict subset of `cidr`";
                wrong.push(Violation::invalid(at, found, why));
            }
        }
    }
}

/// A range of addresses: the address as a number, and the lengths of prefix and address.
#[derive(Debug, Clone, Copy)]
struct Range {
    address: u128,
    prefix: u32,
    bits: u32,
}

impl Range {
    fn parse(text: &str) -> Option<Self> {
        let (address, prefix) = text.split_once('/')?;
        let (address, bits) = match address.parse().ok()? {
            IpAddr::V4(four) => (u128::from(four.to_bits()), 32),
            IpAddr::V6(six) => (six.to_bits(), 128),
        };
        let is_number = prefix.bytes().all(|digit| digit.is_ascii_digit());
        let prefix = prefix
            .parse()
            .ok()
            .filter(|prefix| is_number && *prefix <= bits)?;
        Some(Self {
            address,
            prefix,
            bits,
        })
    }

    /// Whether the other range is a part of this one and not all of it.
    fn has_part(self, other: Self) -> bool {
        let network = |address: u128| address.checked_shr(self.bits - self.prefix).unwrap_or(0);
        self.bits == other.bits
            && other.prefix > self.prefix
            && network(self.address) == network(other.address)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_follow_from_the_rules() {
        for (spec, expected) in [
            (json!({}), json!(["Ingress"])),
            (json!({"egress": []}), json!(["Ingress"])),
            (json!({"egress": [{}]}), json!(["Ingress", "Egress"])),
            (
                json!({"egress": [{}], "policyTypes": ["Egress"]}),
                json!(["Egress"]),
            ),
        ] {
            let mut policy = json!({"spec": spec});
            default(&mut policy);
            assert_eq!(policy["spec"]["policyTypes"], expected);
        }
        let mut policy = json!({"spec": {"ingress": [{"ports": [{"port": 80}]}]}});
        default(&mut policy);
        let port = &policy["spec"]["ingress"][0]["ports"][0];
        assert_eq!(*port, json!({"port": 80, "protocol": "TCP"}));
    }

    #[test]
    fn what_cannot_be_carried_out_is_refused() {
        let first = |spec: Value| {
            let mut policy = json!({"spec": spec});
            default(&mut policy);
            validate(&policy).first().map(ToString::to_string)
        };
        let port = |port: Value| first(json!({"ingress": [{"ports": [port]}]}));
        let peer = |peer: Value| first(json!({"egress": [{"to": [peer]}]}));
        for good in [
            json!({"port": 80}),
            json!({"port": "http", "protocol": "UDP"}),
            json!({"port": 80, "endPort": 90, "protocol": "SCTP"}),
            json!({}),
        ] {
            assert_eq!(port(good), None);
        }
        for (wrong, expected) in [
            (
                json!({"port": 0}),
                "spec.ingress[0].ports[0].port: Invalid value: 0: must be between",
            ),
            (
                json!({"port": "a_b"}),
                "spec.ingress[0].ports[0].port: Invalid value: \"a_b\": must contain",
            ),
            (
                json!({"port": 9, "endPort": 8}),
                "spec.ingress[0].ports[0].endPort: Invalid value: 8: must be greater",
            ),
            (
                json!({"port": "a", "endPort": 8}),
                "spec.ingress[0].ports[0].endPort: Invalid value: 8: may not be specified when `port` is non-numeric",
            ),
            (
                json!({"endPort": 8}),
                "spec.ingress[0].ports[0].endPort: Invalid value: 8: may not be specified when `port` is not",
            ),
            (
                json!({"protocol": "ICMP"}),
                "spec.ingress[0].ports[0].protocol: Unsupported value: \"ICMP\"",
            ),
        ] {
            let found = port(wrong).unwrap();
            assert!(found.starts_with(expected), "{found}");
        }
        let block =
            |cidr: &str, except: &[&str]| json!({"ipBlock": {"cidr": cidr, "except": except}});
        assert_eq!(peer(block("10.0.0.0/8", &["10.1.0.0/16"])), None);
        assert_eq!(peer(block("2001:db8::/32", &["2001:db8:1::/48"])), None);
        for (wrong, expected) in [
            (
                json!({}),
                "spec.egress[0].to[0]: Required value: must specify a peer",
            ),
            (
                block("", &[]),
                "spec.egress[0].to[0].ipBlock.cidr: Required value",
            ),
            (
                block("10.0.0.0", &[]),
                "spec.egress[0].to[0].ipBlock.cidr: Invalid value: \"10.0.0.0\": must be a valid CIDR",
            ),
            (
                block("10.0.0.0/8", &["11.0.0.0/16"]),
                "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"11.0.0.0/16\": must be a strict subset",
            ),
            (
                block("10.0.0.0/8", &["10.0.0.0/8"]),
                "spec.egress[0].to[0].ipBlock.except[0]: Invalid value: \"10.0.0.0/8\": must be a strict subset",
            ),
            (
                json!({"podSelector": {}, "ipBlock": {"cidr": "10.0.0.0/8"}}),
                "spec.egress[0].to[0]: Forbidden: may not specify both",
            ),
            (
                json!({"podSelector": {"matchExpressions": [{"key": "a", "operator": "Is"}]}}),
                "spec.egress[0].to[0].podSelector: Invalid value",
            ),
        ] {
            let found = peer(wrong).unwrap();
            assert!(found.starts_with(expected), "{found}");
        }
        let found = first(json!({"policyTypes": ["Both"]})).unwrap();
        assert!(
            found.starts_with("spec.policyTypes[0]: Unsupported value: \"Both\""),
            "{found}"
        );
    }
}
