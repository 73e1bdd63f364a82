//! Snapshots of this host's volumes, as a CSI driver and the snapshot controller take them.
//!
//! - [`plan`] plans for snapshots, [`content`] for their contents, `act` performs the steps;
//! - [`files`] stores the copies on disk.
//!
//! While the cluster does not define the kinds, nothing happens.
//!
//! **Invariants.** A snapshot is ready only when its copy is complete on disk. A copy is taken once: data
//! that is gone is reported, never copied again from a volume that has changed since. Snapshots of other
//! drivers are left alone.

mod act;
mod content;
mod files;
mod plan;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use error_chain::error_chain;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{Resource as _, runtime::watcher};
use kubevirt_api::volume_snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use reconcile::{Key, Store, Triggers, panic_events, run_controller, watch_if_defined};
use tokio_util::sync::CancellationToken;

use super::{
    CONCURRENCY, PROVISIONER, RETRY,
    claim::{self, DataSource},
};
use crate::node::Shared;

pub(super) use files::Files;

const SNAPSHOT_PROTECTION: &str = "snapshot.storage.kubernetes.io/volumesnapshot-bound-protection";
const CONTENT_PROTECTION: &str =
    "snapshot.storage.kubernetes.io/volumesnapshotcontent-bound-protection";

/// Caches of snapshot objects, and the keys to reconcile.
pub(crate) struct Snapshots {
    objects: Store<VolumeSnapshot>,
    contents: Store<VolumeSnapshotContent>,
    classes: Store<VolumeSnapshotClass>,
    triggers: Triggers,
    content_triggers: Triggers,
}

impl Snapshots {
    pub(super) fn new() -> Self {
        Self {
            objects: Store::new(),
            contents: Store::new(),
            classes: Store::new(),
            triggers: Triggers::new(),
            content_triggers: Triggers::new(),
        }
    }

    /// The handle of a snapshot that is ready, or why it is not.
    pub(super) fn handle(&self, named: &Key) -> Result<String, String> {
        let snapshot = self.objects.get(named);
        let snapshot = snapshot.ok_or_else(|| format!("volume snapshot {named} does not exist"))?;
        let status = snapshot.status.clone().unwrap_or_default();
        let content = status
            .bound_volume_snapshot_content_name
            .filter(|_| status.ready_to_use == Some(true))
            .and_then(|name| self.contents.get(&Key::new("", name)));
        let content = content.ok_or_else(|| {
            let error = status.error.and_then(|error| error.message);
            let error = error.map(|error| format!(": {error}")).unwrap_or_default();
            format!("volume snapshot {named} is not ready{error}")
        })?;
        if content.spec.driver != PROVISIONER {
            let driver = &content.spec.driver;
            return Err(format!("volume snapshot {named} is of driver {driver}"));
        }
        Ok(content::handle(&content))
    }

    /// The state of a claim or of its volume has changed.
    pub(super) fn on_claim(&self, claim: &Key, data: &DataSource) {
        if let DataSource::Snapshot(name) = data {
            let named = Key::new(claim.namespace.as_str(), name.as_str());
            self.triggers.add(named, "persistentvolumeclaim");
        }
        for snapshot in self.objects.in_namespace(&claim.namespace) {
            let source = &snapshot.spec.source.persistent_volume_claim_name;
            if source.as_deref() == Some(claim.name.as_str()) {
                let key = Key::of(snapshot.as_ref());
                self.triggers.add(key, "persistentvolumeclaim");
            }
        }
    }

    fn on_snapshot(&self, snapshot: &VolumeSnapshot) {
        self.triggers.add(Key::of(snapshot), "volumesnapshot");
        let named = snapshot.spec.source.volume_snapshot_content_name.clone();
        for name in [named, Some(plan::content_name(snapshot))]
            .into_iter()
            .flatten()
        {
            self.content_triggers
                .add(Key::new("", name), "volumesnapshot");
        }
    }

