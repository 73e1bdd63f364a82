//! Objects in `SQLite`: a table of what is, and a log of what changed.
//!
//! Invariants: one revision counter for everything, raised by each write inside its transaction;
//! an object's `resourceVersion` is the revision of its last write; events go out in the order of
//! revisions and only after the commit. Writes go one at a time under one lock.
//! Must not know: kinds, schemas, HTTP.

mod connection;
mod log;

use std::{path::PathBuf, sync::Arc};

use bytes::Bytes;
use reasons::Reason;
use rusqlite::{OptionalExtension as _, params};
use serde_json::Value;
use tokio::sync::broadcast;

pub(crate) use log::Change;

/// Where the objects are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Database {
    File(PathBuf),
    /// Gone with the process: for tests.
    Memory,
}

/// Why the store did not do it.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("write: another write came first")]
    Conflict,
    #[error("create: there is one already")]
    Exists,
    #[error("replay changes after revision {wanted}, the oldest kept is {oldest}")]
    Compacted { wanted: u64, oldest: u64 },
    #[error("write: the disk that holds the database is full")]
    DiskFull,
    #[error("use database")]
    Sqlite(#[source] rusqlite::Error),
    #[error("use object")]
    Json(#[from] serde_json::Error),
    #[error("open database {}: it was made by a newer version ({found})", path.display())]
    TooNew { path: PathBuf, found: i64 },
    #[error("wait for database")]
    Cancelled(#[from] tokio::task::JoinError),
}

impl StoreError {
    /// A stable word for logs and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Conflict => Reason::Conflict,
            Self::Exists => Reason::AlreadyExists,
            Self::Compacted { .. } => Reason::Compacted,
            Self::DiskFull => Reason::DiskFull,
            Self::Sqlite(_) => Reason::DatabaseFailed,
            Self::Json(_) => Reason::BadObject,
            Self::TooNew { .. } => Reason::DatabaseTooNew,
            Self::Cancelled(_) => Reason::Cancelled,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::DiskFull,
            _ => Self::Sqlite(error),
        }
    }
}

/// All objects of one resource, whatever version they are served in.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Collection {
    pub group: Arc<str>,
    pub plural: Arc<str>,
}

impl Collection {
    pub(crate) fn new(group: &str, plural: &str) -> Self {
        Self {
            group: group.into(),
            plural: plural.into(),
        }
    }

    pub(crate) fn key(&self, namespace: &str, name: &str) -> Key {
        Key {
            collection: self.clone(),
            namespace: namespace.into(),
            name: name.into(),
        }
    }
}

/// Names one object; the namespace is empty for cluster-wide ones.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    pub collection: Collection,
    pub namespace: Box<str>,
    pub name: Box<str>,
}

/// An object as stored: JSON text.
#[derive(Debug, Clone)]
pub(crate) struct Stored {
    pub revision: u64,
    pub body: Bytes,
}

impl Stored {
    pub(crate) fn parse(&self) -> Result<Value, StoreError> {
        Ok(serde_json::from_slice(&self.body)?)
    }
}

/// What happened to an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum EventKind {
    Added,
    Modified,
    Deleted,
}

/// One change, as watchers get it.
#[derive(Debug, Clone)]
pub(crate) struct Event {
    pub revision: u64,
    pub kind: EventKind,
    pub key: Key,
    /// The object after the change; for a deletion its last state, with the new revision.
    pub body: Bytes,
    /// The object before the change, when it is known.
    pub previous: Option<Bytes>,
}

/// Which objects to list.
#[derive(Debug, Clone)]
pub(crate) struct Scope {
    pub collection: Collection,
    /// None for all namespaces.
    pub namespace: Option<String>,
    /// None for all names.
    pub name: Option<String>,
}

impl Scope {
    pub(crate) fn all(collection: Collection) -> Self {
        Self {
            collection,
            namespace: None,
            name: None,
        }
    }

    pub(crate) fn holds(&self, key: &Key) -> bool {
        self.collection == key.collection
            && self
                .namespace
                .as_deref()
                .is_none_or(|namespace| *namespace == *key.namespace)
            && self.name.as_deref().is_none_or(|name| *name == *key.name)
    }
}

/// A part of a list, ordered by namespace and name.
#[derive(Debug)]
pub(crate) struct Page {
    pub items: Vec<Stored>,
    /// The revision at which the page was read.
    pub revision: u64,
    /// The last object of a page that others follow, and how many do.
    pub more: Option<More>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct More {
    pub namespace: String,
    pub name: String,
    pub remaining: u64,
}

/// Changes that wait for a slow watcher; one that falls further behind reads the log instead.
const LIVE_EVENTS: usize = 256;

/// The store. Cheap to clone.
#[derive(Debug, Clone)]
pub(crate) struct Store {
    connections: Arc<connection::Connections>,
    live: broadcast::Sender<Arc<Event>>,
}

impl Store {
    /// Opens or makes the database. Blocks.
    pub(crate) fn open(database: &Database) -> Result<Self, StoreError> {
        let connections = Arc::new(connection::Connections::open(database)?);
        Ok(Self {
            connections,
            live: broadcast::Sender::new(LIVE_EVENTS),
        })
    }

    /// The latest revision.
    pub(crate) async fn revision(&self) -> Result<u64, StoreError> {
        self.read(log::revision).await
    }

