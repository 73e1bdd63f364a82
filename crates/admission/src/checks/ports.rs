//! Ports of a guest that are reachable from the pod network.

use std::collections::BTreeSet;

use kubevirt_api::network::{Port, PortRange};
use validation::Violation;

use super::{
    input::Input,
    networks::{interfaces, is_on_pod_network},
};

const MAX_PORT_NAME: usize = 15;
const MAX_RANGES: usize = 10;

pub(super) fn ports(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        if !is_on_pod_network(input, interface) {
            continue;
        }
        let mut names = BTreeSet::new();
        for (i, port) in interface.ports.iter().enumerate() {
            let field = format!("{path}.ports[{i}]");
            found.extend(port_problems(input, &field, port));
            let name = port.name.as_deref().unwrap_or_default();
            if !name.is_empty() && !names.insert(name) {
                let detail = "another port has this name; names must be unique";
                found.push(input.duplicate(&format!("{field}.name"), detail));
            }
        }
    }
    found
}

fn port_problems(input: &Input<'_>, path: &str, port: &Port) -> Vec<Violation> {
    let mut found = Vec::new();
    let number = format!("{path}.port");
    if port.port == 0 {
        found.push(input.required(&number, "missing; use a number from 1 to 65535"));
    } else if u16::try_from(port.port).is_err() {
        let detail = format!("{} is not a port; use a number from 1 to 65535", port.port);
        found.push(input.invalid(&number, detail));
    }
    let protocol = port.protocol.as_deref().unwrap_or_default();
    if !["TCP", "UDP", ""].contains(&protocol) {
        let detail = format!("{protocol:?} is unknown; use TCP or UDP");
        found.push(input.invalid(&format!("{path}.protocol"), detail));
    }
    if let Some(name) = port.name.as_deref().filter(|name| !name.is_empty())
        && !is_port_name(name)
    {
        let detail = format!(
            "{name:?} is not a port name; use at most {MAX_PORT_NAME} lower-case letters, digits and \
             single dashes, with at least one letter"
        );
        found.push(input.invalid(&format!("{path}.name"), detail));
    }
    found
}

fn is_port_name(name: &str) -> bool {
    name.len() <= MAX_PORT_NAME
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
        && name.bytes().any(|b| b.is_ascii_lowercase())
        && !name.starts_with('-')
        && !name.ends_with('-')
        && !name.contains("--")
}

pub(super) fn ranges(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    for (path, interface) in interfaces(input) {
        let ranges = &interface.port_ranges;
        if ranges.is_empty() || !is_on_pod_network(input, interface) {
            continue;
        }
        let path = format!("{path}.portRanges");
        found.extend(input.needs_gate(&path, "PortRangesSpec"));
        if !interface.ports.is_empty() {
            let detail = "ports and portRanges are both set; choose one";
            found.push(input.invalid(&path, detail));
        }
        if interface.masquerade.is_none() {
            let detail = "only masquerade translates ports; use masquerade: {}";
            found.push(input.invalid(&path, detail));
        }
        if ranges.len() > MAX_RANGES {
            let detail = format!(
                "{} ranges; at most {MAX_RANGES} are supported",
                ranges.len()
            );
            found.push(input.invalid(&path, detail));
        }
        for (i, range) in ranges.iter().enumerate() {
            for problem in range_problems(range) {
                let field = format!("{path}[{i}].{}", problem.field);
                found.push(input.invalid(&field, problem.detail));
            }
            let earlier = ranges.iter().take(i);
            if earlier.into_iter().any(|other| overlap(range, other)) {
                let detail = "overlaps an earlier range of the same protocol; merge them";
                found.push(input.invalid(&format!("{path}[{i}]"), detail));
            }
        }
    }
    found
}

struct RangeProblem {
    field: &'static str,
    detail: String,
}

fn range_problems(range: &PortRange) -> Vec<RangeProblem> {
    let problem = |field, detail| RangeProblem { field, detail };
    let is_port = |port: i32| (1..=65535).contains(&port);
    let mut found = Vec::new();
    let protocol = &range.protocol;
    if !["TCP", "UDP"].contains(&protocol.as_str()) {
        let detail = format!("{protocol:?} is unknown; use TCP or UDP");
        found.push(problem("protocol", detail));
    }
    for (field, port) in [("start", range.start), ("end", range.end)] {
        if !is_port(port) {
            let detail = format!("{port} is not a port; use a number from 1 to 65535");
            found.push(problem(field, detail));
        }
    }
    if range.start > range.end {
        let detail = "greater than end; swap them".to_owned();
        found.push(problem("start", detail));
    }
    found
}

fn overlap(one: &PortRange, other: &PortRange) -> bool {
    one.protocol == other.protocol && one.start <= other.end && other.start <= one.end
}
