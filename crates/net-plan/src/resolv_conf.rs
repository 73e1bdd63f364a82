//! The guest's DNS settings, from the pod's `/etc/resolv.conf`.

use std::{
    net::{Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

/// The name server if the pod has none.
const FALLBACK: Ipv4Addr = Ipv4Addr::new(8, 8, 8, 8);

/// The IPv4 name servers, in order; never empty.
pub(crate) fn name_servers(text: &str) -> Vec<Ipv4Addr> {
    let mut servers = parsed(text);
    if servers.is_empty() {
        servers.push(FALLBACK);
    }
    servers
}

/// The IPv6 name servers, in order, without those of the pod's link.
pub(crate) fn ipv6_name_servers(text: &str) -> Vec<Ipv6Addr> {
    let mut servers: Vec<Ipv6Addr> = parsed(text);
    servers.retain(|server| !server.is_unicast_link_local() && !server.is_loopback());
    servers
}

fn parsed<T: FromStr>(text: &str) -> Vec<T> {
    fields(text, "nameserver")
        .filter_map(|mut values| values.next()?.parse().ok())
        .collect()
}

/// The search list: the last `search` line counts, as in the resolver. The VMI's subdomain comes first,
/// below the service domain of its namespace.
pub(crate) fn search(text: &str, namespace: &str, subdomain: Option<&str>) -> Vec<String> {
    let mut list: Vec<String> = fields(text, "search")
        .last()
        .map(|values| {
            values
                .map(|domain| domain.trim_end_matches('.').to_owned())
                .collect()
        })
        .unwrap_or_default();
    list.retain(|domain| !domain.is_empty());
    let services = format!("{namespace}.svc.");
    let own = subdomain
        .filter(|subdomain| !subdomain.is_empty())
        .and_then(|subdomain| {
            let domain = list.iter().find(|domain| domain.starts_with(&services))?;
            Some(format!("{subdomain}.{domain}"))
        });
    if let Some(own) = own.filter(|own| !list.contains(own)) {
        list.insert(0, own);
    }
    list
}

fn fields<'a>(
    text: &'a str,
    key: &'a str,
) -> impl Iterator<Item = std::str::SplitWhitespace<'a>> + 'a {
    text.lines().filter_map(move |line| {
        let line = line.split(['#', ';']).next()?;
        let mut fields = line.split_whitespace();
        (fields.next()? == key).then_some(fields)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const CLUSTER: &str = "# made by a node\nnameserver 10.96.0.10\nnameserver fd00::a\n\
        search default.svc.cluster.local svc.cluster.local cluster.local.\noptions ndots:5\n";

    #[test]
    fn name_servers_are_ipv4_and_never_empty() {
        let server = |text: &str| vec![text.parse::<Ipv4Addr>().unwrap()];
        assert_eq!(name_servers(CLUSTER), server("10.96.0.10"));
        for none in [
            "",
            "nameserver fd00::a\n",
            "nameserver\n",
            "#nameserver 1.2.3.4",
            "nameserver x",
        ] {
            assert_eq!(name_servers(none), server("8.8.8.8"), "{none:?}");
        }
    }

    #[test]
    fn ipv6_name_servers_are_those_beyond_the_link() {
        let text = "nameserver fe80::1\nnameserver ::1\nnameserver fd00::b\n";
        let server = |text: &str| vec![text.parse::<Ipv6Addr>().unwrap()];
        assert_eq!(ipv6_name_servers(text), server("fd00::b"));
        assert_eq!(ipv6_name_servers(CLUSTER), server("fd00::a"));
        assert!(ipv6_name_servers("nameserver 10.0.0.1").is_empty());
    }

    #[test]
    fn subdomain_comes_first_below_the_service_domain() {
        let cluster = [
            "default.svc.cluster.local",
            "svc.cluster.local",
            "cluster.local",
        ];
        assert_eq!(search(CLUSTER, "default", None), cluster);
        assert_eq!(search(CLUSTER, "default", Some("")), cluster);
        assert_eq!(search(CLUSTER, "other", Some("db")), cluster);
        let with = search(CLUSTER, "default", Some("db"));
        assert_eq!(with[0], "db.default.svc.cluster.local");
        assert_eq!(with[1..], cluster);
    }

    #[test]
    fn last_search_line_counts() {
        assert_eq!(search("search a b\nsearch c\n", "default", None), ["c"]);
        assert_eq!(search("", "default", Some("db")), Vec::<String>::new());
    }
}
