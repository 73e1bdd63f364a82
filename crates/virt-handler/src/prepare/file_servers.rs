//! The directories that a guest mounts by virtiofs.

use k8s_openapi::api::core::v1::Pod;
use launcher_channel::FileServer;
use model::{Guest, VolumeSource, paths};

/// Mounts below these belong to the launcher: its sockets, the guest's disks and state.
const OWN: [&str; 4] = ["/var/run/kubevirt", "/var/run/libvirt", "/dev", "/etc"];

/// A `containerPath` that is not part of a mount of somebody else.
#[derive(Debug, thiserror::Error)]
#[error(
    "{field}: no volume is mounted at {path:?} in the pod's container compute; \
     name a directory at or below such a mount, as a pod mutator adds one"
)]
pub(crate) struct PathNotMounted {
    field: String,
    path: String,
}

/// A server for each directory. Rendering the domain reports volumes without one.
pub(super) fn of(guest: &Guest<'_>, pod: &Pod) -> Result<Vec<FileServer>, PathNotMounted> {
    let mut all = Vec::new();
    for filesystem in &guest.filesystems {
        let Some(directory) = filesystem.directory(&guest.volumes) else {
            continue;
        };
        let volume = guest.volume(filesystem.name);
        if let Some(volume) = volume
            && matches!(volume.source, VolumeSource::ContainerPath(_))
            && !is_mounted(pod, &directory.path)
        {
            return Err(PathNotMounted {
                field: format!("{}.containerPath.path", volume.path()),
                path: directory.path,
            });
        }
        all.push(FileServer {
            name: filesystem.name.to_owned(),
            socket: paths::filesystem_socket(filesystem.name),
            directory: directory.path,
            is_read_only: directory.is_read_only,
        });
    }
    Ok(all)
}

/// Whether somebody else than the launcher has a volume mounted there. The rest of the container, such as
/// `/proc`, is not for the guest.
fn is_mounted(pod: &Pod, path: &str) -> bool {
    let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
    let compute = containers.filter(|container| container.name == "compute");
    let mut mounts = compute.flat_map(|container| container.volume_mounts.iter().flatten());
    mounts.any(|mount| {
        let mounted = mount.mount_path.trim_end_matches('/');
        // Also the directories beside it whose names begin so.
        let is_own = OWN.iter().any(|own| mounted.starts_with(own));
        let rest = path.strip_prefix(mounted);
        let is_below = rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'));
        !mounted.is_empty() && !is_own && is_below && !path.split('/').any(|part| part == "..")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn only_mounts_of_others_are_shared_by_path() {
        let token = "/var/run/secrets/token";
        let mounts = json!([
            {"name": "token", "mountPath": token},
            {"name": "private", "mountPath": paths::PRIVATE},
            {"name": "sockets", "mountPath": paths::SOCKETS},
            {"name": "root", "mountPath": "/"},
        ]);
        let pod: Pod = serde_json::from_value(json!({"spec": {"containers": [
            {"name": "sidecar", "volumeMounts": [{"name": "data", "mountPath": "/data"}]},
            {"name": "compute", "volumeMounts": mounts},
        ]}}))
        .unwrap();
        for (path, is_shared) in [
            (token, true),
            ("/var/run/secrets/token/sub", true),
            ("/var/run/secrets/token2", false),
            ("/var/run/secrets/token/../..", false),
            ("/var/run/secrets", false),
            ("/proc", false),
            ("/data", false),
            (paths::PRIVATE, false),
            (paths::SOCKETS, false),
        ] {
            let vmi = serde_json::from_value(json!({"spec": {
                "domain": {"devices": {"filesystems": [{"name": "a", "virtiofs": {}}]}},
                "volumes": [{"name": "a", "containerPath": {"path": path}}],
            }}))
            .unwrap();
            let found = of(&Guest::of(&vmi), &pod);
            assert_eq!(found.is_ok(), is_shared, "{path}: {found:?}");
        }
    }
}
