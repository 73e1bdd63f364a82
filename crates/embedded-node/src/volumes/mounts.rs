//! A pod's mounts on the host: memory-backed volumes and sub-paths.

use std::{
    fs, io,
    os::unix::{ffi::OsStringExt as _, fs::MetadataExt as _},
    path::{Path, PathBuf},
};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};

/// Mounts a tmpfs at `dir`, unless one is mounted.
pub(crate) fn mount_memory(dir: &Path, limit: Option<u64>) -> io::Result<()> {
    if is_mount_point(dir)? {
        return Ok(());
    }
    let size = limit.map_or(String::new(), |bytes| format!(",size={bytes}"));
    let data = std::ffi::CString::new(format!("mode=0777{size}"))?;
    let flags = MountFlags::NOSUID | MountFlags::NODEV;
    mount("tmpfs", dir, "tmpfs", flags, data.as_c_str())?;
    failpoints::after("embedded-node/volumes/mount-memory");
    Ok(())
}

fn is_mount_point(dir: &Path) -> io::Result<bool> {
    let parent = dir.parent().unwrap_or(dir);
    Ok(fs::metadata(dir)?.dev() != fs::metadata(parent)?.dev())
}

/// Removes every mount below `dir`, the deepest first.
pub(crate) fn unmount_all(dir: &Path) -> io::Result<()> {
    let dir = match fs::canonicalize(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    let mut points: Vec<PathBuf> = fs::read_to_string("/proc/self/mountinfo")?
        .lines()
        .filter_map(|line| line.split(' ').nth(4))
        .map(unescape)
        .filter(|point| point.starts_with(&dir))
        .collect();
    points.sort_by_key(|point| std::cmp::Reverse(point.components().count()));
    for point in points {
        unmount(&point, UnmountFlags::DETACH)?;
    }
    Ok(())
}

/// The kernel escapes blanks and backslashes as three octal digits.
fn unescape(text: &str) -> PathBuf {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.bytes();
    while let Some(byte) = bytes.next() {
        if byte == b'\\' {
            let digits = bytes.by_ref().take(3);
            out.push(digits.fold(0_u8, |sum, digit| {
                sum.wrapping_mul(8).wrapping_add(digit.wrapping_sub(b'0'))
            }));
        } else {
            out.push(byte);
        }
    }
    PathBuf::from(std::ffi::OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mount_points_with_blanks_are_unescaped() {
        assert_eq!(unescape("/a\\040b\\134c"), Path::new("/a b\\c"));
    }

    #[test]
    fn tmpfs_is_mounted_once_and_unmounted() {
        let root = tempfile::Builder::new()
            .prefix("embedded-node-mounts")
            .tempdir()
            .unwrap();
        let dir = root.path().join("a b");
        fs::create_dir(&dir).unwrap();
        mount_memory(&dir, Some(1 << 20)).unwrap();
        mount_memory(&dir, Some(1 << 20)).unwrap();
        assert!(is_mount_point(&dir).unwrap());
        unmount_all(root.path()).unwrap();
        assert!(!is_mount_point(&dir).unwrap());
        unmount_all(Path::new("/no/such/dir")).unwrap();
    }
}
