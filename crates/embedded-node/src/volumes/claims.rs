//! Volumes behind persistent volume claims: directories as they are, files shown as devices.

use std::{fs, os::unix::fs::FileTypeExt as _, path::Path};

use pod_supervisor::model::Access;

use super::{
    Content, FAILED, Volume,
    ownership::{self, Owner},
};
use crate::{
    Failure,
    storage::{BackingMode, Claimed, in_use},
};

pub(crate) fn prepare(
    pod_dir: &Path,
    name: &str,
    claimed: &Claimed,
    owner: Option<Owner>,
) -> Result<Volume, Failure> {
    let path = &claimed.path;
    let wrong = |what: &str| {
        let message = format!(
            "MountVolume failed for volume {name:?}: {} is {what}",
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
                ownership::give(path, owner).map_err(|error| {
                    let tried = format!("give volume {name:?} to group {}", owner.group());
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
                in_use::show(pod_dir, name, path).map_err(|error| {
                    let tried = format!("make volume {name:?} a device");
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
