//! Kernel settings of pods: which ones a pod may have. Pure.
//!
//! A safe setting belongs to the pod's own namespaces and can neither harm other pods nor the node. All
//! others are refused: this node has no list of allowed unsafe ones.

use k8s_openapi::api::core::v1::Pod;
use reasons::Reason;

use crate::Failure;

/// Kubernetes' safe settings, by the namespace that they belong to.
const SAFE: &[(&str, Namespace)] = &[
    ("kernel.shm_rmid_forced", Namespace::Ipc),
    ("net.ipv4.ip_local_port_range", Namespace::Net),
    ("net.ipv4.ip_local_reserved_ports", Namespace::Net),
    ("net.ipv4.ip_unprivileged_port_start", Namespace::Net),
    ("net.ipv4.ping_group_range", Namespace::Net),
    ("net.ipv4.tcp_fin_timeout", Namespace::Net),
    ("net.ipv4.tcp_keepalive_intvl", Namespace::Net),
    ("net.ipv4.tcp_keepalive_probes", Namespace::Net),
    ("net.ipv4.tcp_keepalive_time", Namespace::Net),
    ("net.ipv4.tcp_rmem", Namespace::Net),
    ("net.ipv4.tcp_syncookies", Namespace::Net),
    ("net.ipv4.tcp_wmem", Namespace::Net),
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Namespace {
    Ipc,
    Net,
}

/// Why the node does not accept the pod.
pub(crate) fn refusal(pod: &Pod) -> Option<Failure> {
    let spec = pod.spec.as_ref()?;
    let all = spec.security_context.as_ref()?.sysctls.as_deref()?;
    let message = all.iter().find_map(|sysctl| {
        let name = dotted(&sysctl.name);
        let safe = SAFE.iter().find(|(safe, _)| *safe == name);
        match safe {
            None => Some(format!("forbidden sysctl: {name:?} not allowlisted")),
            Some((_, Namespace::Net)) if spec.host_network == Some(true) => Some(format!(
                "forbidden sysctl: {name:?} not allowed with host net enabled"
            )),
            Some((_, Namespace::Ipc)) if spec.host_ipc == Some(true) => Some(format!(
                "forbidden sysctl: {name:?} not allowed with host ipc enabled"
            )),
            Some(_) => None,
        }
    })?;
    Some(Failure::new(Reason::SysctlForbidden, message))
}

/// A name in the notation with dots; one with slashes may have dots inside of its parts.
pub(crate) fn dotted(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name.get(at..).is_some_and(|rest| rest.starts_with('/')) => name
            .chars()
            .map(|c| match c {
                '/' => '.',
                '.' => '/',
                c => c,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn refused(names: &[&str], mut spec: Value) -> Option<String> {
        let sysctls: Vec<Value> = names
            .iter()
            .map(|name| json!({"name": name, "value": "1"}))
            .collect();
        spec["containers"] = json!([]);
        spec["securityContext"] = json!({"sysctls": sysctls});
        let failure = refusal(&serde_json::from_value(json!({"spec": spec})).unwrap())?;
        assert_eq!(failure.reason, Reason::SysctlForbidden);
        Some(failure.message)
    }

    #[test]
    fn only_safe_settings_are_accepted() {
        for (names, spec, expected) in [
            (&[][..], json!({}), None),
            (&["kernel.shm_rmid_forced"], json!({}), None),
            (&["net/ipv4/tcp_syncookies"], json!({}), None),
            (
                &["net.ipv4.ping_group_range", "kernel.msgmax"],
                json!({}),
                Some("forbidden sysctl: \"kernel.msgmax\" not allowlisted"),
            ),
            (
                &["net.ipv4.tcp_syncookies"],
                json!({"hostNetwork": true}),
                Some(
                    "forbidden sysctl: \"net.ipv4.tcp_syncookies\" not allowed with host net enabled",
                ),
            ),
            (
                &["kernel.shm_rmid_forced"],
                json!({"hostIPC": true}),
                Some(
                    "forbidden sysctl: \"kernel.shm_rmid_forced\" not allowed with host ipc enabled",
                ),
            ),
        ] {
            assert_eq!(refused(names, spec).as_deref(), expected, "{names:?}");
        }
    }

    #[test]
    fn names_with_slashes_are_normalised() {
        for (name, expected) in [
            (
                "net.ipv4.conf.eth0.forwarding",
                "net.ipv4.conf.eth0.forwarding",
            ),
            (
                "net/ipv4/conf/eth0.1/forwarding",
                "net.ipv4.conf.eth0/1.forwarding",
            ),
            ("plain", "plain"),
        ] {
            assert_eq!(dotted(name), expected);
        }
    }
}
