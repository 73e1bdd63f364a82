//! Renders `/etc/resolv.conf` from a pod's `dnsPolicy` and `dnsConfig`. Pure.

use std::net::Ipv4Addr;

use k8s_openapi::api::core::v1::Pod;

use crate::{Resolver, services};

/// The limits of resolvers.
const MAX_SERVERS: usize = 3;
const MAX_SEARCHES: usize = 32;

/// `dns` is the cluster's DNS server, `host` the host's resolver settings.
pub(crate) fn render(pod: &Pod, dns: Option<Ipv4Addr>, host: &Resolver) -> String {
    let spec = pod.spec.as_ref();
    let on_host = spec.is_some_and(|spec| spec.host_network == Some(true));
    let policy = spec.and_then(|spec| spec.dns_policy.as_deref());
    let cluster_dns = match policy {
        Some("ClusterFirstWithHostNet") => dns,
        Some("Default" | "None") => None,
        _ if on_host => None,
        _ => dns,
    };
    let (mut servers, mut searches, mut options) = match (cluster_dns, policy) {
        (_, Some("None")) => (Vec::new(), Vec::new(), Vec::new()),
        (None, _) => (
            host.nameservers.iter().map(ToString::to_string).collect(),
            host.searches.clone(),
            Vec::new(),
        ),
        (Some(dns), _) => {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or("default");
            let domain = services::DOMAIN;
            let mut searches = vec![
                format!("{namespace}.svc.{domain}"),
                format!("svc.{domain}"),
                domain.to_owned(),
            ];
            searches.extend(host.searches.iter().cloned());
            (
                vec![dns.to_string()],
                searches,
                vec![("ndots".to_owned(), Some("5".to_owned()))],
            )
        }
    };
    if let Some(own) = spec.and_then(|spec| spec.dns_config.as_ref()) {
        servers.extend(own.nameservers.iter().flatten().cloned());
        searches.extend(own.searches.iter().flatten().cloned());
        for option in own.options.iter().flatten() {
            let name = option.name.clone().unwrap_or_default();
            options.retain(|(known, _)| *known != name);
            options.push((name, option.value.clone()));
        }
    }
    format_file(&unique(servers), &unique(searches), &options)
}

fn format_file(
    servers: &[String],
    searches: &[String],
    options: &[(String, Option<String>)],
) -> String {
    let mut text = String::new();
    let searches: Vec<&str> = searches
        .iter()
        .take(MAX_SEARCHES)
        .map(String::as_str)
        .collect();
    if !searches.is_empty() {
        text.extend(["search ", &searches.join(" "), "\n"]);
    }
    for server in servers.iter().take(MAX_SERVERS) {
        text.extend(["nameserver ", server, "\n"]);
    }
    let options: Vec<String> = options
        .iter()
        .map(|(name, value)| match value {
            Some(value) => format!("{name}:{value}"),
            None => name.clone(),
        })
        .collect();
    if !options.is_empty() {
        text.extend(["options ", &options.join(" "), "\n"]);
    }
    text
}

fn unique(all: Vec<String>) -> Vec<String> {
    let mut kept = Vec::new();
    for one in all {
        if !kept.contains(&one) {
            kept.push(one);
        }
    }
    kept
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    #[test]
    fn dns_policy_and_config_are_applied() {
        let host = Resolver {
            nameservers: vec![[192, 0, 2, 1].into()],
            searches: vec!["lan".into()],
        };
        let dns = Some([10, 244, 0, 1].into());
        let inside = "search n.svc.cluster.local svc.cluster.local cluster.local lan\n\
                      nameserver 10.244.0.1\noptions ndots:5\n";
        let outside = "search lan\nnameserver 192.0.2.1\n";
        let check = |spec: &Value, dns, expected: &str| {
            let mut spec = spec.clone();
            spec["containers"] = json!([]);
            let pod = json!({"metadata": {"namespace": "n"}, "spec": spec});
            let pod = serde_json::from_value(pod).unwrap();
            assert_eq!(render(&pod, dns, &host), expected, "{spec}");
        };
        check(&json!({}), dns, inside);
        check(&json!({}), None, outside);
        check(&json!({"dnsPolicy": "ClusterFirst"}), dns, inside);
        check(
            &json!({"dnsPolicy": "ClusterFirst", "hostNetwork": true}),
            dns,
            outside,
        );
        check(
            &json!({"dnsPolicy": "ClusterFirstWithHostNet", "hostNetwork": true}),
            dns,
            inside,
        );
        check(&json!({"dnsPolicy": "Default"}), dns, outside);
        let own = json!({"nameservers": ["192.0.2.9"], "searches": ["x", "lan"],
            "options": [{"name": "ndots", "value": "1"}, {"name": "edns0"}]});
        check(
            &json!({"dnsPolicy": "None", "dnsConfig": own}),
            dns,
            "search x lan\nnameserver 192.0.2.9\noptions ndots:1 edns0\n",
        );
        check(
            &json!({"dnsPolicy": "Default", "dnsConfig": own}),
            dns,
            "search lan x\nnameserver 192.0.2.1\nnameserver 192.0.2.9\noptions ndots:1 edns0\n",
        );
    }
}
