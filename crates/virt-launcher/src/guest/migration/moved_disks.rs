//! Disks that the guest has on other claims in its new pod: their lengths, their places, and the room for them.
//!
//! **Invariant**: in the new pod no disk is used whose content was not copied to its claim, and none is copied onto the
//! claim that it is on. The new launcher checks that by what its own pod was made for.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Seek as _, SeekFrom};
use std::path::Path;

use container_disk::beneath;
use launcher_channel::ClaimDisk;
use rustix::fs::OFlags;

use super::disk_xml::{Place, with_place};
use crate::guest::domain_xml::{LiveDisk, LiveDomain};
use crate::xml;

#[derive(Debug, thiserror::Error)]
pub(crate) enum MovedDiskError {
    #[error("disk {0} is on another claim in the new pod, and is not to be copied")]
    NotCopied(String),
    #[error(
        "volumes of the guest are on other claims in the new pod, whose virt-handler is of an earlier version"
    )]
    EarlierHandler,
    #[error("disk {0} is on the same claim in both pods, and is to be copied")]
    CopiedOntoItself(String),
    #[error("the length of disk {0} is not known: the guest's own pod has an earlier launcher")]
    NoLength(String),
    #[error("disk {0} is not in the domain")]
    NoSuchDisk(String),
    #[error("the claim for disk {disk} has {present} bytes, the disk needs {needed}")]
    TooSmall {
        disk: String,
        present: u64,
        needed: u64,
    },
    #[error(
        "disk {disk} is made by each pod, and has {length} bytes in the old one, more than any has"
    )]
    TooLong { disk: String, length: u64 },
    #[error("open disk {disk}")]
    Open {
        disk: String,
        #[source]
        source: io::Error,
    },
    #[error("read the domain")]
    Xml(#[from] xml::Error),
}

impl MovedDiskError {
    pub(super) fn at(disk: &str) -> impl FnOnce(io::Error) -> Self {
        let disk = disk.to_owned();
        move |source| Self::Open { disk, source }
    }
}

/// In the old pod: how many bytes the guest sees of these disks, which are raw.
pub(super) async fn lengths(
    xml: &str,
    disks: &[String],
) -> Result<BTreeMap<String, u64>, MovedDiskError> {
    if disks.is_empty() {
        return Ok(BTreeMap::new());
    }
    let all = named(xml, disks)?;
    blocking(move || {
        let lengths = all.into_iter().map(|disk| {
            if let Some(bytes) = disk.slice_bytes {
                return Ok((disk.target, bytes));
            }
            let at = MovedDiskError::at(&disk.target);
            let file = open(&disk, Purpose::Measure);
            let length = file.and_then(|mut file| length(&mut file)).map_err(at)?;
            Ok((disk.target, length))
        });
        lengths.collect()
    })
    .await
}

/// In the new pod: whether exactly the disks are copied that are on other claims here. `moved` is the number of them
/// that the pod was made for.
pub(super) fn check(
    expected: &[ClaimDisk],
    moved: usize,
    copied: &[String],
) -> Result<(), MovedDiskError> {
    if expected.iter().filter(|disk| disk.is_new).count() < moved {
        return Err(MovedDiskError::EarlierHandler);
    }
    for disk in expected {
        let target = || disk.target.clone();
        match (disk.is_new, copied.contains(&disk.target)) {
            (true, false) => return Err(MovedDiskError::NotCopied(target())),
            (false, true) => return Err(MovedDiskError::CopiedOntoItself(target())),
            (true, true) | (false, false) => {}
        }
    }
    Ok(())
}

/// In the new pod: makes room for the disks, and gives the XML of the guest with their places here, which the plan
/// of this pod has.
pub(super) async fn place(
    xml: String,
    plan: &str,
    expected: &[ClaimDisk],
    lengths: &BTreeMap<String, u64>,
) -> Result<String, MovedDiskError> {
    let moved: Vec<String> = expected
        .iter()
        .filter(|disk| disk.is_new)
        .map(|disk| disk.target.clone())
        .collect();
    if moved.is_empty() {
        return Ok(xml);
    }
    let mut wanted = Vec::new();
    for disk in named(plan, &moved)? {
        let length = lengths.get(&disk.target).copied();
        let needed = length.ok_or_else(|| MovedDiskError::NoLength(disk.target.clone()))?;
        wanted.push((disk, needed));
    }
    let places = blocking(move || {
        let places = wanted
            .into_iter()
            .map(|(disk, needed)| make_room(disk, needed));
        places.collect::<Result<Vec<_>, _>>()
    })
    .await?;
    let mut xml = xml;
    for place in &places {
        let changed = with_place(&xml, place)?;
        let missing = || MovedDiskError::NoSuchDisk(place.disk.target.clone());
        xml = changed.ok_or_else(missing)?;
    }
    Ok(xml)
}

/// The disks with these names in the guest, each of which has to be there.
fn named(xml: &str, names: &[String]) -> Result<Vec<LiveDisk>, MovedDiskError> {
    let names: BTreeSet<&String> = names.iter().collect();
    let disks = LiveDomain::parse(xml)?.disks;
    let found = names.into_iter().map(|name| {
        let mut all = disks.iter();
        let found = all.find(|disk| disk.target == *name && disk.source.is_some());
        found
            .cloned()
            .ok_or_else(|| MovedDiskError::NoSuchDisk(name.clone()))
    });
    found.collect()
}

