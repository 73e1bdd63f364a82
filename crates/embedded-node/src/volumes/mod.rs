//! The volumes of a pod, as directories and files of this host.
//!
//! - [`prepare`] makes all of them; it may be repeated.
//! - [`sources`] finds the files of config maps, secrets and similar sources, [`payload`] writes them.
//! - [`claims`] prepares persistent volumes; [`ownership`] applies the pod's `fsGroup` to them.
//! - [`images`] records the images of image volumes, so that they are not removed.
//! - [`usage`] compares volumes with their size limits.
//! - [`mounts`] mounts and unmounts memory-backed volumes.

mod claims;
mod host_path;
pub(crate) mod images;
pub(crate) mod mounts;
mod ownership;
mod payload;
mod prepare;
mod sources;
mod sub_path;
mod usage;

use std::{collections::BTreeMap, path::PathBuf};

use pod_supervisor::model::Access;
use reasons::Reason;

pub(crate) use prepare::{Request, has_payload, prepare, refresh};
pub(crate) use sub_path::sub_path;
pub(crate) use usage::{exceeded, has_limit, taken_by};

pub(crate) type Volumes = BTreeMap<String, Volume>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
    pub(crate) content: Content,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    Files,
    /// A block device of this host.
    Device,
}

/// The reason of every failure here.
const FAILED: Reason = Reason::FailedMount;
