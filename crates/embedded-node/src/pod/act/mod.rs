//! The effects of each planned step. Every function may be cancelled at any await and repeated.
//!
//! - [`api`]: writes to the API server: bind, status, deletion.
//! - [`sandbox`] and [`network`]: the pod's directory, supervisor and addresses.
//! - [`image`] and [`volumes`]: what containers need before they start.
//! - [`container`]: starts and kills containers. [`end`]: stops the pod and removes its resources.

mod api;
mod container;
mod end;
mod image;
mod network;
mod sandbox;
mod volumes;

use std::{fs, io, os::unix::fs::PermissionsExt as _, path::Path};

use reasons::Reason;

use crate::Failure;

pub(super) use api::{bind, delete_object, write_status};
pub(super) use container::{KillContainer, StartContainer, image_record, kill_container, start};
pub(super) use end::{stop, tear_down};
pub(super) use image::pull;
pub(super) use network::{JoinNetwork, join_network, network_record};
pub(crate) use sandbox::OBJECT_FILE;
pub(super) use sandbox::make_sandbox;
pub(super) use volumes::{Prepared, prepare_volumes, refresh_tokens};

const SANDBOX_FAILED: Reason = Reason::FailedCreatePodSandBox;
const KILL_FAILED: Reason = Reason::FailedKillPod;

/// Replaces the file atomically, also when the disk is full.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    let fresh = file.with_extension("new");
    fs::write(&fresh, bytes)?;
    fs::set_permissions(&fresh, fs::Permissions::from_mode(0o600))?;
    fs::rename(fresh, file)
}

async fn blocking<T: Send + 'static>(
    reason: Reason,
    tried: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(work).await {
        Ok(done) => done.map_err(|error| Failure::of(reason, tried, &error)),
        Err(error) => Err(Failure::of(reason, tried, &error)),
    }
}
