//! What keeps the data of a volume.

use kubevirt_api::volumes as wire;

use super::host_disk::HostDisk;

/// What keeps the data of a volume.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Storage<'a> {
    /// The pod: the data is made for it and lost with it.
    Pod,
    Claim(Claim<'a>),
    /// A claim that is only read: writes go to an overlay, which is lost with the pod.
    OverlaidClaim(Claim<'a>),
    /// A file on the node.
    Host(HostDisk<'a>),
}

/// A persistent volume claim that holds the data of a volume.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Claim<'a> {
    pub name: &'a str,
    pub is_read_only: bool,
    /// It may be attached and detached while the guest runs.
    pub is_hotpluggable: bool,
}

impl<'a> Claim<'a> {
    pub(super) fn of(source: &'a wire::PvcVolumeSource) -> Self {
        Self {
            name: &source.claim_name,
            is_read_only: source.read_only == Some(true),
            is_hotpluggable: source.hotpluggable == Some(true),
        }
    }

    pub(super) fn of_data_volume(source: &'a wire::DataVolumeSource) -> Self {
        Self {
            name: &source.name,
            is_read_only: false,
            is_hotpluggable: source.hotpluggable == Some(true),
        }
    }

    pub(super) fn of_ephemeral(source: &'a wire::EphemeralVolumeSource) -> Self {
        let claim = source.persistent_volume_claim.as_ref();
        Self {
            name: claim.map_or("", |claim| claim.claim_name.as_str()),
            is_read_only: claim.is_some_and(|claim| claim.read_only == Some(true)),
            is_hotpluggable: false,
        }
    }
}
