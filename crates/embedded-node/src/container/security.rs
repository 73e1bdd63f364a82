//! Capabilities, seccomp profile and isolation of a container.

use std::collections::BTreeSet;

use k8s_openapi::api::core::v1::{PodSecurityContext, SecurityContext};
use pod_supervisor::model::{Escalation, Isolation, Seccomp, Security};

use super::CONFIG;
use crate::Failure;

/// The default capabilities: enough to be root inside the container, not outside. No workload needs to
/// make device nodes but those that say so.
const DEFAULT_CAPABILITIES: &[&str] = &[
    "AUDIT_WRITE",
    "CHOWN",
    "DAC_OVERRIDE",
    "FOWNER",
    "FSETID",
    "KILL",
    "NET_BIND_SERVICE",
    "NET_RAW",
    "SETFCAP",
    "SETGID",
    "SETPCAP",
    "SETUID",
    "SYS_CHROOT",
];

pub(super) fn security(
    own: &SecurityContext,
    pods: &PodSecurityContext,
) -> Result<Security, Failure> {
    if own.privileged == Some(true) {
        return Ok(Security {
            capabilities: pod_supervisor::capabilities::all(),
            escalation: Escalation::Allowed,
            seccomp: Seccomp::Unconfined,
            isolation: Isolation::Privileged,
        });
    }
    let profile = own
        .seccomp_profile
        .as_ref()
        .or(pods.seccomp_profile.as_ref());
    let seccomp = match profile.map(|profile| profile.type_.as_str()) {
        None | Some("RuntimeDefault") => Seccomp::RuntimeDefault,
        Some("Unconfined") => Seccomp::Unconfined,
        Some(other) => {
            let message = format!("seccomp profile type {other:?} is not supported on this node");
            return Err(Failure::new(CONFIG, message));
        }
    };
    Ok(Security {
        capabilities: capabilities(own),
        escalation: match own.allow_privilege_escalation {
            Some(false) => Escalation::Denied,
            _ => Escalation::Allowed,
        },
        seccomp,
        isolation: Isolation::Confined,
    })
}

fn capabilities(own: &SecurityContext) -> Vec<String> {
    let full = |name: &str| {
        let upper = name.to_uppercase();
        if upper.starts_with("CAP_") {
            upper
        } else {
            format!("CAP_{upper}")
        }
    };
    let mut all: BTreeSet<String> = DEFAULT_CAPABILITIES.iter().map(|name| full(name)).collect();
    let Some(wanted) = &own.capabilities else {
        return all.into_iter().collect();
    };
    for name in wanted.drop.iter().flatten() {
        match name.as_str() {
            "ALL" => all.clear(),
            name => drop(all.remove(&full(name))),
        }
    }
    for name in wanted.add.iter().flatten() {
        match name.as_str() {
            "ALL" => all.extend(pod_supervisor::capabilities::all()),
            name => drop(all.insert(full(name))),
        }
    }
    all.into_iter().collect()
}
