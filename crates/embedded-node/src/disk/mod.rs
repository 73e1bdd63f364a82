//! Free space on the disk of the node's directory.
//!
//! A nearly full disk stops new work before it breaks what runs: the node reports the condition
//! `DiskPressure`, binds no pod and pulls no image until there is space again. Running pods are not ended.
//! Before that, unused images are removed.
//!
//! [`space`] decides, pure; [`images`] finds the images in use.

mod images;
mod space;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, SystemTime},
};

use error_chain::error_chain;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::{
    Api,
    api::{Patch, PatchParams},
};
use reasons::Reason;
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use crate::{node::Shared, registration::MANAGER, repeated::Failures};

use space::Space;

/// Interval of the checks: guests can fill gigabytes within minutes.
const CHECK_EVERY: Duration = Duration::from_secs(5);
/// An image stays this long after its last use, as with kubelets: the next pod often has the same one.
const UNUSED_FOR: Duration = Duration::from_mins(2);

/// What the node knows about its disk.
#[derive(Debug, Default)]
pub(crate) struct Disk {
    pressure: AtomicBool,
}

impl Disk {
    pub(crate) fn has_pressure(&self) -> bool {
        self.pressure.load(Ordering::Relaxed)
    }

    /// A scheduler's message why no pod is bound now.
    pub(crate) fn obstacle(&self) -> Option<String> {
        self.has_pressure().then(|| {
            "0/1 nodes are available: the disk of the node is nearly full (condition DiskPressure): free space"
                .to_owned()
        })
    }

    /// The condition of the Node.
    pub(crate) fn condition(&self, now: Timestamp) -> Value {
        let (status, reason, message) = if self.has_pressure() {
            (
                "True",
                Reason::KubeletHasDiskPressure,
                "the disk of the node is nearly full: free space",
            )
        } else {
            (
                "False",
                Reason::KubeletHasNoDiskPressure,
                "the disk of the node has enough space",
            )
        };
        json!({
            "type": "DiskPressure",
            "status": status,
            "reason": reason.as_str(),
            "message": message,
            "lastHeartbeatTime": now,
            "lastTransitionTime": now,
        })
    }
}

/// Checks the disk until `stop`.
pub(crate) async fn run(shared: Arc<Shared>, stop: CancellationToken) {
    let mut ticks = tokio::time::interval(CHECK_EVERY);
    let mut failures = Failures::default();
    // The condition in the Node's status is that of the registration.
    let mut published = false;
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            _ = ticks.tick() => {}
        }
        match check(&shared, &mut published).await {
            Ok(()) => failures.succeeded(),
            Err(error) if failures.failed() => {
                tracing::warn!(
                    error = error_chain(&error),
                    "the disk still cannot be managed"
                );
            }
            Err(error) => {
                tracing::debug!(error = error_chain(&error), "the disk cannot be managed");
            }
        }
    }
}

#[derive(Debug, thiserror::Error)]
enum DiskError {
    #[error("read the free space of the node's directory")]
    Space(#[source] io::Error),
    #[error("find the images in use")]
    InUse(#[source] io::Error),
    #[error("remove unused images")]
    Images(#[from] image_store::StoreError),
    #[error("write the Node's condition")]
    Condition(#[source] Box<kube::Error>),
}

async fn check(shared: &Arc<Shared>, published: &mut bool) -> Result<(), DiskError> {
    let mut space = Space::of(&shared.settings.root).map_err(DiskError::Space)?;
    // The pressure is known and published even if images cannot be removed.
    let mut removal = Ok(());
    if space.wants_images_removed() {
        removal = remove_images(shared).await;
        space = Space::of(&shared.settings.root).map_err(DiskError::Space)?;
    }
    let before = shared.disk.has_pressure();
    let pressure = space.is_short(before);
    shared.disk.pressure.store(pressure, Ordering::Relaxed);
    if pressure != before {
        tracing::warn!(
            pressure,
            available_mib = space.available >> 20,
            "disk pressure of the node changed"
        );
        // Pods that wait for space.
        shared.node_changed.send_replace(());
    }
    if pressure != *published {
        publish(shared).await?;
        *published = pressure;
    }
    removal
}

async fn publish(shared: &Shared) -> Result<(), DiskError> {
    let api = Api::<Node>::all(shared.settings.client.clone());
    let condition = shared.disk.condition(shared.settings.clock.now());
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    // Merged into the list by its type.
    let patch = Patch::Strategic(json!({"status": {"conditions": [condition]}}));
    let written = api.patch_status(&shared.settings.node_name, &parameters, &patch);
    let written = written.await.map(drop);
    written.map_err(|error| DiskError::Condition(Box::new(error)))
}

async fn remove_images(shared: &Arc<Shared>) -> Result<(), DiskError> {
    let reading = Arc::clone(shared);
    let since = SystemTime::from(shared.settings.clock.now()).checked_sub(UNUSED_FOR);
    let in_use = tokio::task::spawn_blocking(move || images::in_use(&reading, since)).await;
    let in_use = in_use
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(DiskError::InUse)?;
    let root = shared.settings.root.clone();
    let is_enough = move || Space::of(&root).is_ok_and(Space::has_enough_images_removed);
    let removed = shared
        .settings
        .images
        .collect(in_use, Box::new(is_enough))
        .await?;
    if removed > 0 {
        tracing::info!(removed, "removed unused images to free disk space");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn condition_and_obstacle_follow_the_pressure() {
        let disk = Disk::default();
        let now = Timestamp::UNIX_EPOCH;
        assert_eq!(disk.condition(now)["status"], "False");
        assert_eq!(disk.condition(now)["reason"], "KubeletHasNoDiskPressure");
        assert_eq!(disk.obstacle(), None);
        disk.pressure.store(true, Ordering::Relaxed);
        assert_eq!(disk.condition(now)["status"], "True");
        assert_eq!(disk.condition(now)["reason"], "KubeletHasDiskPressure");
        assert!(
            disk.obstacle()
                .is_some_and(|text| text.contains("DiskPressure"))
        );
    }
}
