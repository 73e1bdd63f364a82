//! Images that the launcher of each pod makes of files of its own, such as a cloud-init seed: that of the new pod may
//! have another length, as its secrets and names are others. The guest keeps what it sees, so where it writes such an
//! image, and the image is copied therefore, that of the new pod gets the length of the old one first.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use container_disk::beneath;
use error_chain::error_chain;
use launcher_channel::Prepare;
use rustix::fs::OFlags;

use super::moved_disks::MovedDiskError;
use crate::guest::domain_xml::LiveDomain;

/// No launcher makes a longer one: it holds at most some mebibytes of files.
const MAX_LENGTH: u64 = 16 << 20;

/// The paths of such images of a pod.
pub(super) fn paths(steps: &[Prepare]) -> Vec<String> {
    let paths = steps.iter().filter_map(|step| match step {
        Prepare::Seed { path, .. } | Prepare::FilesImage { path, .. } => Some(path.clone()),
        Prepare::Overlay { .. }
        | Prepare::EmptyDisk { .. }
        | Prepare::Text { .. }
        | Prepare::Link { .. }
        | Prepare::RawDisk { .. } => None,
    });
    paths.collect()
}

/// In the old pod: the lengths of the images among the copied disks, by the names of the disks. An image that cannot be
/// measured is left out, and copied only if that of the new pod is as long by itself.
pub(super) async fn lengths(
    xml: &str,
    images: Vec<String>,
    copied: &[String],
) -> Result<BTreeMap<String, u64>, MovedDiskError> {
    let all = among(xml, &images, copied)?;
    let measured = move || {
        let lengths = all.into_iter().filter_map(|(disk, path)| {
            let length = open(&path, Purpose::Measure)
                .and_then(|file| file.metadata())
                .map(|facts| facts.len());
            match length {
                Ok(length) => Some((disk, length)),
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(disk, error, "the length of a disk is not known");
                    None
                }
            }
        });
        lengths.collect::<BTreeMap<_, _>>()
    };
    let done = tokio::task::spawn_blocking(measured).await;
    done.map_err(|error| MovedDiskError::at("of the pod")(io::Error::other(error)))
}

/// In the new pod, whose plan has this XML: gives the images among the copied disks the lengths that they have in the
/// old pod. Their contents are copied after that.
pub(super) async fn fit(
    plan: &str,
    images: Vec<String>,
    copied: &[String],
    lengths: &BTreeMap<String, u64>,
) -> Result<(), MovedDiskError> {
    let all = among(plan, &images, copied)?.into_iter();
    let wanted = all.filter_map(|(disk, path)| {
        let length = *lengths.get(&disk)?;
        Some((disk, path, length))
    });
    let wanted: Vec<_> = wanted.collect();
    let fitted = move || {
        wanted.into_iter().try_for_each(|(disk, path, length)| {
            if length > MAX_LENGTH {
                return Err(MovedDiskError::TooLong { disk, length });
            }
            let file = open(&path, Purpose::Resize);
            let done = file.and_then(|file| file.set_len(length));
            done.map_err(MovedDiskError::at(&disk))
        })
    };
    let done = tokio::task::spawn_blocking(fitted).await;
    done.map_err(|error| MovedDiskError::at("of the pod")(io::Error::other(error)))?
}

/// Names and paths of the copied disks that are such images.
fn among(
    xml: &str,
    images: &[String],
    copied: &[String],
) -> Result<Vec<(String, String)>, MovedDiskError> {
    if images.is_empty() {
        return Ok(Vec::new());
    }
    let disks = LiveDomain::parse(xml)?.disks.into_iter();
    let found = disks.filter_map(|disk| {
        let path = disk.source.filter(|path| images.contains(path))?;
        copied.contains(&disk.target).then_some((disk.target, path))
    });
    Ok(found.collect())
}

#[derive(Debug, Clone, Copy)]
enum Purpose {
    Measure,
    Resize,
}

/// Opens the image, which is a file of the launcher's own; QEMU of the guest may have put a link there.
fn open(path: &str, purpose: Purpose) -> io::Result<File> {
    let path = Path::new(path);
    let parts = path.parent().zip(path.file_name());
    let (directory, name) = parts.ok_or(io::ErrorKind::InvalidInput)?;
    let directory = beneath::directory(directory)?;
    let opened = match purpose {
        Purpose::Measure => beneath::read(&directory, Path::new(name))?,
        Purpose::Resize => beneath::write(&directory, Path::new(name), OFlags::empty())?,
    };
    let file = File::from(opened);
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(file)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn xml(seed: &Path) -> String {
        format!(
            "<domain><devices><disk type='file'><source file='{}'/><target dev='vdb'/></disk>\
             <disk type='file'><source file='/other'/><target dev='vda'/></disk></devices></domain>",
            seed.display()
        )
    }

    fn images(seed: &Path) -> Vec<String> {
        let path = seed.display().to_string();
        paths(&[
            Prepare::EmptyDisk {
                path: "/other".to_owned(),
                bytes: 1,
            },
            Prepare::Seed {
                path,
                label: "cidata".to_owned(),
                files: Vec::new(),
            },
        ])
    }

    #[tokio::test]
    async fn image_of_the_new_pod_gets_the_length_of_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new] = ["old.iso", "new.iso"].map(|name| dir.path().join(name));
        std::fs::write(&old, vec![1; 6144]).unwrap();
        let copied = ["vda", "vdb"].map(str::to_owned);
        let known = lengths(&xml(&old), images(&old), &copied).await.unwrap();
        assert_eq!(known, BTreeMap::from([("vdb".to_owned(), 6144)]));
        for before in [2048, 6144, 8192] {
            std::fs::write(&new, vec![2; before]).unwrap();
            fit(&xml(&new), images(&new), &copied, &known)
                .await
                .unwrap();
            let after = std::fs::metadata(&new).unwrap().len();
            assert_eq!(after, 6144, "{before}");
        }
    }

    #[tokio::test]
    async fn other_disks_keep_their_length() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("file.iso");
        std::fs::write(&file, vec![2; 2048]).unwrap();
        let known = |length| BTreeMap::from([("vdb".to_owned(), length)]);
        let copied = ["vdb".to_owned()];
        let check = async |images: Vec<String>, copied: &[String], known: BTreeMap<String, u64>| {
            let done = fit(&xml(&file), images, copied, &known).await;
            assert_eq!(std::fs::metadata(&file).unwrap().len(), 2048);
            done
        };
        // It is not an image of the pod, is not copied, or comes from an earlier launcher.
        check(Vec::new(), &copied, known(4096)).await.unwrap();
        check(images(&file), &[], known(4096)).await.unwrap();
        check(images(&file), &copied, BTreeMap::new())
            .await
            .unwrap();
        let found = check(images(&file), &copied, known(u64::MAX)).await;
        assert!(
            matches!(found, Err(MovedDiskError::TooLong { .. })),
            "{found:?}"
        );
    }

    #[tokio::test]
    async fn link_in_place_of_an_image_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let [real, link] = ["real", "link.iso"].map(|name| dir.path().join(name));
        std::fs::write(&real, "x").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let copied = ["vdb".to_owned()];
        let known = lengths(&xml(&link), images(&link), &copied).await.unwrap();
        assert_eq!(known, BTreeMap::new());
        let known = BTreeMap::from([("vdb".to_owned(), 4096)]);
        let found = fit(&xml(&link), images(&link), &copied, &known).await;
        assert!(
            matches!(found, Err(MovedDiskError::Open { .. })),
            "{found:?}"
        );
        assert_eq!(std::fs::read(&real).unwrap(), b"x");
    }
}
