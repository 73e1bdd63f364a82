//! The volumes of a pod, as directories and files of this host.
//!
//! - [`prepare`] makes all of them; calling it again is harmless.
//! - [`payload`] writes the files of config maps, secrets and their like.
//! - [`claimed`] is what lies behind persistent volume claims, given to the group of the pod by
//!   [`ownership`].
//! - [`mounts`] makes and removes the memory-backed ones.

mod claimed;
mod host_path;
pub(crate) mod mounts;
mod ownership;
mod payload;
mod prepare;
mod sub_path;

use std::{collections::BTreeMap, path::PathBuf};

use pod_supervisor::model::Access;
use reasons::Reason;

pub(crate) use prepare::{Request, prepare, refresh};
pub(crate) use sub_path::sub_path;

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
