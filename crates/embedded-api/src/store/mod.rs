//! Objects in `SQLite`: a table of current objects, and a log of changes.
//!
//! Invariants: one revision counter for all objects, incremented by each write inside its
//! transaction; an object's `resourceVersion` is the revision of its last write; events are
//! published in the order of revisions and only after the commit is on disk; writes that wait share
//! a commit (`group`). Out of scope: kinds, schemas, HTTP.

mod checkpoint;
mod connection;
mod copy;
mod error;
mod group;
mod layout;
mod log;
mod object;
mod query;

use std::{
    fmt,
    path::{Path, PathBuf},
    sync::Arc,
};

use serde_json::Value;
use tokio::sync::{broadcast, oneshot};

pub use self::{
    copy::{Contents, back_up, inspect, interrupted_restore, restore},
    error::StoreError,
};
pub(crate) use self::{
    log::Change,
    object::{
        Bound, Collection, Event, EventKind, Key, More, Notice, Page, Position, Scope, Stored,
        metadata,
    },
    query::Statistics,
};

/// The location of the database.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    File(PathBuf),
    /// Lost when the process ends: for tests.
    Memory,
    /// In memory, with the contents of another one: for tests that begin with the same objects.
    MemoryFrom(Snapshot),
}

/// The contents of a database in memory. Cheap to clone.
#[derive(Clone, PartialEq, Eq)]
pub struct Snapshot(Arc<[u8]>);

impl fmt::Debug for Snapshot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Snapshot").finish_non_exhaustive()
    }
}

/// Changes buffered for a slow watcher; one that falls further behind reads the log instead.
const LIVE_EVENTS: usize = 256;

/// Changes dropped from the log at once, while other writes wait: to free a large one, all its pages are read.
const COMPACTED_AT_ONCE: Bound = Bound {
    count: 500,
    bytes: 16 << 20,
};

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    connections: Arc<connection::Connections>,
    group: Arc<group::Group>,
    live: broadcast::Sender<Arc<Event>>,
    notices: broadcast::Sender<Notice>,
}

impl Store {
    /// Opens or creates the database. Blocks.
    pub(crate) fn open(database: &Database) -> Result<Self, StoreError> {
        Ok(Self::with(connection::Connections::open(database)?))
    }

    fn with(connections: connection::Connections) -> Self {
        Self {
            connections: Arc::new(connections),
            group: Arc::default(),
            live: broadcast::Sender::new(LIVE_EVENTS),
            notices: broadcast::Sender::new(LIVE_EVENTS),
        }
    }

    /// Copies the database to a new file, while it is in use. Blocks.
    pub(crate) fn copy_to(&self, target: &Path) -> Result<Contents, StoreError> {
        match self.connections.path() {
            Some(path) => back_up(path, target),
            None => {
                let db = self.connections.writer()?;
                copy::copy(&db, target)
            }
        }
    }

    /// The contents of a database in memory. Blocks.
    pub(crate) fn snapshot(&self) -> Result<Snapshot, StoreError> {
        let mut writer = self.connections.writer()?;
        let bytes = writer.serialize(rusqlite::MAIN_DB)?;
        Ok(Snapshot(Arc::from(&*bytes)))
    }

    /// Counts for the metrics.
    pub(crate) async fn statistics(&self) -> Result<Statistics, StoreError> {
        let log_pages = self.connections.log_pages();
        self.read(move |db| query::statistics(db, log_pages)).await
    }

    /// The latest revision.
    pub(crate) async fn revision(&self) -> Result<u64, StoreError> {
        self.read(log::revision).await
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        let key = key.clone();
        self.read(move |db| query::select(db, &key)).await
    }

    /// Reads a chunk of a list: at most `limit` objects that come after `after`.
    pub(crate) async fn list(
        &self,
        scope: &Scope,
        after: Option<Position>,
        limit: Option<usize>,
    ) -> Result<Page, StoreError> {
        let scope = scope.clone();
        self.read(move |db| query::list(db, &scope, after, (limit, usize::MAX)))
            .await
    }

