//! The volumes of a pod, as directories and files of this host.
//!
//! - [`prepare`] makes all of them; calling it again is harmless.
//! - [`payload`] writes the files of config maps, secrets and their like.
//! - [`mounts`] makes and removes the memory-backed ones.

mod host_path;
pub(crate) mod mounts;
mod payload;
mod prepare;
mod sub_path;

use std::{collections::BTreeMap, path::PathBuf};

use pod_supervisor::model::Access;

pub(crate) use prepare::{Request, prepare};
pub(crate) use sub_path::sub_path;

pub(crate) type Volumes = BTreeMap<String, Volume>;

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Volume {
    pub(crate) path: PathBuf,
    pub(crate) access: Access,
}

/// The reason of every failure here.
const FAILED: &str = "FailedMount";
