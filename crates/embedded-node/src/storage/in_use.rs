//! Records which pods use which volume files as loop devices: a link per pod and volume, below the
//! pod's directory as kubelets have it.
//!
//! **Invariant.** A device is made after its first link and removed after its last one, so a device
//! without a link is a leftover.

use std::{
    fs, io,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
};

use parking_lot::Mutex;

use super::loop_device;

const LINKS: &str = "volumeDevices/kubernetes.io~local-volume";

/// Loop devices are shared by the host, so changes are serialised.
static DEVICES: Mutex<()> = Mutex::new(());

/// Attaches `file` to a loop device for this pod.
pub(crate) fn attach(pod_dir: &Path, volume: &str, file: &Path) -> io::Result<PathBuf> {
    let _one_at_a_time = DEVICES.lock();
    let links = pod_dir.join(LINKS);
    fs::create_dir_all(&links)?;
    let (link, fresh) = (links.join(volume), links.join(format!("..{volume}")));
    remove(&fresh)?;
    symlink(fs::canonicalize(file)?, &fresh)?;
    fs::rename(fresh, link)?;
    failpoints::after("embedded-node/volumes/link-device");
    let device = loop_device::attach(file)?;
    failpoints::after("embedded-node/volumes/attach-device");
    Ok(device)
}

/// Releases the pod's devices.
pub(crate) fn release(pod_dir: &Path) -> io::Result<()> {
    let _one_at_a_time = DEVICES.lock();
    let mut freed = Vec::new();
    for (link, file) in links_of(pod_dir)? {
        remove(&link)?;
        freed.push(file);
    }
    if freed.is_empty() {
        return Ok(());
    }
    let used = match pod_dir.parent() {
        Some(pods) => used_by_pods(pods)?,
        None => Vec::new(),
    };
    for file in freed.iter().filter(|file| !used.contains(file)) {
        detach_below(file, &[])?;
    }
    Ok(())
}

/// Detaches devices of this node's volumes that no pod uses.
pub(crate) fn sweep(root: &Path) -> io::Result<()> {
    let _one_at_a_time = DEVICES.lock();
    let used = used_by_pods(&root.join("pods"))?;
    detach_below(&root.join("volumes"), &used)
}

fn detach_below(path: &Path, used: &[PathBuf]) -> io::Result<()> {
    for one in loop_device::attached_below(path)? {
        if !used.contains(&one.file) {
            loop_device::detach(&one.device)?;
        }
    }
    Ok(())
}

fn used_by_pods(pods: &Path) -> io::Result<Vec<PathBuf>> {
    let entries = match fs::read_dir(pods) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    let mut used = Vec::new();
    for entry in entries {
        let files = links_of(&entry?.path())?;
        used.extend(files.into_iter().map(|(_, file)| file));
    }
    Ok(used)
}

fn links_of(pod_dir: &Path) -> io::Result<Vec<(PathBuf, PathBuf)>> {
    let entries = match fs::read_dir(pod_dir.join(LINKS)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        other => other?,
    };
    entries
        .map(|entry| {
            let link = entry?.path();
            let file = fs::read_link(&link)?;
            Ok((link, file))
        })
        .collect()
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn device_is_detached_after_its_last_pod() {
        let root = tempfile::Builder::new()
            .prefix("embedded-node-in-use")
            .tempdir()
            .unwrap();
        let volumes = root.path().join("volumes");
        fs::create_dir_all(volumes.join("a")).unwrap();
        let file = volumes.join("a/disk");
        fs::File::create(&file).unwrap().set_len(1 << 20).unwrap();
        let pod = |name: &str| root.path().join("pods").join(name);
        let device = attach(&pod("one"), "v", &file).unwrap();
        assert_eq!(attach(&pod("one"), "v", &file).unwrap(), device);
        assert_eq!(attach(&pod("two"), "w", &file).unwrap(), device);
        let count = || loop_device::attached_below(&volumes).unwrap().len();
        release(&pod("one")).unwrap();
        sweep(root.path()).unwrap();
        assert_eq!(count(), 1);
        release(&pod("two")).unwrap();
        assert_eq!(count(), 0);
        // The process died after it made the link.
        attach(&pod("three"), "v", &file).unwrap();
        fs::remove_dir_all(pod("three")).unwrap();
        sweep(root.path()).unwrap();
        assert_eq!(count(), 0);
        release(&pod("never")).unwrap();
    }
}
