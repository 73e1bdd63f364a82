//! The pod's directory and its supervisor.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    sync::Arc,
};

use k8s_openapi::api::core::v1::Pod;
use pod_supervisor::{
    layout,
    model::{NetworkMode, Sandbox},
    status::PodStatus,
};

use super::{SANDBOX_FAILED, blocking, replace};
use crate::{
    Failure, hostname, hosts,
    node::Shared,
    resolv_conf,
    supervisor::{self, Link},
    sysctls,
};

/// The latest pod object, for a node that starts while the API server does not know the pod.
pub(crate) const OBJECT_FILE: &str = "object.json";

/// Writes the supervisor's files and makes sure that a supervisor runs.
pub(crate) async fn make_sandbox(
    shared: Arc<Shared>,
    pod: Arc<Pod>,
    dir: PathBuf,
) -> Result<(Link, PodStatus), Failure> {
    let work = {
        let (shared, dir) = (Arc::clone(&shared), dir.clone());
        move || write_sandbox(&shared, &pod, &dir)
    };
    blocking(
        SANDBOX_FAILED,
        "write the pod's files: is the disk full?",
        work,
    )
    .await?;
    failpoints::after("embedded-node/pod/write-sandbox");
    supervisor::ensure(&shared.settings.supervisor, dir, &shared.children).await
}

fn write_sandbox(shared: &Shared, pod: &Pod, dir: &Path) -> io::Result<()> {
    let etc = dir.join("etc");
    fs::create_dir_all(&etc)?;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o700))?;
    replace(&dir.join(OBJECT_FILE), &serde_json::to_vec(pod)?)?;
    if dir.join(layout::SANDBOX_FILE).exists() {
        return Ok(());
    }
    check_users(pod).map_err(io::Error::other)?;
    let spec = pod.spec.as_ref();
    let uid = pod.metadata.uid.clone().unwrap_or_default();
    let hostname = hostname::of_kernel(pod).map_err(io::Error::other)?;
    fs::write(etc.join("hostname"), format!("{hostname}\n"))?;
    let resolver = resolv_conf::render(pod, shared.services.dns(), &shared.settings.resolver);
    fs::write(etc.join("resolv.conf"), resolver)?;
    let hosts = match network_mode(pod) {
        NetworkMode::Pod => hosts::render(pod, &[]),
        // A host without the file has no names to add.
        NetworkMode::Host => {
            let own = fs::read_to_string("/etc/hosts").unwrap_or_default();
            hosts::render_for_host_network(pod, &own)
        }
    };
    fs::write(etc.join("hosts"), hosts)?;
    let security = spec.and_then(|spec| spec.security_context.as_ref());
    let sysctls = security
        .into_iter()
        .flat_map(|security| security.sysctls.iter().flatten());
    let grace = spec
        .and_then(|spec| spec.termination_grace_period_seconds)
        .unwrap_or(30);
    let sandbox = Sandbox {
        cgroup: shared.cgroup(&uid),
        uid,
        hostname,
        network: network_mode(pod),
        sysctls: sysctls
            .map(|one| (sysctls::dotted(&one.name), one.value.clone()))
            .collect(),
        grace_seconds: u32::try_from(grace).unwrap_or(30),
    };
    replace(
        &dir.join(layout::SANDBOX_FILE),
        &serde_json::to_vec(&sandbox)?,
    )
}

/// A pod that asks for users of its own must not run as users of the host.
fn check_users(pod: &Pod) -> Result<(), &'static str> {
    match pod.spec.as_ref().and_then(|spec| spec.host_users) {
        Some(false) => Err(
            "spec.hostUsers: this node has no user namespaces for pods: remove the field, or run the \
             pod where they exist",
        ),
        Some(true) | None => Ok(()),
    }
}

pub(crate) fn network_mode(pod: &Pod) -> NetworkMode {
    match pod.spec.as_ref().and_then(|spec| spec.host_network) {
        Some(true) => NetworkMode::Host,
        _ => NetworkMode::Pod,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn users_of_the_host_are_not_used_against_the_pods_wish() {
        for (wish, valid) in [
            (json!(null), true),
            (json!(true), true),
            (json!(false), false),
        ] {
            let pod = json!({"spec": {"containers": [], "hostUsers": wish}});
            let pod = serde_json::from_value(pod).unwrap();
            assert_eq!(check_users(&pod).is_ok(), valid, "{wish}");
        }
    }
}
