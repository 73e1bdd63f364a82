//! The guest's volumes: their backing in the pod, the preparation steps for the launcher, and the
//! steps that require privileges.
//!
//! **Invariant**: no content of a tenant is read, and no path is followed that the tenant could
//! redirect; every access may hang with its storage and never runs on a tokio worker.

pub(crate) mod blocks;
mod hotplug;
mod inside;
mod steps;

use std::{
    collections::{BTreeMap, BTreeSet},
    io,
    sync::Arc,
};

use domain_xml::{Allocation, DirectIo, Provisioning, VolumeFacts, VolumeMode};
use k8s_openapi::api::core::v1::Pod;
use kubevirt_api::{
    VirtualMachineInstance, annotations, quantity::Amount, vmi_status::PersistentVolumeClaimInfo,
};
use model::{Guest, HostFileCreation, Storage, Volume, paths};

use self::inside::{Existing, Inside, Use};
pub(crate) use self::inside::{READ_AND_WRITE, give, has_rights};
use crate::launcher::Peer;

pub(crate) use self::hotplug::{Access, Plugs};
pub(crate) use self::steps::{StepError, hot_step, steps};

/// The container of the guest.
const CONTAINER: &str = "compute";

/// The persistent volume claims of a pod.
#[derive(Debug, Clone, Default)]
pub(crate) struct Claims {
    block: BTreeSet<String>,
    infos: BTreeMap<String, PersistentVolumeClaimInfo>,
}

impl Claims {
    /// From the pod's annotation. A malformed annotation counts as missing: then only existing disks
    /// can be used.
    pub(crate) fn of(pod: &Pod) -> Self {
        let annotated = pod.metadata.annotations.as_ref();
        let annotation = annotated.and_then(|all| all.get(annotations::CLAIMS));
        let infos = annotation.and_then(|text| {
            serde_json::from_str(text)
                .inspect_err(|error| tracing::warn!(%error, "malformed annotation of claims"))
                .ok()
        });
        let containers = pod.spec.iter().flat_map(|spec| &spec.containers);
        let compute = containers.filter(|container| container.name == CONTAINER);
        let devices = compute.flat_map(|container| container.volume_devices.iter().flatten());
        Self {
            block: devices.map(|device| device.name.clone()).collect(),
            infos: infos.unwrap_or_default(),
        }
    }

    /// Of the volumes that another pod brings.
    pub(crate) fn hotplugged(vmi: &VirtualMachineInstance) -> Self {
        let status = vmi.status.iter();
        let all = status.flat_map(|status| &status.volume_status);
        let plugged = all.filter(|volume| volume.hotplug_volume.is_some());
        let infos: BTreeMap<_, _> = plugged
            .filter_map(|volume| {
                let info = volume.persistent_volume_claim_info.clone()?;
                Some((volume.name.clone(), info))
            })
            .collect();
        Self {
            block: BTreeSet::new(),
            infos,
        }
    }

    pub(crate) fn info(&self, volume: &str) -> Option<&PersistentVolumeClaimInfo> {
        self.infos.get(volume)
    }

    fn is_block(&self, volume: &str) -> bool {
        self.block.contains(volume)
    }

    pub(crate) fn provisioning(&self, volume: &str) -> Provisioning {
        match self.infos.get(volume).and_then(|info| info.preallocated) {
            Some(true) => Provisioning::Thick,
            _ => Provisioning::Thin,
        }
    }

    /// The claim's capacity in bytes, or the requested size if it was not bound yet.
    fn bytes(&self, volume: &str) -> Option<u64> {
        let info = self.infos.get(volume)?;
        let storage = [&info.capacity, &info.requests]
            .into_iter()
            .find_map(|list| list.get("storage"))?;
        Amount::parse(storage).ok().map(Amount::units)
    }
}

/// Gives the guest's user access to its disks in the pod, and returns facts about them. Idempotent.
pub(crate) async fn hand_over(
    guest: &Guest<'_>,
    claims: &Claims,
    peer: Arc<Peer>,
    own_files: DirectIo,
) -> io::Result<BTreeMap<String, VolumeFacts>> {
    let external: Vec<ExternalVolume> = guest
        .volumes
        .iter()
        .filter(|volume| !guest.is_filesystem(volume.name) || claims.is_block(volume.name))
        .filter_map(|volume| ExternalVolume::of(volume, claims))
        .collect();
    if external.is_empty() {
        return Ok(BTreeMap::new());
    }
    let hand_over_all = move || -> io::Result<_> {
        let inside = Inside::of(&peer)?;
        external
            .iter()
            .map(|one| Ok((one.volume.clone(), one.hand_over(&inside, own_files)?)))
            .collect()
    };
    tokio::task::spawn_blocking(|| panics::catch_io(hand_over_all))
        .await
        .map_err(io::Error::other)?
}

