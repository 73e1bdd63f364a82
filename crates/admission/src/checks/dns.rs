//! The pod's DNS policy and configuration. Field paths are those of Kubernetes' own messages.

use std::net::IpAddr;

use validation::Violation;

use super::{input::Input, names::dns_subdomain_problem};

const POLICIES: &[&str] = &[
    "ClusterFirstWithHostNet",
    "ClusterFirst",
    "Default",
    "None",
    "",
];
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 6;
const MAX_SEARCH_LENGTH: usize = 256;

pub(super) fn policy(input: &Input<'_>) -> Vec<Violation> {
    let policy = input.spec.dns_policy.as_deref().unwrap_or_default();
    if POLICIES.contains(&policy) {
        return Vec::new();
    }
    let detail = format!(
        "{policy:?} is unknown; use ClusterFirst, ClusterFirstWithHostNet, Default or None"
    );
    vec![input.not_supported("dnsPolicy", detail)]
}

pub(super) fn config(input: &Input<'_>) -> Vec<Violation> {
    let is_none = input.spec.dns_policy.as_deref() == Some("None");
    let Some(config) = &input.spec.dns_config else {
        let detail = "dnsPolicy None needs this; give at least one name server";
        return is_none
            .then(|| input.required("dnsConfig", detail))
            .into_iter()
            .collect();
    };
    let servers = config.nameservers.as_deref().unwrap_or_default();
    let mut found = Vec::new();
    if is_none && servers.is_empty() {
        let detail = "dnsPolicy None needs at least one name server here";
        found.push(input.required("dnsConfig.nameservers", detail));
    }
    if servers.len() > MAX_SERVERS {
        let detail = format!(
            "{} name servers; at most {MAX_SERVERS} are supported",
            servers.len()
        );
        found.push(input.invalid("dnsConfig.nameservers", detail));
    }
    for (i, server) in servers.iter().enumerate() {
        if server.parse::<IpAddr>().is_err() {
            let detail = format!("{server:?} is not an IP address; use the form 10.96.0.10");
            found.push(input.invalid(&format!("dnsConfig.nameservers[{i}]"), detail));
        }
    }
    found.extend(searches(
        input,
        config.searches.as_deref().unwrap_or_default(),
    ));
    let options = config.options.as_deref().unwrap_or_default();
    for (i, option) in options.iter().enumerate() {
        if option.name.as_deref().unwrap_or_default().is_empty() {
            let detail = "an option needs a name, such as ndots";
            found.push(input.invalid(&format!("dnsConfig.options[{i}]"), detail));
        }
    }
    found
}

fn searches(input: &Input<'_>, searches: &[String]) -> Vec<Violation> {
    let field = "dnsConfig.searchDomains";
    let mut found = Vec::new();
    if searches.len() > MAX_SEARCHES {
        let detail = format!(
            "{} search domains; at most {MAX_SEARCHES} are supported",
            searches.len()
        );
        found.push(input.invalid(field, detail));
    }
    let length = searches
        .iter()
        .map(|search| search.len() + 1)
        .sum::<usize>();
    if length > MAX_SEARCH_LENGTH + 1 {
        let detail = format!(
            "search domains of {} characters in total; at most {MAX_SEARCH_LENGTH} are supported",
            length - 1
        );
        found.push(input.invalid(field, detail));
    }
    for (i, search) in searches.iter().enumerate() {
        if let Some(problem) = dns_subdomain_problem(search.strip_suffix('.').unwrap_or(search)) {
            found.push(input.invalid(&format!("{field}[{i}]"), problem));
        }
    }
    found
}
