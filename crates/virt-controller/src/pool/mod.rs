//! The pool controller: keeps a number of VMs from one template, each with a name and disks of its own.
//!
//! A VM has the name of its pool and the lowest free number. A label of the VM names the revision of the pool
//! that it is like, and its guest has that label from the start on, so that the labels tell which VM and which
//! guest is to follow a changed template.
//!
//! **Invariants**: a creation (or deletion) that the cache does not show yet counts as done; one reconcile
//! creates at most [`plan::BURST`] VMs, deletes so many that fail and so many that are too many, and changes so
//! many; a VM that the pool has let go, or that outlives it, has neither its finalizer nor its ownership; the
//! disks of a VM are deleted with it unless the pool keeps them.

mod act;
mod change;
mod choice;
mod disks;
mod healing;
mod observe;
mod plan;
mod status;
mod template;
#[cfg(test)]
mod tests;
mod update;
mod view;

use std::collections::{BTreeMap, BTreeSet};

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Client;
use kube::core::{Selector, SelectorExt as _};
use kube::runtime::watcher;
use kubevirt_api::VirtualMachine;
use kubevirt_api::labels;
use kubevirt_api::pool::VirtualMachinePool;
use parking_lot::Mutex;
use reasons::Reason;
use reconcile::{
    Clock, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
};
use tokio::time::Instant;

use self::view::{Pool, Revision};
use crate::caches::{VM, VMI};
use crate::gate::Gate;
use crate::view::{Claim, DataVolume, Guest};
use crate::vm::Vm;
use crate::wiring::Wiring;

const KIND: &str = VirtualMachinePool::KIND;
/// Trigger by a pool.
const POOL: &str = "virtualmachinepool";
/// Trigger by a revision of a pool.
const REVISION: &str = "controllerrevision";

struct Controller {
    client: Client,
    pools: Store<Pool>,
    vms: Store<Vm>,
    vmis: Store<Guest>,
    revisions: Store<Revision>,
    claims: Store<Claim>,
    data_volumes: Store<DataVolume>,
    /// By the pool's key; removed with the pool.
    expectations: Mutex<BTreeMap<Key, Expectations>>,
    recorder: Recorder,
    clock: Clock,
}

/// Writes that the cache does not show yet.
#[derive(Debug, Default)]
struct Expectations {
    /// Names of created VMs, and when they were created.
    created: BTreeMap<String, Instant>,
    /// UIDs of deleted VMs.
    deleted: BTreeSet<String>,
    /// UIDs of deleted guests, by their names.
    restarted: BTreeMap<String, String>,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let pools: Store<Pool> = Store::new();
    let queue = gate.clone();
    wiring.watch(watcher::Config::default(), &pools, move |pool: &Pool| {
        queue.add(Key::of(pool), POOL);
    });
    let revisions: Store<Revision> = Store::new();
    let own = watcher::Config::default().labels(labels::POOL_REVISION_NAME);
    let queue = gate.clone();
    wiring.watch(own, &revisions, move |revision: &Revision| {
        if let Some(owner) = Key::of_controller(revision, KIND) {
            queue.add(owner, REVISION);
        }
    });
    let (queue, known) = (gate.clone(), pools.clone());
    wiring
        .caches
        .vms
        .on_change(move |vm| match Key::of_controller(vm, KIND) {
            Some(owner) => queue.add(owner, VM),
            None => queue.add_all(candidates(&known, vm).into_iter().chain(former(vm)), VM),
        });
    let (queue, vms) = (gate.clone(), wiring.caches.vms.store());
    wiring.caches.guests.on_change(move |vmi| {
        let vm = Key::of_controller(vmi, VirtualMachine::KIND).and_then(|key| vms.get(&key));
        if let Some(owner) = vm.and_then(|vm| Key::of_controller(vm.as_ref(), KIND)) {
            queue.add(owner, VMI);
        }
    });
    let (client, clock) = (wiring.settings.client.clone(), wiring.settings.clock);
    let (vms, vmis) = (wiring.caches.vms.store(), wiring.caches.guests.store());
    let claims = wiring.caches.claims.store();
    let data_volumes = wiring.caches.data_volumes.store();
    let (store, recorder) = (pools.clone(), wiring.recorder.clone());
    wiring.controller(&gate, &pools, move || Controller {
        client: client.clone(),
        pools: store.clone(),
        vms: vms.clone(),
        vmis: vmis.clone(),
        revisions: revisions.clone(),
        claims: claims.clone(),
        data_volumes: data_volumes.clone(),
        expectations: Mutex::default(),
        recorder: recorder.clone(),
        clock,
    });
}