    pub(crate) async fn get(&self, key: &Key) -> Result<Option<Stored>, StoreError> {
        let key = key.clone();
        self.read(move |db| select(db, &key)).await
    }

    /// Reads a part of a list: at most `limit` objects that come after `after`.
    pub(crate) async fn list(
        &self,
        scope: &Scope,
        after: Option<(String, String)>,
        limit: Option<usize>,
    ) -> Result<Page, StoreError> {
        let scope = scope.clone();
        self.read(move |db| list(db, &scope, after, limit)).await
    }

    /// Stores a new object; gives it with its revision.
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
        let (store, key) = (self.clone(), key.clone());
        tokio::task::spawn_blocking(move || {
            let mut writer = store.connections.writer();
            let (object, event) = log::commit(&mut writer, &key, expected, change)?;
            let stored = Stored {
                revision: event.revision,
                body: event.body.clone(),
            };
            // Nobody listening is fine. Sent under the lock, so that the order is that of revisions.
            store.live.send(Arc::new(event)).ok();
            Ok((object, stored))
        })
        .await?
    }

    /// Changes from now on. Take it before reading the state or the log, then skip what is known.
    pub(crate) fn live(&self) -> broadcast::Receiver<Arc<Event>> {
        self.live.subscribe()
    }

    /// A part of the log: at most `limit` changes after `revision`, oldest first.
    pub(crate) async fn changes_after(
        &self,
        scope: &Scope,
        revision: u64,
        limit: usize,
    ) -> Result<Vec<Event>, StoreError> {
        let scope = scope.clone();
        self.read(move |db| log::after(db, &scope, revision, limit))
            .await
    }

    /// The objects that name this uid as an owner.
    pub(crate) async fn dependents(&self, owner: &str) -> Result<Vec<Key>, StoreError> {
        let owner = owner.to_owned();
        self.read(move |db| log::dependents(db, &owner)).await
    }

    /// Refuses a revision whose successors are not all in the log.
    pub(crate) async fn check_kept(&self, revision: u64) -> Result<(), StoreError> {
        self.read(move |db| log::check_kept(db, revision)).await
    }

    /// Forgets all but the last `keep` changes.
    pub(crate) async fn compact(&self, keep: u64) -> Result<(), StoreError> {
        let store = self.clone();
        tokio::task::spawn_blocking(move || log::compact(&mut store.connections.writer(), keep))
            .await?
    }

    async fn read<T: Send + 'static>(
        &self,
        query: impl FnOnce(&rusqlite::Connection) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let connections = Arc::clone(&self.connections);
        tokio::task::spawn_blocking(move || connections.read(query)).await?
    }
}

fn select(db: &rusqlite::Connection, key: &Key) -> Result<Option<Stored>, StoreError> {
    let mut query = db.prepare_cached(
        "SELECT revision, body FROM objects
         WHERE grp = ?1 AND plural = ?2 AND namespace = ?3 AND name = ?4",
    )?;
    let Key {
        collection,
        namespace,
        name,
    } = key;
    Ok(query
        .query_row(
            params![&*collection.group, &*collection.plural, namespace, name],
            stored,
        )
        .optional()?)
}

fn stored(row: &rusqlite::Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        revision: row.get(0)?,
        body: Bytes::from(row.get::<_, Vec<u8>>(1)?),
    })
}

const SCOPED: &str = "grp = ?1 AND plural = ?2
    AND (?3 IS NULL OR namespace = ?3) AND (?4 IS NULL OR name = ?4)
    AND (namespace, name) > (?5, ?6)";

fn list(
    db: &rusqlite::Connection,
    scope: &Scope,
    after: Option<(String, String)>,
    limit: Option<usize>,
) -> Result<Page, StoreError> {
    // One read transaction, so that objects and revision belong together.
    let db = db.unchecked_transaction()?;
    let revision = log::revision(&db)?;
    let (namespace, name) = after.unwrap_or_default();
    let scoped = params![
        &*scope.collection.group,
        &*scope.collection.plural,
        scope.namespace,
        scope.name,
        namespace,
        name,
    ];
    let take = limit
        .and_then(|limit| i64::try_from(limit).ok())
        .unwrap_or(-1);
    let mut query = db.prepare_cached(&format!(
        "SELECT revision, body, namespace, name FROM objects WHERE {SCOPED}
         ORDER BY namespace, name LIMIT {take}"
    ))?;
    let mut rows = query.query(scoped)?;
    let mut items = Vec::new();
    let mut last = (String::new(), String::new());
    while let Some(row) = rows.next()? {
        items.push(stored(row)?);
        if limit == Some(items.len()) {
            last = (row.get(2)?, row.get(3)?);
        }
    }
    drop(rows);
    drop(query);
    let mut more = None;
    if limit == Some(items.len()) {
        let mut query =
            db.prepare_cached(&format!("SELECT COUNT(*) FROM objects WHERE {SCOPED}"))?;
        let rest = params![
            &*scope.collection.group,
            &*scope.collection.plural,
            scope.namespace,
            scope.name,
            last.0,
            last.1,
        ];
        let remaining: u64 = query.query_row(rest, |row| row.get(0))?;
        if remaining > 0 {
            more = Some(More {
                namespace: last.0,
                name: last.1,
                remaining,
            });
        }
    }
    Ok(Page {
        items,
        revision,
        more,
    })
}

#[cfg(test)]
mod tests;
