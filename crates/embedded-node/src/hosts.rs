//! Renders `/etc/hosts` of a pod as kubelets do. Pure.

use std::net::IpAddr;

use k8s_openapi::api::core::v1::Pod;

use crate::hostname;

/// The names of the loopback and of multicast addresses.
const FIXED: &str = "127.0.0.1\tlocalhost\n\
    ::1\tlocalhost ip6-localhost ip6-loopback\n\
    fe00::0\tip6-localnet\n\
    fe00::0\tip6-mcastprefix\n\
    fe00::1\tip6-allnodes\n\
    fe00::2\tip6-allrouters\n";

/// The file of a pod with its own network.
pub(crate) fn render(pod: &Pod, addresses: &[IpAddr]) -> String {
    let mut text = String::from("# Kubernetes-managed hosts file.\n");
    text.push_str(FIXED);
    let short = hostname::short(pod);
    let names = match hostname::full(pod) {
        Some(full) => format!("{full}\t{short}"),
        None => short,
    };
    for address in addresses {
        text.extend([&*address.to_string(), "\t", &names, "\n"]);
    }
    text + &aliases(pod)
}

/// The file of a pod on the host's network, from the host's own.
pub(crate) fn render_for_host_network(pod: &Pod, host: &str) -> String {
    let header = "# Kubernetes-managed hosts file (host network).\n";
    format!("{header}{host}{}", aliases(pod))
}

fn aliases(pod: &Pod) -> String {
    let spec = pod.spec.as_ref();
    let all = spec
        .and_then(|spec| spec.host_aliases.as_deref())
        .unwrap_or_default();
    if all.is_empty() {
        return String::new();
    }
    let mut text = String::from("\n# Entries added by HostAliases.\n");
    for alias in all {
        text.push_str(&alias.ip);
        for name in alias.hostnames.iter().flatten() {
            text.extend(["\t", name]);
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn pod(spec: &Value) -> Pod {
        let mut spec = spec.clone();
        spec["containers"] = json!([]);
        let meta = json!({"name": "p", "namespace": "n"});
        serde_json::from_value(json!({"metadata": meta, "spec": spec})).unwrap()
    }

    #[test]
    fn own_address_and_aliases_follow_the_fixed_names() {
        let address = [[10, 0, 0, 2].into()];
        let alias = json!([{"ip": "192.0.2.1", "hostnames": ["a", "b.c"]}]);
        for (spec, expected) in [
            (json!({}), "10.0.0.2\tp\n"),
            (
                json!({"hostname": "h", "subdomain": "s"}),
                "10.0.0.2\th.s.n.svc.cluster.local\th\n",
            ),
            (
                json!({"hostAliases": alias}),
                "10.0.0.2\tp\n\n# Entries added by HostAliases.\n192.0.2.1\ta\tb.c\n",
            ),
        ] {
            let text = render(&pod(&spec), &address);
            let head = format!("# Kubernetes-managed hosts file.\n{FIXED}");
            assert_eq!(text.strip_prefix(&head), Some(expected), "{spec}");
        }
        assert!(render(&pod(&json!({})), &[]).ends_with("ip6-allrouters\n"));
        let host = render_for_host_network(&pod(&json!({"hostAliases": alias})), "127.0.0.1\tx\n");
        assert_eq!(
            host,
            "# Kubernetes-managed hosts file (host network).\n127.0.0.1\tx\n\n\
             # Entries added by HostAliases.\n192.0.2.1\ta\tb.c\n"
        );
    }
}
