//! Raw images on volumes that outlive the pod: checked, and created if they are missing.

use std::fs::File;
use std::path::Path;

use disk_image::RawSize;
use launcher_channel::DiskAccess;
use rustix::fs::{OFlags, fstatvfs};

use container_disk::beneath;

use super::PrepareError;

/// Checks that the file exists and that QEMU may use it, or creates it if requested.
///
/// An empty file gets its size too: an interrupted attempt created it, or virt-handler did where the
/// launcher may not create files.
pub(super) fn prepare(
    directory: &Path,
    name: &str,
    access: &DiskAccess,
) -> Result<(), PrepareError> {
    let whole = directory.join(name);
    let at = || whole.clone();
    let root = beneath::directory(directory).map_err(PrepareError::at(directory))?;
    let opened = match access {
        DiskAccess::Read => beneath::read(&root, Path::new(name)),
        DiskAccess::Write => beneath::write(&root, Path::new(name), OFlags::empty()),
        DiskAccess::Create { .. } => beneath::write(&root, Path::new(name), OFlags::CREATE),
    };
    let file = File::from(opened.map_err(PrepareError::at(&whole))?);
    let metadata = file.metadata().map_err(PrepareError::at(&whole))?;
    if !metadata.is_file() {
        return Err(PrepareError::NotAFile { path: at() });
    }
    let DiskAccess::Create {
        bytes,
        tolerated_percent,
        reserve_bytes,
    } = *access
    else {
        return Ok(());
    };
    if metadata.len() > 0 {
        return Ok(());
    }
    let wanted = RawSize {
        bytes,
        tolerated_percent,
        reserve_bytes,
    };
    let free = free_bytes(&root, &whole)?;
    let size = wanted
        .fit(free)
        .map_err(|source| PrepareError::NoSpace { path: at(), source })?;
    if size < bytes {
        tracing::warn!(path = %whole.display(), bytes, size, "the disk is smaller than requested");
    }
    tracing::info!(path = %whole.display(), size, "creating a disk");
    file.set_len(size).map_err(PrepareError::at(&whole))
}

fn free_bytes(root: &File, whole: &Path) -> Result<u64, PrepareError> {
    let stat = fstatvfs(root).map_err(|errno| PrepareError::at(whole)(errno.into()))?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}
