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
    let mut sandbox = Sandbox {
        cgroup: shared.cgroup(&uid),
        uid,
        hostname,
        network: network_mode(pod),
        sysctls: sysctls
            .map(|one| (sysctls::dotted(&one.name), one.value.clone()))
            .collect(),
        first_user: None,
        grace_seconds: u32::try_from(grace).unwrap_or(30),
    };
    let write = |sandbox: &Sandbox| {
        replace(
            &dir.join(layout::SANDBOX_FILE),
            &serde_json::to_vec(sandbox)?,
        )
    };
    if spec.and_then(|spec| spec.host_users) != Some(false) {
        return write(&sandbox);
    }
    if sandbox.network == NetworkMode::Host {
        return Err(io::Error::other(
            "spec.hostUsers: a pod in the host's network needs the host's users: remove `hostNetwork` \
             or `hostUsers`",
        ));
    }
    shared.users.assign(&shared.pods_dir(), |first| {
        sandbox.first_user = Some(first);
        write(&sandbox)
    })
}

pub(crate) fn network_mode(pod: &Pod) -> NetworkMode {
    match pod.spec.as_ref().and_then(|spec| spec.host_network) {
        Some(true) => NetworkMode::Host,
        _ => NetworkMode::Pod,
    }
}
