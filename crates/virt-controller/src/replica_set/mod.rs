//! The replica set controller: keeps a number of equal VMIs, and replaces those that end.
//!
//! **Invariants**: what was asked for and has not shown in the cache yet counts as there (or as
//! gone), so that a cache that lags makes nothing twice; at most [`plan::BURST`] VMIs are made or
//! removed in one pass.

mod act;
mod observe;
mod plan;
mod status;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use kube::Client;
use kube::core::{Selector, SelectorExt as _};
use kubevirt_api::VirtualMachineInstanceReplicaSet;
use parking_lot::Mutex;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};
use tokio::time::Instant;

use crate::view::{Guest, ReplicaSet};

pub(crate) const KIND: &str = VirtualMachineInstanceReplicaSet::KIND;

pub(crate) struct Controller {
    client: Client,
    sets: Store<ReplicaSet>,
    vmis: Store<Guest>,
    /// By the set's key; gone with the set.
    asked_for: Mutex<BTreeMap<Key, AskedFor>>,
    /// Keeps names apart that are made in the same second.
    made: AtomicU64,
    recorder: Recorder,
    clock: Clock,
}

/// What the cache need not show yet.
#[derive(Debug, Default)]
struct AskedFor {
    /// Names of VMIs that were made, and since when.
    made: BTreeMap<String, Instant>,
    /// UIDs of VMIs that were deleted.
    deleted: BTreeSet<String>,
    /// The name of a VMI that was refused. It is asked for again by this name: a new one each time
    /// would make the failure read differently each time, and its telling start the next try.
    refused: Option<String>,
}

impl Controller {
    pub(crate) fn new(
        client: Client,
        sets: Store<ReplicaSet>,
        vmis: Store<Guest>,
        recorder: Recorder,
        clock: Clock,
    ) -> Self {
        Self {
            client,
            sets,
            vmis,
            asked_for: Mutex::default(),
            made: AtomicU64::new(0),
            recorder,
            clock,
        }
    }
}

/// Why a pass did not get to its end.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReplicaSetError {
    #[error("look for an instance")]
    Look(#[source] Box<kube::Error>),
    #[error("create an instance")]
    Create(#[source] WriteError),
    #[error("delete an instance")]
    Delete(#[source] WriteError),
    #[error("change the owner of an instance")]
    Own(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for ReplicaSetError {
    fn reason(&self) -> Reason {
        match self {
            Self::Look(_) => Reason::ServerUnavailable,
            Self::Create(_) => Reason::FailedCreate,
            Self::Delete(_) => Reason::FailedDelete,
            Self::Own(_) => Reason::FailedUpdate,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Look(_) => Retry::BackOff,
            Self::Create(source)
            | Self::Delete(source)
            | Self::Own(source)
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "replicaset";
    type Error = ReplicaSetError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, ReplicaSetError> {
        let Some(set) = self.sets.get(key) else {
            self.asked_for.lock().remove(key);
            return Ok(Requeue::OnChange);
        };
        let seen = self.observe(key, set).await?;
        let plan = plan::plan(&seen);
        self.act(key, &seen, &plan).await
    }
}

/// Sets that may want to adopt a VMI which nobody controls.
pub(crate) fn suitors(sets: &Store<ReplicaSet>, vmi: &Guest) -> Vec<Key> {
    let owners = vmi.metadata.owner_references.iter().flatten();
    if owners
        .into_iter()
        .any(|owner| owner.controller == Some(true))
    {
        return Vec::new();
    }
    let same_namespace = |set: &&std::sync::Arc<ReplicaSet>| {
        set.metadata.namespace == vmi.metadata.namespace && selects(set, vmi)
    };
    let sets = sets.list();
    let found = sets.iter().filter(same_namespace);
    found.map(|set| Key::of(set.as_ref())).collect()
}

/// Whether the VMI's labels are those of the set. A selector that makes no sense, which admission
/// refuses, takes nothing, and so does an empty one.
fn selects(set: &ReplicaSet, vmi: &Guest) -> bool {
    let Ok(selector) = Selector::try_from(set.spec.selector.clone()) else {
        return false;
    };
    let nothing = BTreeMap::new();
    !selector.selects_all() && selector.matches(vmi.metadata.labels.as_ref().unwrap_or(&nothing))
}