    fn on_content(&self, content: &VolumeSnapshotContent) {
        self.content_triggers
            .add(Key::of(content), "volumesnapshotcontent");
        let owner = &content.spec.volume_snapshot_ref;
        if let (Some(namespace), Some(name)) = (&owner.namespace, &owner.name) {
            let key = Key::new(namespace.as_str(), name.as_str());
            self.triggers.add(key, "volumesnapshotcontent");
        }
    }

    fn on_class(&self) {
        for key in self.objects.keys() {
            self.triggers.add(key, "volumesnapshotclass");
        }
    }
}

/// Keeps the caches current until `stop`.
pub(super) async fn watch(shared: &Shared, stop: &CancellationToken) {
    let snapshots = &shared.storage.snapshots;
    let client = || shared.settings.client.clone();
    let config = watcher::Config::default;
    tokio::join!(
        watch_if_defined(
            client(),
            config(),
            snapshots.objects.clone(),
            |snapshot| {
                snapshots.on_snapshot(snapshot);
                // Claims may wait for it.
                shared.storage.requeue_unbound();
            },
            stop.clone(),
        ),
        watch_if_defined(
            client(),
            config(),
            snapshots.contents.clone(),
            |content| snapshots.on_content(content),
            stop.clone(),
        ),
        watch_if_defined(
            client(),
            config(),
            snapshots.classes.clone(),
            |_: &VolumeSnapshotClass| snapshots.on_class(),
            stop.clone(),
        ),
    );
}

/// Waits for the first list of every kind.
pub(super) async fn ready(shared: &Shared) {
    let snapshots = &shared.storage.snapshots;
    tokio::join!(
        snapshots.objects.ready(),
        snapshots.contents.ready(),
        snapshots.classes.ready(),
    );
}

/// Reconciles snapshots and contents until `stop`.
pub(super) async fn run(shared: &Arc<Shared>, stop: &CancellationToken) {
    let (snapshots, recorder) = (&shared.storage.snapshots, &shared.storage.recorder);
    tokio::join!(
        create_class(shared, stop),
        run_controller(
            Arc::new(act::Snapshotter(Arc::clone(shared))),
            snapshots.triggers.clone(),
            CONCURRENCY,
            panic_events(recorder.clone(), snapshots.objects.clone()),
            stop.clone(),
        ),
        run_controller(
            Arc::new(act::Contents(Arc::clone(shared))),
            snapshots.content_triggers.clone(),
            CONCURRENCY,
            panic_events(recorder.clone(), snapshots.contents.clone()),
            stop.clone(),
        ),
    );
}

/// Creates the snapshot class once its kind is defined; users may change it afterwards.
async fn create_class(shared: &Shared, stop: &CancellationToken) {
    loop {
        if shared.storage.snapshots.classes.is_defined() {
            match act::ensure_class(shared).await {
                Ok(()) => return,
                Err(error) => {
                    let error = error_chain(&error);
                    tracing::warn!(error, "snapshot class cannot be created");
                }
            }
        }
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(RETRY) => {}
        }
    }
}

/// Whether the claim has no volume yet, and is to be a copy of the snapshot.
fn is_wanted(claim: &PersistentVolumeClaim, snapshot: &VolumeSnapshot) -> bool {
    let name = snapshot.meta().name.clone().unwrap_or_default();
    claim.metadata.namespace == snapshot.metadata.namespace
        && claim.metadata.deletion_timestamp.is_none()
        && claim::phase(claim) != "Bound"
        && claim::data_source(claim) == Ok(DataSource::Snapshot(name))
}

/// Whether any such claim is known.
fn usage(shared: &Shared, snapshot: &VolumeSnapshot) -> plan::Usage {
    let claims = shared.storage.claims.list();
    if claims.iter().any(|claim| is_wanted(claim, snapshot)) {
        plan::Usage::Wanted
    } else {
        plan::Usage::Unused
    }
}