/// A volume that is stored outside of the pod.
#[derive(Debug)]
struct ExternalVolume {
    volume: String,
    backing: Backing,
    /// The backing file of an overlay on the pod's own storage.
    is_overlaid: bool,
    provisioning: Provisioning,
}

#[derive(Debug)]
enum Backing {
    Device,
    Image {
        name: String,
        wanted: Use,
        existing: Existing,
    },
}

impl ExternalVolume {
    fn of(volume: &Volume<'_>, claims: &Claims) -> Option<Self> {
        let image = |name: &str, wanted, existing| Backing::Image {
            name: name.to_owned(),
            wanted,
            existing,
        };
        let image_of_claim = |wanted| {
            if claims.is_block(volume.name) {
                Backing::Device
            } else {
                image(paths::CLAIM_IMAGE, wanted, Existing::Give)
            }
        };
        let storage = volume.source.storage();
        let backing = match storage {
            Storage::Host(disk) => {
                let wanted = match disk.creation {
                    HostFileCreation::IfMissing => Use::Create,
                    HostFileCreation::Never => Use::Write,
                };
                image(disk.file.ok()?.name, wanted, Existing::Keep)
            }
            Storage::Claim(claim) if claim.is_read_only => image_of_claim(Use::Read),
            Storage::Claim(_) => image_of_claim(Use::Create),
            Storage::OverlaidClaim(_) => image_of_claim(Use::Read),
            Storage::Pod => return None,
        };
        Some(Self {
            volume: volume.name.to_owned(),
            backing,
            is_overlaid: matches!(storage, Storage::OverlaidClaim(_)),
            provisioning: claims.provisioning(volume.name),
        })
    }

    fn hand_over(&self, inside: &Inside, own_files: DirectIo) -> io::Result<VolumeFacts> {
        let failed = |error: io::Error| {
            io::Error::new(error.kind(), format!("volume {}: {error}", self.volume))
        };
        let (mode, direct_io, blocks, allocation) = match &self.backing {
            Backing::Device => {
                let blocks = inside.give_device(&self.volume).map_err(failed)?;
                let direct_io = DirectIo::Supported;
                (VolumeMode::Block, direct_io, blocks, Allocation::Full)
            }
            Backing::Image {
                name,
                wanted,
                existing,
            } => {
                let directory = inside.disk_directory(&self.volume).map_err(failed)?;
                inside::give_image(&directory, name, *wanted, *existing).map_err(failed)?;
                let blocks = blocks::of_files(&directory);
                let direct_io = inside::direct_io(&directory, name);
                let allocation = inside::allocation(&directory, name);
                (VolumeMode::Filesystem, direct_io, blocks, allocation)
            }
        };
        let direct_io = match (self.is_overlaid, own_files) {
            (true, DirectIo::Unsupported) => DirectIo::Unsupported,
            _ => direct_io,
        };
        // An overlay grows while the guest writes.
        let allocation = if self.is_overlaid {
            Allocation::Sparse
        } else {
            allocation
        };
        Ok(VolumeFacts {
            mode,
            direct_io,
            blocks,
            provisioning: self.provisioning,
            allocation,
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn pod(claims: &str) -> Pod {
        serde_json::from_value(json!({
            "metadata": {"annotations": {"ferrovirt.io/claims": claims}},
            "spec": {"containers": [
                {"name": "compute", "volumeDevices": [{"name": "raw", "devicePath": "/dev/raw"}]},
                {"name": "other", "volumeDevices": [{"name": "image", "devicePath": "/dev/x"}]},
            ]},
        }))
        .unwrap()
    }

    #[test]
    fn pod_annotation_gives_mode_and_size_of_claims() {
        let claims = Claims::of(&pod(
            r#"{"image": {"capacity": {"storage": "2Gi"}, "requests": {"storage": "1Gi"}},
                "late": {"requests": {"storage": "1Gi"}, "preallocated": true}, "odd": {"capacity": {"storage": "x"}}}"#,
        ));
        assert!(claims.is_block("raw") && !claims.is_block("image"));
        assert_eq!(claims.bytes("image"), Some(2 << 30));
        assert_eq!(claims.provisioning("image"), Provisioning::Thin);
        assert_eq!(claims.provisioning("late"), Provisioning::Thick);
        assert_eq!(claims.bytes("late"), Some(1 << 30));
        assert_eq!((claims.bytes("odd"), claims.bytes("none")), (None, None));
        assert_eq!(Claims::of(&pod("nonsense")).bytes("image"), None);
    }
}
