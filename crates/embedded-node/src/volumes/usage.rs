//! What the `emptyDir` volumes of a pod, and directories in general, take on the node's disk, beside their limits.
//!
//! **Invariant.** Containers may change a volume at the same time: every name is opened relative to its
//! directory's descriptor, and links are never followed. A file that grows between two checks may exceed the
//! limit meanwhile, as with a kubelet without project quotas.

use std::{io, os::fd::OwnedFd, path::Path};

use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::quantity::Amount;
use rustix::{
    fs::{AtFlags, CWD, Dir, FileType, Mode, OFlags, openat, statat},
    io::Errno,
};

/// Deeper directories are not counted: each level costs a descriptor.
const MAX_DEPTH: u32 = 256;
/// The kernel's unit of `st_blocks`.
const BLOCK: u64 = 512;

/// Whether a volume on disk has a limit.
pub(crate) fn has_limit(pod: &Pod) -> bool {
    limits(pod).next().is_some()
}

/// A kubelet's message about the first volume above its limit.
pub(crate) fn exceeded(pod: &Pod, pod_dir: &Path) -> io::Result<Option<String>> {
    let volumes = pod_dir.join("volumes/kubernetes.io~empty-dir");
    for (name, limit, shown) in limits(pod) {
        if taken_by(&volumes.join(name), limit)? > limit {
            let message =
                format!("Usage of EmptyDir volume {name:?} exceeds the limit {shown:?}. ");
            return Ok(Some(message));
        }
    }
    Ok(None)
}

/// Name, limit in bytes, and limit as written. The kernel limits volumes in memory.
fn limits(pod: &Pod) -> impl Iterator<Item = (&str, u64, &str)> {
    let volumes = pod
        .spec
        .iter()
        .flat_map(|spec| spec.volumes.iter().flatten());
    volumes.filter_map(|volume| {
        let source = volume.empty_dir.as_ref()?;
        let on_disk = source.medium.as_deref().is_none_or(str::is_empty);
        let limit = source.size_limit.as_ref().filter(|_| on_disk)?;
        let bytes = Amount::parse(limit).ok()?.units();
        Some((volume.name.as_str(), bytes, limit.0.as_str()))
    })
}

/// The blocks below the directory. Counts up to the first byte above the limit.
pub(crate) fn taken_by(root: &Path, limit: u64) -> io::Result<u64> {
    let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let dir = match openat(CWD, root, flags, Mode::empty()) {
        Err(Errno::NOENT) => return Ok(0),
        other => other?,
    };
    let mut taken = 0;
    add_below(&dir, &mut taken, limit, MAX_DEPTH)?;
    Ok(taken)
}

fn add_below(dir: &OwnedFd, taken: &mut u64, limit: u64, depth: u32) -> io::Result<()> {
    if depth == 0 {
        return Ok(());
    }
    for entry in Dir::read_from(dir)? {
        let entry = entry?;
        let name = entry.file_name();
        if name.to_bytes() == b"." || name.to_bytes() == b".." {
            continue;
        }
        let stat = match statat(dir, name, AtFlags::SYMLINK_NOFOLLOW) {
            Err(Errno::NOENT) => continue,
            other => other?,
        };
        let blocks = u64::try_from(stat.st_blocks).unwrap_or_default();
        *taken = taken.saturating_add(blocks.saturating_mul(BLOCK));
        if *taken > limit {
            return Ok(());
        }
        if FileType::from_raw_mode(stat.st_mode) != FileType::Directory {
            continue;
        }
        let flags = OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        match openat(dir, name, flags, Mode::empty()) {
            // Removed or replaced since `statat`.
            Err(Errno::NOENT | Errno::LOOP | Errno::NOTDIR) => {}
            other => add_below(&other?, taken, limit, depth - 1)?,
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs, os::unix::fs::symlink};

    use serde_json::{Value, json};

    use super::*;

    fn pod(volumes: &Value) -> Pod {
        let pod =
            json!({"metadata": {"name": "p"}, "spec": {"containers": [], "volumes": volumes}});
        serde_json::from_value(pod).unwrap()
    }

    #[test]
    fn volume_above_its_limit_is_named() {
        let dir = tempfile::tempdir().unwrap();
        let volume = dir.path().join("volumes/kubernetes.io~empty-dir/v");
        fs::create_dir_all(volume.join("a/b")).unwrap();
        fs::write(volume.join("a/b/c"), vec![1; 300 << 10]).unwrap();
        // Neither a hole nor what a link leads to takes space.
        let hole = fs::File::create(volume.join("hole")).unwrap();
        hole.set_len(1 << 30).unwrap();
        let outside = dir.path().join("outside");
        fs::write(&outside, vec![1; 4 << 20]).unwrap();
        symlink(&outside, volume.join("link")).unwrap();
        symlink("/", volume.join("root")).unwrap();
        let check = |source: Value, expected: Option<&str>| {
            let pod = pod(&json!([{"name": "v", "emptyDir": source}]));
            let found = exceeded(&pod, dir.path()).unwrap();
            assert_eq!(found.as_deref(), expected, "{source}");
        };
        let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"200Ki\". ";
        check(json!({"sizeLimit": "200Ki"}), Some(message));
        check(json!({"sizeLimit": "1Mi"}), None);
        check(json!({}), None);
        check(json!({"medium": "Memory", "sizeLimit": "200Ki"}), None);
    }

    #[test]
    fn volume_that_is_not_made_yet_takes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let pod = pod(&json!([{"name": "v", "emptyDir": {"sizeLimit": "0"}}]));
        assert!(has_limit(&pod));
        assert_eq!(exceeded(&pod, dir.path()).unwrap(), None);
    }
}
