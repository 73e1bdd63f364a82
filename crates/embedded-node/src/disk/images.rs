//! The images that pods of this host use, or are about to use.

use std::{collections::BTreeSet, fs, io, path::Path, time::SystemTime};

use image_store::{Digest, InUse};
use k8s_openapi::api::core::v1::Pod;
use pod_supervisor::model::ContainerSpec;

use crate::{node::Shared, slots, volumes};

/// The directory of an image in the store, between the store's directory and the image's files.
const TREES: &str = "trees";

pub(super) fn in_use(shared: &Shared, since: Option<SystemTime>) -> io::Result<InUse> {
    let pods = shared.pods.list();
    let active = pods.iter().filter(|pod| !slots::has_ended(pod));
    let references = active.flat_map(|pod| references(pod)).collect();
    Ok(InUse {
        digests: digests_of_pods(&shared.settings.root)?,
        references,
        since,
    })
}

/// An image whose pod cannot be read might be in use: an error, not a missing entry.
fn digests_of_pods(root: &Path) -> io::Result<BTreeSet<Digest>> {
    let mut digests = BTreeSet::new();
    match fs::read_dir(root.join("pods")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        pods => {
            for pod in pods? {
                collect_digests(&pod?.path(), &mut digests)?;
            }
        }
    }
    Ok(digests)
}

/// The images that a pod names.
fn references(pod: &Pod) -> Vec<String> {
    let Some(spec) = &pod.spec else {
        return Vec::new();
    };
    let containers = spec
        .containers
        .iter()
        .chain(spec.init_containers.iter().flatten());
    let volumes = spec.volumes.iter().flatten();
    let volumes = volumes.filter_map(|volume| volume.image.as_ref()?.reference.clone());
    containers
        .filter_map(|container| container.image.clone())
        .chain(volumes)
        .collect()
}

/// The images that the containers of a pod directory were started from, and those of its image volumes,
/// which may be prepared long before a container starts.
fn collect_digests(dir: &Path, digests: &mut BTreeSet<Digest>) -> io::Result<()> {
    digests.extend(volumes::images::recorded(dir)?);
    let containers = match fs::read_dir(dir.join("containers")) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        containers => containers?,
    };
    for container in containers {
        let container = container?.path();
        if let Some(image) = read(&container.join("image"))? {
            digests.extend(image.trim().parse::<Digest>().ok());
        }
        if let Some(spec) = read(&container.join("spec.json"))? {
            let spec: ContainerSpec = serde_json::from_str(&spec)?;
            let sources = spec.mounts.iter().map(|mount| mount.source.as_path());
            digests.extend(sources.filter_map(digest_of_tree));
        }
    }
    Ok(())
}

/// A pod may be removed while it is read.
fn read(path: &Path) -> io::Result<Option<String>> {
    match fs::read_to_string(path) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The image that a path in the store belongs to. The store's own directory may have any name.
fn digest_of_tree(path: &Path) -> Option<Digest> {
    let parts = path.iter().zip(path.iter().skip(1));
    parts
        .filter(|(parent, _)| *parent == TREES)
        .find_map(|(_, hex)| format!("sha256:{}", hex.to_str()?).parse().ok())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn images_of_containers_and_volumes_are_named_by_a_pod() {
        let pod = serde_json::from_value(json!({"spec": {
            "containers": [{"name": "a", "image": "one:1"}, {"name": "b"}],
            "initContainers": [{"name": "c", "image": "two:1"}],
            "volumes": [
                {"name": "v", "image": {"reference": "three:1"}},
                {"name": "w", "emptyDir": {}},
            ],
        }}));
        assert_eq!(references(&pod.unwrap()), ["one:1", "two:1", "three:1"]);
        assert!(references(&Pod::default()).is_empty());
    }

    #[test]
    fn image_of_a_mounted_path_is_known() {
        let digest = Digest::of(b"x");
        let hex = digest.to_string().replace("sha256:", "");
        for (path, expected) in [
            (
                format!("/s/images/trees/{hex}/rootfs/disk"),
                Some(digest.clone()),
            ),
            (
                format!("/trees/s/images/trees/{hex}/rootfs"),
                Some(digest.clone()),
            ),
            (format!("/s/images/trees/{hex}"), Some(digest)),
            ("/s/images/trees".to_owned(), None),
            ("/s/images/trees/short/rootfs".to_owned(), None),
            ("/etc/hosts".to_owned(), None),
        ] {
            assert_eq!(digest_of_tree(Path::new(&path)), expected, "{path}");
        }
    }

    #[test]
    fn unreadable_pods_are_an_error() {
        let dir = tempfile::tempdir().unwrap();
        assert!(digests_of_pods(dir.path()).unwrap().is_empty());
        fs::write(dir.path().join("pods"), "").unwrap();
        digests_of_pods(dir.path()).unwrap_err();
    }

    #[test]
    fn started_containers_keep_their_image() {
        let dir = tempfile::tempdir().unwrap();
        let mut found = BTreeSet::new();
        collect_digests(dir.path(), &mut found).unwrap();
        assert!(found.is_empty());
        let digest = Digest::of(b"x");
        let container = dir.path().join("containers/main");
        fs::create_dir_all(&container).unwrap();
        fs::write(container.join("image"), digest.as_str()).unwrap();
        collect_digests(dir.path(), &mut found).unwrap();
        assert_eq!(found, BTreeSet::from([digest]));
        fs::write(container.join("spec.json"), "{").unwrap();
        assert!(
            collect_digests(dir.path(), &mut found).is_err(),
            "no image is removed on a guess"
        );
    }

    #[test]
    fn prepared_volumes_keep_their_image_before_a_container_starts() {
        let root = tempfile::tempdir().unwrap();
        let digest = Digest::of(b"disk");
        let records = root.path().join("pods/uid/volumes/kubernetes.io~image");
        fs::create_dir_all(&records).unwrap();
        fs::write(records.join("disk"), digest.as_str()).unwrap();
        let found = digests_of_pods(root.path()).unwrap();
        assert_eq!(found, BTreeSet::from([digest]));
    }
}