    /// Like [`Self::list`], for a chunk that is bounded in bytes, too.
    pub(crate) async fn chunk(
        &self,
        scope: &Scope,
        after: Option<Position>,
        bound: Bound,
    ) -> Result<Page, StoreError> {
        let (scope, limits) = (scope.clone(), (Some(bound.count), bound.bytes));
        self.read(move |db| query::list(db, &scope, after, limits))
            .await
    }

    /// Stores a new object; returns it with its revision.
    pub(crate) async fn create(
        &self,
        key: &Key,
        object: Value,
    ) -> Result<(Value, Stored), StoreError> {
        self.change(key, None, Change::Put(object)).await
    }

    /// Replaces an object that is still at `revision`.
    pub(crate) async fn update(
        &self,
        key: &Key,
        revision: u64,
        object: Value,
    ) -> Result<(Value, Stored), StoreError> {
        self.change(key, Some(revision), Change::Put(object)).await
    }

    /// Removes an object that is still at `revision`; `last` is its final state.
    pub(crate) async fn delete(
        &self,
        key: &Key,
        revision: u64,
        last: Value,
    ) -> Result<Value, StoreError> {
        Ok(self
            .change(key, Some(revision), Change::Remove(last))
            .await?
            .0)
    }

    async fn change(
        &self,
        key: &Key,
        expected: Option<u64>,
        change: Change,
    ) -> Result<(Value, Stored), StoreError> {
        let (done, outcome) = oneshot::channel();
        let write = group::Write {
            key: key.clone(),
            expected,
            change,
            done,
        };
        if self.group.add(write) {
            let duty = group::Duty::new(self.clone());
            drop(tokio::task::spawn_blocking(|| duty.fulfil()));
        }
        outcome.await.unwrap_or(Err(StoreError::Stopped))
    }

    /// Future changes, for watches of clients. Subscribe as to [`Self::live`].
    pub(crate) fn notices(&self) -> broadcast::Receiver<Notice> {
        self.notices.subscribe()
    }

    /// Future changes, for this server's own tasks, which never wait for a client. Subscribe before
    /// reading the state or the log, then skip known revisions.
    pub(crate) fn live(&self) -> broadcast::Receiver<Arc<Event>> {
        self.live.subscribe()
    }

    /// A part of the log: changes after `revision` within the bound, oldest first.
    pub(crate) async fn changes_after(
        &self,
        scope: &Scope,
        revision: u64,
        bound: Bound,
    ) -> Result<Vec<Event>, StoreError> {
        let scope = scope.clone();
        self.read(move |db| log::after(db, &scope, revision, bound))
            .await
    }

    /// The objects with an owner reference to this uid.
    pub(crate) async fn dependents(&self, owner: &str) -> Result<Vec<Key>, StoreError> {
        let owner = owner.to_owned();
        self.read(move |db| log::dependents(db, &owner)).await
    }

    /// Rejects a revision unless the log has all later changes.
    pub(crate) async fn check_kept(&self, revision: u64) -> Result<(), StoreError> {
        self.read(move |db| log::check_kept(db, revision)).await
    }

    /// Drops all but the last changes within the bound.
    pub(crate) async fn compact(&self, keep: Bound) -> Result<(), StoreError> {
        self.compact_in_parts(keep, COMPACTED_AT_ONCE).await
    }

    /// Other writes come between the parts. What an interrupted compaction has left is dropped as well.
    async fn compact_in_parts(&self, keep: Bound, part: Bound) -> Result<(), StoreError> {
        let until = self.write(move |db| log::compact(db, keep)).await?;
        let mut from = 0;
        while from < until {
            let rest = (from, until);
            from = self.write(move |db| log::drop_part(db, rest, part)).await?;
        }
        Ok(())
    }

    async fn write<T: Send + 'static>(
        &self,
        change: impl FnOnce(&mut rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connections = Arc::clone(&self.connections);
        tokio::task::spawn_blocking(move || {
            let mut writer = connections.writer()?;
            change(&mut writer)
        })
        .await?
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connections = Arc::clone(&self.connections);
        // A write has no such confinement: the memory of this process would differ from the database.
        let read = move || panics::catch(|| connections.read(query));
        tokio::task::spawn_blocking(read).await??
    }
}

#[cfg(test)]
mod power_cut;
#[cfg(test)]
mod tests;
