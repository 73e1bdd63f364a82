//! The replica set controller: keeps a number of equal VMIs, and replaces those that end.
//!
//! **Invariants**: a creation (or deletion) that the cache does not show yet counts as done, so that
//! a lagging cache causes no duplicates; at most [`plan::BURST`] VMIs are created or deleted in one
//! reconcile.

mod act;
mod observe;
mod plan;
mod status;
#[cfg(test)]
mod tests;
mod view;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::AtomicU64;

use kube::Client;
use kube::core::{Selector, SelectorExt as _};
use kube::runtime::watcher;
use kubevirt_api::VirtualMachineInstanceReplicaSet;
use parking_lot::Mutex;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};
use tokio::time::Instant;

use self::view::ReplicaSet;
use crate::caches::VMI;
use crate::gate::Gate;
use crate::view::Guest;
use crate::wiring::Wiring;

const KIND: &str = VirtualMachineInstanceReplicaSet::KIND;
/// Trigger by a set.
const REPLICA_SET: &str = "virtualmachineinstancereplicaset";

struct Controller {
    client: Client,
    sets: Store<ReplicaSet>,
    vmis: Store<Guest>,
    /// By the set's key; removed with the set.
    expectations: Mutex<BTreeMap<Key, Expectations>>,
    /// Distinguishes names that are generated in the same second.
    created: AtomicU64,
    recorder: Recorder,
    clock: Clock,
}

/// Writes that the cache does not show yet.
#[derive(Debug, Default)]
struct Expectations {
    /// Names of created VMIs, and when they were created.
    created: BTreeMap<String, Instant>,
    /// UIDs of deleted VMIs.
    deleted: BTreeSet<String>,
    /// The name of a VMI that was refused. The next try uses it again: a new name each time would
    /// change the message of the failure, and the status write would trigger the next try.
    refused: Option<String>,
}

impl Controller {
    fn new(
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
            expectations: Mutex::default(),
            created: AtomicU64::new(0),
            recorder,
            clock,
        }
    }
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let sets: Store<ReplicaSet> = Store::new();
    let queue = gate.clone();
    wiring.watch(
        watcher::Config::default(),
        &sets,
        move |set: &ReplicaSet| {
            queue.add(Key::of(set), REPLICA_SET);
        },
    );
    let (queue, known) = (gate.clone(), sets.clone());
    wiring
        .caches
        .guests
        .on_change(move |vmi| match Key::of_controller(vmi, KIND) {
            Some(owner) => queue.add(owner, VMI),
            None => queue.add_all(candidates(&known, vmi), VMI),
        });
    let (client, clock) = (wiring.settings.client.clone(), wiring.settings.clock);
    let (vmis, recorder) = (wiring.caches.guests.store(), wiring.recorder.clone());
    let store = sets.clone();
    wiring.controller(&gate, &sets, move || {
        Controller::new(
            client.clone(),
            store.clone(),
            vmis.clone(),
            recorder.clone(),
            clock,
        )
    });
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum ReplicaSetError {
    #[error("read a VMI")]
    Read(#[source] Box<kube::Error>),
    #[error("create a VMI")]
    Create(#[source] WriteError),
    #[error("delete a VMI")]
    Delete(#[source] WriteError),
    #[error("change the owner of a VMI")]
    Own(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for ReplicaSetError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::Create(_) => Reason::FailedCreate,
            Self::Delete(_) => Reason::FailedDelete,
            Self::Own(_) => Reason::FailedUpdate,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) => Retry::BackOff,
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
            self.expectations.lock().remove(key);
            return Ok(Requeue::OnChange);
        };
        let observed = self.observe(key, set).await?;
        let plan = plan::plan(&observed);
        self.act(key, &observed, &plan).await
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.sets.get(key)?.metadata.uid.clone()
    }
}

/// Sets that may adopt a VMI without a controlling owner.
fn candidates(sets: &Store<ReplicaSet>, vmi: &Guest) -> Vec<Key> {
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

/// Whether the set's selector matches the VMI's labels. An invalid selector, which admission refuses,
/// matches nothing, and neither does an empty one.
fn selects(set: &ReplicaSet, vmi: &Guest) -> bool {
    let Ok(selector) = Selector::try_from(set.spec.selector.clone()) else {
        return false;
    };
    let nothing = BTreeMap::new();
    !selector.selects_all() && selector.matches(vmi.metadata.labels.as_ref().unwrap_or(&nothing))
}
