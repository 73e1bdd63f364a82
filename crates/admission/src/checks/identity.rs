//! Who the guest is, where it may run and what ends it.

use std::net::IpAddr;

use kubevirt_api::{
    annotations, labels,
    vmi::{EvictionStrategy, StartStrategy},
};

use super::{Input, Requester, dns_label_fault, dns_subdomain_fault};
use crate::violation::Violation;

const ARCHITECTURES: &[&str] = &["amd64", "arm64", "s390x"];
const DNS_POLICIES: &[&str] = &[
    "ClusterFirstWithHostNet",
    "ClusterFirst",
    "Default",
    "None",
    "",
];
const MAX_NAME_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 6;
const MAX_SEARCH_LENGTH: usize = 256;

pub(super) fn labels(input: &Input<'_>) -> Vec<Violation> {
    if input.requester == Requester::Component {
        return Vec::new();
    }
    labels::RESERVED_ON_VMI
        .iter()
        .filter(|key| input.labels.contains_key(**key))
        .map(|key| {
            Violation::not_supported(
                format!("{}.labels", input.metadata_path()),
                format!("label {key} is written by the system only; remove it"),
            )
        })
        .collect()
}

pub(super) fn annotations(input: &Input<'_>) -> Vec<Violation> {
    [
        (annotations::IGNITION_DATA, "ExperimentalIgnitionSupport"),
        (annotations::HOOK_SIDECARS, "Sidecar"),
    ]
    .into_iter()
    .filter(|(key, gate)| input.annotations.contains_key(*key) && !input.config.has_gate(gate))
    .map(|(key, gate)| {
        Violation::invalid(
            format!("{}.annotations", input.metadata_path()),
            format!(
                "annotation {key} needs the feature gate {gate}; remove it or switch the gate on"
            ),
        )
    })
    .collect()
}

pub(super) fn host_name(input: &Input<'_>) -> Vec<Violation> {
    let hostname = given(input.spec.hostname.as_deref())
        .and_then(dns_label_fault)
        .map(|fault| input.invalid("hostname", fault));
    let subdomain = given(input.spec.subdomain.as_deref())
        .and_then(dns_subdomain_fault)
        .map(|fault| input.invalid("subdomain", fault));
    hostname.into_iter().chain(subdomain).collect()
}

pub(super) fn service_account(input: &Input<'_>) -> Vec<Violation> {
    given(input.spec.service_account_name.as_deref())
        .and_then(dns_subdomain_fault)
        .map(|fault| input.invalid("serviceAccountName", fault))
        .into_iter()
        .collect()
}

pub(super) fn architecture(input: &Input<'_>) -> Vec<Violation> {
    let name = input.architecture();
    if ARCHITECTURES.contains(&name) {
        return Vec::new();
    }
    let choices = ARCHITECTURES.join(", ");
    vec![input.invalid(
        "architecture",
        format!("{name:?} is unknown; use one of {choices}"),
    )]
}

pub(super) fn strategies(input: &Input<'_>) -> Vec<Violation> {
    let mut found = Vec::new();
    if let Some(strategy) = &input.spec.eviction_strategy
        && !strategy.is_known()
    {
        let choices = EvictionStrategy::KNOWN.join(", ");
        found.push(input.invalid(
            "evictionStrategy",
            format!("{:?} is unknown; use one of {choices}", strategy.as_str()),
        ));
    }
    let Some(start) = &input.spec.start_strategy else {
        return found;
    };
    if *start != StartStrategy::Paused {
        let detail = format!(
            "{:?} is unknown; use Paused or leave it out",
            start.as_str()
        );
        found.push(input.invalid("startStrategy", detail));
    } else if input.spec.liveness_probe.is_some() {
        let detail = "a guest that starts paused would fail its livenessProbe; remove one of them";
        found.push(input.invalid("startStrategy", detail));
    }
    found
}

pub(super) fn grace_period(input: &Input<'_>) -> Vec<Violation> {
    input
        .spec
        .termination_grace_period_seconds
        .filter(|seconds| *seconds < 0)
        .map(|seconds| {
            let detail = format!("{seconds} is negative; use 0 (switch off at once) or more");
            input.invalid("terminationGracePeriodSeconds", detail)
        })
        .into_iter()
        .collect()
}

pub(super) fn dns(input: &Input<'_>) -> Vec<Violation> {
    let policy = input.spec.dns_policy.as_deref().unwrap_or_default();
    let config = input.spec.dns_config.clone().unwrap_or_default();
    let servers = config.nameservers.unwrap_or_default();
    let searches = config.searches.unwrap_or_default();
    let mut found = Vec::new();
    if !DNS_POLICIES.contains(&policy) {
        let detail = format!(
            "{policy:?} is unknown; use ClusterFirst, ClusterFirstWithHostNet, Default or None"
        );
        found.push(input.not_supported("dnsPolicy", detail));
    }
    if policy == "None" && servers.is_empty() {
        let detail = "policy None needs at least one name server here";
        found.push(input.required("dnsConfig.nameservers", detail));
    }
    if servers.len() > MAX_NAME_SERVERS {
        let detail = format!(
            "{} name servers; at most {MAX_NAME_SERVERS} work",
            servers.len()
        );
        found.push(input.invalid("dnsConfig.nameservers", detail));
    }
    for (i, server) in servers.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            let detail = format!("{server:?} is no IP address; write one such as 10.96.0.10");
            found.push(input.invalid(&format!("dnsConfig.nameservers[{i}]"), detail));
        }
    }
    if searches.len() > MAX_SEARCHES || searches.join(" ").len() > MAX_SEARCH_LENGTH {
        let detail = format!(
            "too many search domains; at most {MAX_SEARCHES} with {MAX_SEARCH_LENGTH} characters"
        );
        found.push(input.invalid("dnsConfig.searches", detail));
    }
    for (i, search) in searches.iter().enumerate() {
        if let Some(fault) = dns_subdomain_fault(search.trim_end_matches('.')) {
            found.push(input.invalid(&format!("dnsConfig.searches[{i}]"), fault));
        }
    }
    found
}

fn given(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

pub(super) fn probes(input: &Input<'_>) -> Vec<Violation> {
    let has_pod_network = input
        .spec
        .networks
        .iter()
        .any(|network| network.pod.is_some());
    let probes = [
        ("livenessProbe", &input.spec.liveness_probe),
        ("readinessProbe", &input.spec.readiness_probe),
    ];
    let mut found = Vec::new();
    for (field, probe) in probes {
        let Some(probe) = probe else { continue };
        let by_network = probe.http_get.is_some() || probe.tcp_socket.is_some();
        let given = [
            probe.exec.is_some(),
            probe.guest_agent_ping.is_some(),
            probe.http_get.is_some(),
            probe.tcp_socket.is_some(),
        ];
        match given.iter().filter(|given| **given).count() {
            1 if by_network && !has_pod_network => {
                let detail =
                    "httpGet and tcpSocket need the pod network; add a network with pod: {}";
                found.push(input.invalid(field, detail));
            }
            1 => {}
            0 => found.push(input.required(field, "no check; give httpGet or tcpSocket")),
            _ => found.push(input.invalid(field, "several checks; choose one")),
        }
    }
    found
}