/// Why a reconcile failed.
#[derive(Debug, thiserror::Error)]
enum PoolError {
    #[error("read from the API server")]
    Read(#[source] Box<kube::Error>),
    #[error("change the finalizers of the pool")]
    Finalizer(#[source] WriteError),
    #[error("store a revision of the spec")]
    KeepRevision(#[source] WriteError),
    #[error("controllerrevision {name} belongs to another object: delete it")]
    RevisionTaken { name: String },
    #[error("create a VM")]
    Create(#[source] WriteError),
    #[error("delete a VM")]
    Delete(#[source] WriteError),
    #[error("update a VM")]
    Update(#[source] WriteError),
    #[error("update the guest of a VM")]
    UpdateGuest(#[source] WriteError),
    #[error("keep a disk of a VM")]
    KeepDisk(#[source] WriteError),
    #[error("let a VM go")]
    LetGo(#[source] WriteError),
    #[error("delete a revision of the spec")]
    Prune(#[source] WriteError),
    #[error("write the status")]
    Status(#[source] WriteError),
}

impl ReconcileError for PoolError {
    fn reason(&self) -> Reason {
        match self {
            Self::Read(_) => Reason::ServerUnavailable,
            Self::KeepRevision(_) | Self::RevisionTaken { .. } | Self::Create(_) => {
                Reason::FailedCreate
            }
            Self::Delete(_) => Reason::FailedDelete,
            Self::Finalizer(_)
            | Self::Update(_)
            | Self::UpdateGuest(_)
            | Self::KeepDisk(_)
            | Self::LetGo(_) => Reason::FailedUpdate,
            Self::Prune(_) => Reason::FailedRevisionPruning,
            Self::Status(_) => Reason::FailedStatusUpdate,
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Read(_) | Self::RevisionTaken { .. } => Retry::BackOff,
            Self::Finalizer(source)
            | Self::KeepRevision(source)
            | Self::Create(source)
            | Self::Delete(source)
            | Self::Update(source)
            | Self::UpdateGuest(source)
            | Self::KeepDisk(source)
            | Self::LetGo(source)
            | Self::Prune(source)
            | Self::Status(source) => source.retry(),
        }
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "pool";
    type Error = PoolError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, PoolError> {
        let pool = self.pools.get(key);
        let uid = pool.as_ref().and_then(|pool| pool.metadata.uid.clone());
        // A VM of an older pool that cannot be released does not hold up the present pool.
        let released = self.release_abandoned(key, uid.as_deref()).await;
        let Some(pool) = pool else {
            self.expectations.lock().remove(key);
            return released.map(|()| Requeue::OnChange);
        };
        let observed = self.observe(key, pool).await?;
        let plan = plan::plan(&observed);
        let requeue = self.act(key, &observed, &plan).await?;
        released.map(|()| requeue)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.pools.get(key)?.metadata.uid.clone()
    }
}

/// Pools that a VM without a controlling owner may have belonged to.
fn candidates(pools: &Store<Pool>, vm: &Vm) -> Vec<Key> {
    if is_controlled(vm) {
        return Vec::new();
    }
    let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
    let pools = pools.in_namespace(namespace);
    let found = pools.iter().filter(|pool| concerns(pool, vm));
    found.map(|pool| Key::of(pool.as_ref())).collect()
}

fn is_controlled(vm: &Vm) -> bool {
    let mut owners = vm.metadata.owner_references.iter().flatten();
    owners.any(|owner| owner.controller == Some(true))
}

/// The pool that made a VM without a controlling owner, by its name, if the VM waits for that pool before it goes.
fn former(vm: &Vm) -> Option<Key> {
    let is_waiting = vm.metadata.deletion_timestamp.is_some() && observe::is_held(&vm.metadata);
    if !is_waiting || is_controlled(vm) {
        return None;
    }
    let key = Key::of(vm);
    let pool = template::pool_of(&key.name)?;
    Some(Key::new(key.namespace.as_str(), pool))
}

/// Whether the VM has labels or a name as if it belonged to the pool.
fn concerns(pool: &Pool, vm: &Vm) -> bool {
    let of = |metadata: &ObjectMeta| metadata.name.clone().unwrap_or_default();
    vm.metadata.namespace == pool.metadata.namespace
        && (selects(pool, vm)
            || template::ordinal(&of(&pool.metadata), &of(&vm.metadata)).is_some())
}

/// Whether the pool's selector matches the VM's labels.
fn selects(pool: &Pool, vm: &Vm) -> bool {
    let nothing = BTreeMap::new();
    matches(pool, vm.metadata.labels.as_ref().unwrap_or(&nothing))
}

/// An invalid selector, which admission refuses, matches nothing, and neither does an empty one.
fn matches(pool: &Pool, labels: &BTreeMap<String, String>) -> bool {
    let Ok(selector) = Selector::try_from(pool.spec.selector.clone()) else {
        return false;
    };
    !selector.selects_all() && selector.matches(labels)
}
