//! Checks of the level `baseline`: nothing that reaches the host.

use std::collections::BTreeSet;

use serde_json::Value;

use super::{
    Finding, Pod,
    words::{named, plural, quoted, setters, uses},
};

/// Capabilities that container runtimes grant by default, but for `NET_RAW`.
const CAPABILITIES: [&str; 13] = [
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "MKNOD",
    "NET_BIND_SERVICE",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

/// Sysctls that concern the pod alone, each with the version that allowed it.
const SYSCTLS: [(&str, u32); 12] = [
    ("kernel.shm_rmid_forced", 0),
    ("net.ipv4.ip_local_port_range", 0),
    ("net.ipv4.ip_unprivileged_port_start", 0),
    ("net.ipv4.tcp_syncookies", 0),
    ("net.ipv4.ping_group_range", 0),
    ("net.ipv4.ip_local_reserved_ports", 27),
    ("net.ipv4.tcp_keepalive_time", 29),
    ("net.ipv4.tcp_fin_timeout", 29),
    ("net.ipv4.tcp_keepalive_intvl", 29),
    ("net.ipv4.tcp_keepalive_probes", 29),
    ("net.ipv4.tcp_rmem", 32),
    ("net.ipv4.tcp_wmem", 32),
];

pub(super) fn added_capabilities(container: &Value) -> impl Iterator<Item = &str> {
    let added = container["securityContext"]["capabilities"]["add"].as_array();
    added.into_iter().flatten().filter_map(Value::as_str)
}

pub(super) fn capabilities(pod: Pod<'_>) -> Option<Finding> {
    let forbidden =
        |container| added_capabilities(container).filter(|name| !CAPABILITIES.contains(name));
    let names = pod.containers(|container| forbidden(container).next().is_some());
    let found: BTreeSet<&str> = super::containers(pod.spec).flat_map(forbidden).collect();
    (!names.is_empty()).then(|| {
        let who = named("container", &names);
        let detail = format!(
            "{who} must not include {} in securityContext.capabilities.add",
            quoted(found)
        );
        Finding::new("non-default capabilities", detail)
    })
}

pub(super) fn host_namespaces(pod: Pod<'_>) -> Option<Finding> {
    let shared: Vec<String> = ["hostNetwork", "hostPID", "hostIPC"]
        .into_iter()
        .filter(|field| pod.spec[field] == true)
        .map(|field| format!("{field}=true"))
        .collect();
    (!shared.is_empty()).then(|| Finding::new("host namespaces", shared.join(", ")))
}

pub(super) fn host_paths(pod: Pod<'_>) -> Option<Finding> {
    let volumes = pod.spec["volumes"].as_array().into_iter().flatten();
    let names: Vec<&str> = volumes
        .filter(|volume| volume["hostPath"].is_object())
        .map(|volume| volume["name"].as_str().unwrap_or_default())
        .collect();
    (!names.is_empty()).then(|| Finding::new("hostPath volumes", named("volume", &names)))
}

pub(super) fn host_ports(pod: Pod<'_>) -> Option<Finding> {
    let ports = |container: &Value| -> Vec<String> {
        let ports = container["ports"].as_array().into_iter().flatten();
        let numbers = ports.filter_map(|port| port["hostPort"].as_i64());
        numbers
            .filter(|port| *port != 0)
            .map(|port| port.to_string())
            .collect()
    };
    let names = pod.containers(|container| !ports(container).is_empty());
    let found: BTreeSet<String> = super::containers(pod.spec).flat_map(ports).collect();
    (!names.is_empty()).then(|| {
        let (what, list) = (
            plural("hostPort", found.len()),
            Vec::from_iter(found).join(", "),
        );
        let who = named("container", &names);
        Finding::new(
            "hostPort",
            format!("{who} {} {what} {list}", uses(names.len())),
        )
    })
}

/// Probes and hooks run on the node: a host in them lets a pod reach what only the node can.
pub(super) fn probe_hosts(pod: Pod<'_>) -> Option<Finding> {
    const HANDLERS: [&str; 5] = [
        "/livenessProbe",
        "/readinessProbe",
        "/startupProbe",
        "/lifecycle/postStart",
        "/lifecycle/preStop",
    ];
    let hosts = |container: &Value| -> Vec<String> {
        let handlers = HANDLERS.iter().filter_map(|path| container.pointer(path));
        let actions = handlers.flat_map(|handler| [&handler["httpGet"], &handler["tcpSocket"]]);
        let hosts = actions.filter_map(|action| action["host"].as_str());
        hosts
            .filter(|host| !host.is_empty())
            .map(ToOwned::to_owned)
            .collect()
    };
    let mut names = pod.containers(|container| !hosts(container).is_empty());
    names.sort_unstable();
    let found: BTreeSet<String> = super::containers(pod.spec).flat_map(hosts).collect();
    (!names.is_empty()).then(|| {
        let what = plural("probe or lifecycle host", found.len());
        let detail = format!(
            "{} {} {what} {}",
            named("container", &names),
            uses(names.len()),
            quoted(found.iter().map(String::as_str))
        );
        Finding::new("probe or lifecycle host", detail)
    })
}

pub(super) fn privileged(pod: Pod<'_>) -> Option<Finding> {
    let names = pod.containers(|container| container["securityContext"]["privileged"] == true);
    (!names.is_empty()).then(|| {
        let who = named("container", &names);
        let detail = format!("{who} must not set securityContext.privileged=true");
        Finding::new("privileged", detail)
    })
}

pub(super) fn proc_mount(pod: Pod<'_>) -> Option<Finding> {
    if pod.version.is_at_least(35) && pod.has_user_namespace() {
        return None;
    }
    super::restricted::proc_mount(pod)
}

pub(super) fn sysctls(pod: Pod<'_>) -> Option<Finding> {
    let is_allowed = |name: &str| {
        let mut all = SYSCTLS.iter();
        all.any(|(allowed, since)| *allowed == name && pod.version.is_at_least(*since))
    };
    let set = pod.security()["sysctls"].as_array().into_iter().flatten();
    let forbidden: Vec<&str> = set
        .map(|sysctl| sysctl["name"].as_str().unwrap_or_default())
        .filter(|name| !is_allowed(name))
        .collect();
    (!forbidden.is_empty()).then(|| Finding::new("forbidden sysctls", forbidden.join(", ")))
}

pub(super) fn host_process(pod: Pod<'_>) -> Option<Finding> {
    let is_set = |security: &Value| security["windowsOptions"]["hostProcess"] == true;
    let names = pod.containers(|container| is_set(&container["securityContext"]));
    let who = setters(is_set(pod.security()), &names)?;
    let detail = format!("{who} must not set securityContext.windowsOptions.hostProcess=true");
    Some(Finding::new("hostProcess", detail))
}
