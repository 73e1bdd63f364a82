//! A simulated API server: objects in memory with the rules that controllers rely on (resource
//! versions, server-side apply, finalizers, owners). It enforces neither schemas nor access rights.
//!
//! It is faster than `embedded-api` and deterministic: it responds within the call, on the caller's
//! thread. Its behaviour must match `embedded-api`, which the controllers' own tests use.

mod collect;
mod custom;
mod http;
mod kinds;
mod object;
mod state;
mod write;

use std::sync::Arc;

use parking_lot::Mutex;
use reconcile::Clock;
use serde_json::Value;

use crate::watch::{Watch, Watcher};

pub(crate) use http::{Connection, WatchFault, client, serve};
pub(crate) use kinds::Kind;
pub(crate) use object::{Author, Change, Deletion, EventType, Id, Patch, Propagation};
use state::State;

/// Finalizers of the garbage collector.
pub(crate) const FOREGROUND: &str = "foregroundDeletion";
pub(crate) const ORPHAN: &str = "orphan";

#[derive(Debug, Clone)]
pub(crate) struct Cluster(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    /// The latest revision.
    changed: Watch<u64>,
    clock: Clock,
}

impl Cluster {
    pub(crate) fn new(clock: Clock) -> Self {
        Self(Arc::new(Shared {
            state: Mutex::default(),
            changed: Watch::new(0),
            clock,
        }))
    }

    pub(crate) fn clock(&self) -> Clock {
        self.0.clock
    }

    pub(crate) fn get(&self, id: &Id) -> Option<Arc<Value>> {
        self.0.state.lock().objects.get(id).map(Arc::clone)
    }

    pub(crate) fn list(&self, kind: Kind) -> Vec<Arc<Value>> {
        let state = self.0.state.lock();
        let of_kind = state.objects.iter().filter(|(id, _)| id.kind == kind);
        of_kind.map(|(_, object)| Arc::clone(object)).collect()
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        let state = self.0.state.lock();
        state.objects.keys().filter(|id| id.kind == kind).count()
    }

    pub(crate) fn revision(&self) -> u64 {
        self.0.state.lock().revision
    }

    /// Watches for changes.
    pub(crate) fn changes(&self) -> Watcher<u64> {
        self.0.changed.watcher()
    }

    /// The changes after that revision; `None` when the log does not reach back that far.
    pub(crate) fn since(&self, revision: u64, most: usize) -> Option<Vec<Change>> {
        let state = self.0.state.lock();
        if revision < state.forgotten {
            return None;
        }
        let from = state
            .log
            .partition_point(|change| change.revision <= revision);
        Some(state.log.iter().skip(from).take(most).cloned().collect())
    }

    /// The first VMI without an owner that a controller deleted.
    pub(crate) fn violation(&self) -> Option<String> {
        self.0.state.lock().violations.first().cloned()
    }

    /// Whether anything but a controller deleted the pod.
    pub(crate) fn was_deleted_by_another(&self, pod_uid: &str) -> bool {
        self.0.state.lock().deleted_by_others.contains(pod_uid)
    }
}
