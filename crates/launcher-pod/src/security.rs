//! User, group and privileges of the pod.

use k8s_openapi::api::core::v1::{
    Capabilities, PodSecurityContext, SELinuxOptions, SeccompProfile, SecurityContext,
};

use crate::Settings;
use crate::compute::RUNTIME_USER;

/// For every pod that works on disks: an unprivileged user and the runtime's filter of system calls.
pub fn pod_context(settings: &Settings) -> PodSecurityContext {
    let selinux_type = settings
        .selinux_type
        .clone()
        .filter(|name| !name.is_empty());
    PodSecurityContext {
        run_as_user: Some(RUNTIME_USER),
        run_as_group: Some(RUNTIME_USER),
        run_as_non_root: Some(true),
        fs_group: Some(RUNTIME_USER),
        seccomp_profile: Some(seccomp(settings)),
        se_linux_options: selinux_type.map(|name| SELinuxOptions {
            type_: Some(name),
            ..SELinuxOptions::default()
        }),
        ..PodSecurityContext::default()
    }
}

/// The same for every container: an unprivileged user who cannot gain privileges.
pub fn container_context() -> SecurityContext {
    SecurityContext {
        allow_privilege_escalation: Some(false),
        capabilities: Some(Capabilities {
            add: None,
            drop: Some(vec!["ALL".to_owned()]),
        }),
        run_as_user: Some(RUNTIME_USER),
        run_as_group: Some(RUNTIME_USER),
        run_as_non_root: Some(true),
        ..SecurityContext::default()
    }
}

fn seccomp(settings: &Settings) -> SeccompProfile {
    match &settings.seccomp_profile {
        None => SeccompProfile {
            type_: "RuntimeDefault".to_owned(),
            localhost_profile: None,
        },
        Some(path) => SeccompProfile {
            type_: "Localhost".to_owned(),
            localhost_profile: Some(path.clone()),
        },
    }
}
