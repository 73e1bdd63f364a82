//! The volumes of a container, as mounts and device nodes.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use k8s_openapi::api::core::v1::{PodSecurityContext, VolumeMount};
use pod_supervisor::model::{Access, Device, Mount, User};

use super::{CONFIG, Parts, id};
use crate::{
    Failure,
    environment::expand,
    volumes::{self, Content},
};

/// Block volumes as device nodes owned by the container's user.
pub(super) fn volume_devices(
    parts: &Parts<'_>,
    user: &User,
    pods: &PodSecurityContext,
) -> Result<Vec<Device>, Failure> {
    let wanted = parts.container.volume_devices.iter().flatten();
    wanted
        .map(|wanted| {
            let name = &wanted.name;
            let volume = parts.volumes.get(name).ok_or_else(|| {
                let message = format!("volumeDevice {name:?} is not a volume of the pod");
                Failure::new(CONFIG, message)
            })?;
            if volume.content != Content::Device {
                let message =
                    format!("volume {name:?} has volumeMode Filesystem: use volumeMounts");
                return Err(Failure::new(CONFIG, message));
            }
            Ok(Device {
                host_path: volume.path.clone(),
                path: PathBuf::from("/").join(&wanted.device_path),
                mode: match volume.access {
                    Access::ReadOnly => 0o440,
                    Access::ReadWrite => 0o660,
                },
                uid: user.uid,
                gid: pods.fs_group.map(id).transpose()?.unwrap_or(user.gid),
            })
        })
        .collect()
}

pub(super) fn mounts(
    parts: &Parts<'_>,
    environment: &BTreeMap<String, String>,
) -> Result<Vec<Mount>, Failure> {
    let mut all = parts.allocation.mounts.clone();
    for (index, wanted) in parts.container.volume_mounts.iter().flatten().enumerate() {
        all.push(mount(parts, environment, Indexed { index, wanted })?);
    }
    for file in ["hosts", "hostname", "resolv.conf"] {
        let destination = Path::new("/etc").join(file);
        if !all.iter().any(|mount| mount.destination == destination) {
            let source = parts.pod_dir.join("etc").join(file);
            all.push(Mount {
                source,
                destination,
                access: Access::ReadWrite,
            });
        }
    }
    Ok(all)
}

/// A volume mount and its index in the container.
#[derive(Debug, Clone, Copy)]
struct Indexed<'a> {
    index: usize,
    wanted: &'a VolumeMount,
}

fn mount(
    parts: &Parts<'_>,
    environment: &BTreeMap<String, String>,
    Indexed { index, wanted }: Indexed<'_>,
) -> Result<Mount, Failure> {
    let volume = parts.volumes.get(&wanted.name).ok_or_else(|| {
        Failure::new(
            CONFIG,
            format!("volumeMount {:?} is not a volume of the pod", wanted.name),
        )
    })?;
    let named = wanted.sub_path.clone().filter(|part| !part.is_empty());
    let part = match wanted.sub_path_expr.as_deref() {
        None | Some("") => named,
        Some(expression) => Some(expanded_path(expression, environment)?),
    };
    let source = match part {
        None if volume.content == Content::Device => {
            let message = format!(
                "volume {:?} has volumeMode Block: use volumeDevices",
                wanted.name
            );
            return Err(Failure::new(CONFIG, message));
        }
        None => volume.path.clone(),
        Some(part) => {
            let target = parts
                .pod_dir
                .join("volume-subpaths")
                .join(&wanted.name)
                .join(&parts.container.name)
                .join(index.to_string());
            // The volume itself is there: the container's configuration is wrong.
            volumes::sub_path(volume, &part, &target)
                .map_err(|failure| Failure::new(CONFIG, failure.message))?
        }
    };
    let read_only = wanted.read_only == Some(true) || volume.access == Access::ReadOnly;
    Ok(Mount {
        source,
        destination: PathBuf::from("/").join(&wanted.mount_path),
        access: if read_only {
            Access::ReadOnly
        } else {
            Access::ReadWrite
        },
    })
}

/// Expands the container's variables in a path; unknown variables are an error.
fn expanded_path(
    expression: &str,
    environment: &BTreeMap<String, String>,
) -> Result<String, Failure> {
    let path = expand(expression, environment);
    if path.contains("$(") {
        let message = format!("subPathExpr {expression:?} refers to a variable that is not set");
        return Err(Failure::new(CONFIG, message));
    }
    Ok(path)
}
