//! The effects of each planned step. Every function may be cancelled at any await and repeated.
//!
//! - [`api`]: writes to the API server: bind, status, deletion.
//! - [`sandbox`] and [`network`]: the pod's directory, supervisor and addresses.
//! - [`image`] and [`volumes`]: what containers need before they start.
//! - [`container`] starts containers, [`kill`] ends them, [`end`] removes the pod's resources.

mod api;
mod container;
mod end;
mod image;
mod kill;
mod network;
mod sandbox;
mod volumes;

use std::{io, path::Path};

use reasons::Reason;

use crate::Failure;

pub(super) use api::{bind, delete_object, write_status};
pub(super) use container::{StartContainer, image_record, start};
pub(super) use end::tear_down;
pub(super) use image::pull;
pub(super) use kill::{KillContainer, StopHook, StopPod, kill_container, stop};
pub(crate) use network::network_record;
pub(super) use network::{JoinNetwork, join_network, update_networks};
pub(crate) use sandbox::OBJECT_FILE;
pub(super) use sandbox::make_sandbox;
pub(super) use volumes::{LiveTokens, Prepared, measure_volumes, prepare_volumes, refresh_volumes};

const SANDBOX_FAILED: Reason = Reason::FailedCreatePodSandBox;
const KILL_FAILED: Reason = Reason::FailedKillPod;

/// Replaces the file atomically, also when the disk is full.
fn replace(file: &Path, bytes: &[u8]) -> io::Result<()> {
    durable_file::replace(file, bytes, durable_file::PRIVATE)
}

async fn blocking<T: Send + 'static>(
    reason: Reason,
    tried: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, Failure> {
    match tokio::task::spawn_blocking(|| panics::catch_io(work)).await {
        Ok(done) => done.map_err(|error| Failure::of(reason, tried, &error)),
        Err(error) => Err(Failure::of(reason, tried, &error)),
    }
}
