//! Warns about volumes that hold more than their capacity, which not every file system enforces, and about full ones
//! where it does. Limits those that were made when it did not, while no pod uses them.
//!
//! Invariants: one volume is measured at a time, each at most every [`PERIOD`]; blocks on disk count, so a sparse image
//! counts with what it takes; what a container changes meanwhile is read by descriptor, without links.

use std::{io, path::Path, time::Duration};

use k8s_openapi::api::core::v1::PersistentVolume;
use kubevirt_api::quantity::Amount;
use reasons::Reason;
use reconcile::{EventType, Key};
use tokio_util::sync::CancellationToken;

use super::{
    PROVISIONER, act,
    backing::{Backing, Mode},
    lookup::claim_names,
    project,
    volume::PROVISIONED_BY,
};
use crate::{node::Shared, volumes};

/// Shorter than the life of an event, so that it is shown as long as the volume is too large. A walk of a volume
/// with very many files takes seconds.
const PERIOD: Duration = Duration::from_mins(20);

/// Measures all volumes again and again until `stop`.
pub(super) async fn watch(shared: &Shared, stop: &CancellationToken) {
    loop {
        for volume in shared.storage.volumes.list() {
            if let Some(measured) = Measured::of(&volume)
                && stop
                    .run_until_cancelled(report(shared, measured))
                    .await
                    .is_none()
            {
                return;
            }
        }
        if stop
            .run_until_cancelled(tokio::time::sleep(PERIOD))
            .await
            .is_none()
        {
            return;
        }
    }
}

async fn report(shared: &Shared, volume: Measured<'_>) {
    let Some(claim) = shared.storage.claims.get(&volume.claim) else {
        return;
    };
    let backing = Backing::of_node(&shared.settings.root);
    let (dir, limit) = (
        backing.path(volume.name, Mode::Filesystem),
        limit(volume.bytes),
    );
    let users = if is_used(shared, &volume.claim) {
        Users::Some
    } else {
        Users::None
    };
    let work = move || measure(&dir, limit, users);
    let consequence = match act::blocking("measure the volume", work).await {
        Ok(Taken::Less) => return,
        Ok(Taken::All) => "which the file system of the host does not let them exceed",
        Ok(Taken::More) => "or more, and less is left for others on the disk of the host",
        Err(error) => {
            tracing::debug!(%error, volume = volume.name, "volume cannot be measured");
            return;
        }
    };
    let note = format!(
        "the files of the volume take its capacity of {}, {consequence}: remove files, or move them to a larger \
         claim",
        volume.shown
    );
    let (kind, reason) = (EventType::Warning, Reason::ClaimOverCapacity);
    shared.storage.recorder.publish(&*claim, kind, reason, note);
}

/// Whether a pod names the claim, also one that has ended.
fn is_used(shared: &Shared, claim: &Key) -> bool {
    shared.pods.list().iter().any(|pod| {
        pod.metadata.namespace.as_deref() == Some(claim.namespace.as_str())
            && claim_names(pod).any(|(_, name)| name == claim.name)
    })
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Users {
    None,
    Some,
}

/// What a volume takes of its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Taken {
    Less,
    /// As much as the file system allows.
    All,
    /// The file system does not limit it.
    More,
}

impl Taken {
    /// Of a limited volume.
    fn of(usage: project::Usage) -> Self {
        let is_full = usage.bytes.saturating_add(SLACK) >= usage.limit;
        if is_full { Self::All } else { Self::Less }
    }
}

fn measure(dir: &Path, limit: u64, users: Users) -> io::Result<Taken> {
    // In a volume that is used, files could not be moved between directories meanwhile.
    if users == Users::None
        && let Err(error) = project::limit(dir, limit)
    {
        tracing::debug!(%error, dir = %dir.display(), "volume cannot be limited to its capacity");
    }
    if let Some(usage) = project::usage(dir)? {
        return Ok(Taken::of(usage));
    }
    let is_above = volumes::taken_by(dir, limit)? > limit;
    Ok(if is_above { Taken::More } else { Taken::Less })
}

