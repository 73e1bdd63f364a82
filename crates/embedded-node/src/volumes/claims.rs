//! Persistent volumes of a pod: directories as they are, files as loop devices.

use std::{fs, os::unix::fs::FileTypeExt as _, path::Path};

use pod_supervisor::model::Access;

use super::{
    Content, FAILED, Volume,
    ownership::{self, Owner},
};
use crate::{
    Failure,
    storage::{BackingMode, ClaimedVolume, in_use},
};

pub(crate) fn prepare(
    pod_dir: &Path,
    name: &str,
    claimed: &ClaimedVolume,
    owner: Option<Owner>,
) -> Result<Volume, Failure> {
    let path = &claimed.path;
    let wrong = |kind: &str| {
        let message = format!(
            "MountVolume failed for volume {name:?}: {} is {kind}",
            path.display()
        );
        Failure::new(FAILED, message)
    };
    let found = fs::metadata(path)
        .map_err(|error| {
            let tried = format!("find volume {name:?} at {}", path.display());
            Failure::of(FAILED, &tried, &error)
        })?
        .file_type();
    match claimed.mode {
        BackingMode::Filesystem if !found.is_dir() => Err(wrong("not a directory")),
        BackingMode::Filesystem => {
            if let Some(owner) = owner
                && claimed.access == Access::ReadWrite
            {
                ownership::apply(path, owner).map_err(|error| {
                    let tried = format!("change the group of volume {name:?} to {}", owner.group());
                    Failure::of(FAILED, &tried, &error)
                })?;
                failpoints::after("embedded-node/volumes/give-to-group");
            }
            Ok(Volume {
                path: path.clone(),
                access: claimed.access,
                content: Content::Files,
            })
        }
        BackingMode::Block if !found.is_file() && !found.is_block_device() => {
            Err(wrong("neither a file nor a block device"))
        }
        BackingMode::Block => {
            let device = if found.is_block_device() {
                path.clone()
            } else {
                in_use::attach(pod_dir, name, path).map_err(|error| {
                    let tried = format!("attach volume {name:?} to a loop device");
                    Failure::of(FAILED, &tried, &error)
                })?
            };
            Ok(Volume {
                path: device,
                access: claimed.access,
                content: Content::Device,
            })
        }
    }
}