/// A file grows to the length of the disk; of more than that the guest sees nothing before its next start.
fn make_room(disk: LiveDisk, needed: u64) -> Result<Place, MovedDiskError> {
    let purpose = if disk.is_device {
        Purpose::Measure
    } else {
        Purpose::Grow
    };
    let mut file = open(&disk, purpose).map_err(MovedDiskError::at(&disk.target))?;
    let mut present = length(&mut file).map_err(MovedDiskError::at(&disk.target))?;
    if present < needed && !disk.is_device {
        file.set_len(needed)
            .map_err(MovedDiskError::at(&disk.target))?;
        present = needed;
    }
    if present < needed {
        return Err(MovedDiskError::TooSmall {
            disk: disk.target,
            present,
            needed,
        });
    }
    Ok(Place {
        disk,
        only_bytes: (present > needed).then_some(needed),
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Purpose {
    Measure,
    Grow,
}

/// Opens the file or the device. A claim belongs to a tenant: no link in it is followed.
fn open(disk: &LiveDisk, purpose: Purpose) -> io::Result<File> {
    let path = disk.source.as_deref().map(Path::new);
    let parts = path.and_then(|path| Some((path.parent()?, path.file_name()?)));
    let Some((directory, name)) = parts else {
        return Err(io::ErrorKind::NotFound.into());
    };
    let directory = beneath::directory(directory)?;
    let opened = match purpose {
        Purpose::Measure => beneath::read(&directory, Path::new(name))?,
        Purpose::Grow => beneath::write(&directory, Path::new(name), OFlags::empty())?,
    };
    let file = File::from(opened);
    if !disk.is_device && !file.metadata()?.is_file() {
        return Err(io::Error::other("it is not a file"));
    }
    Ok(file)
}

fn length(file: &mut File) -> io::Result<u64> {
    file.seek(SeekFrom::End(0))
}

async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, MovedDiskError> + Send + 'static,
) -> Result<T, MovedDiskError> {
    let done = tokio::task::spawn_blocking(work).await;
    done.map_err(|error| MovedDiskError::at("of the guest")(io::Error::other(error)))?
}

#[cfg(test)]
mod tests {
    use super::*;

    fn disk(target: &str, is_new: bool) -> ClaimDisk {
        ClaimDisk {
            target: target.to_owned(),
            is_new,
        }
    }

    #[test]
    fn exactly_the_disks_on_other_claims_are_copied() {
        let expected = [disk("vda", true), disk("vdb", false)];
        let check = |copied: &[&str]| {
            let copied: Vec<String> = copied.iter().map(|name| (*name).to_owned()).collect();
            check(&expected, 1, &copied).map_err(|error| error.to_string())
        };
        // Others are in the pods themselves.
        assert_eq!(check(&["vda", "vdc"]), Ok(()));
        assert!(check(&["vdc"]).unwrap_err().contains("not to be copied"));
        assert!(check(&["vda", "vdb"]).unwrap_err().contains("same claim"));
        let found = super::check(&[], 1, &[]);
        assert!(
            matches!(found, Err(MovedDiskError::EarlierHandler)),
            "{found:?}"
        );
    }

    fn xml(path: &Path) -> String {
        format!(
            "<domain><devices><disk type='file'><driver name='qemu' type='raw'/>\
             <source file='{}'/><target dev='vda'/></disk></devices></domain>",
            path.display()
        )
    }

    #[tokio::test]
    async fn file_grows_and_a_longer_one_is_cut_for_the_guest() {
        let dir = tempfile::tempdir().unwrap();
        let [old, new] = ["old.img", "new.img"].map(|name| dir.path().join(name));
        std::fs::write(&old, vec![1; 2048]).unwrap();
        let from = xml(&old);
        let names = ["vda".to_owned()];
        let known = lengths(&from, &names).await.unwrap();
        assert_eq!(known["vda"], 2048);
        for (present, after, is_cut) in [(0, 2048, false), (2048, 2048, false), (4096, 4096, true)]
        {
            std::fs::write(&new, vec![2; present]).unwrap();
            let plan = xml(&new);
            let placed = place(from.clone(), &plan, &[disk("vda", true)], &known)
                .await
                .unwrap();
            assert!(
                placed.contains("new.img") && !placed.contains("old.img"),
                "{placed}"
            );
            assert_eq!(placed.contains("size=\"2048\""), is_cut, "{present}");
            assert_eq!(std::fs::metadata(&new).unwrap().len(), after, "{present}");
        }
    }

    #[tokio::test]
    async fn unknown_lengths_and_links_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let [real, link] = ["real.img", "link.img"].map(|name| dir.path().join(name));
        std::fs::write(&real, "x").unwrap();
        std::os::unix::fs::symlink(&real, &link).unwrap();
        let names = ["vda".to_owned()];
        let found = lengths(&xml(&link), &names).await;
        assert!(
            matches!(found, Err(MovedDiskError::Open { .. })),
            "{found:?}"
        );
        let found = lengths(&xml(&real), &["vdb".to_owned()]).await;
        assert!(
            matches!(found, Err(MovedDiskError::NoSuchDisk(_))),
            "{found:?}"
        );
        let plan = xml(&real);
        let found = place(plan.clone(), &plan, &[disk("vda", true)], &BTreeMap::new()).await;
        assert!(
            matches!(found, Err(MovedDiskError::NoLength(_))),
            "{found:?}"
        );
        // Nothing has moved.
        let same = place(plan.clone(), &plan, &[disk("vda", false)], &BTreeMap::new()).await;
        assert_eq!(same.unwrap(), plan);
    }
}