/// A volume of this host that is a directory.
#[derive(Debug, PartialEq, Eq)]
struct Measured<'a> {
    name: &'a str,
    claim: Key,
    bytes: u64,
    /// The capacity as written.
    shown: &'a str,
}

impl<'a> Measured<'a> {
    fn of(volume: &'a PersistentVolume) -> Option<Self> {
        let provisioner = volume.metadata.annotations.as_ref()?.get(PROVISIONED_BY)?;
        let spec = volume.spec.as_ref()?;
        // A volume in block mode is a file of a fixed size.
        let is_directory = spec.volume_mode.as_deref().unwrap_or("Filesystem") == "Filesystem";
        if provisioner != PROVISIONER || !is_directory {
            return None;
        }
        let claim = spec.claim_ref.as_ref()?;
        let capacity = spec.capacity.as_ref()?.get("storage")?;
        Some(Self {
            name: volume.metadata.name.as_deref()?,
            claim: Key::new(claim.namespace.clone()?, claim.name.clone()?),
            bytes: Amount::parse(capacity).ok()?.units(),
            shown: &capacity.0,
        })
    }
}

/// Added to a limit. A volume without that much left is full.
const SLACK: u64 = 1 << 20;

/// A full image takes a little more than its size, as file systems note where its blocks are.
pub(super) fn limit(capacity: u64) -> u64 {
    capacity.saturating_add(capacity / 64).saturating_add(SLACK)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn volume(provisioner: &str, mode: &str, claim: &Value) -> PersistentVolume {
        let volume = json!({
            "metadata": {
                "name": "pvc-1",
                "annotations": {"pv.kubernetes.io/provisioned-by": provisioner},
            },
            "spec": {"capacity": {"storage": "1Mi"}, "volumeMode": mode, "claimRef": claim},
        });
        serde_json::from_value(volume).unwrap()
    }

    #[test]
    fn directories_of_this_host_are_measured() {
        let claim = json!({"namespace": "n", "name": "c"});
        let expected = Measured {
            name: "pvc-1",
            claim: Key::new("n", "c"),
            bytes: 1 << 20,
            shown: "1Mi",
        };
        let found = volume("ferrovirt.io/local", "Filesystem", &claim);
        assert_eq!(Measured::of(&found), Some(expected));
        for other in [
            volume("ferrovirt.io/local", "Block", &claim),
            volume("ferrovirt.io/local", "Filesystem", &Value::Null),
            volume("other", "Filesystem", &claim),
        ] {
            assert_eq!(Measured::of(&other), None, "{other:?}");
        }
    }

    #[test]
    fn limited_volume_is_full_when_little_is_left_of_its_limit() {
        for capacity in [1 << 20, 10 << 20, 1 << 30, 1 << 40] {
            let limit = limit(capacity);
            let taken = |bytes| Taken::of(project::Usage { bytes, limit });
            assert_eq!(taken(0), Taken::Less, "{capacity}");
            assert_eq!(taken(capacity + 8192), Taken::Less, "a whole image");
            assert_eq!(taken(limit - 4096), Taken::All, "{capacity}");
            assert_eq!(taken(limit), Taken::All, "{capacity}");
        }
    }

    #[test]
    fn volume_is_too_large_with_what_it_takes_on_disk() {
        let dir = tempfile::tempdir().unwrap();
        let is_above = || {
            let taken = measure(dir.path(), limit(1 << 20), Users::Some);
            taken.unwrap() == Taken::More
        };
        let image = std::fs::File::create(dir.path().join("disk.img")).unwrap();
        image.set_len(1 << 30).unwrap();
        assert!(!is_above(), "a sparse image");
        std::fs::write(dir.path().join("full.img"), vec![1; 1 << 20]).unwrap();
        assert!(!is_above(), "as large as the claim");
        std::fs::write(dir.path().join("more.img"), vec![1; 2 << 20]).unwrap();
        assert!(is_above());
    }
}
