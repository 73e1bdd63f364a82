//! Group commit: writes that arrive while a commit waits for the disk share the next commit.
//!
//! Invariants: at most one task commits at a time, so events are published in the order of
//! revisions; a write is answered, and its event published, only after its commit is on disk. A
//! write that cannot be part of its group (the disk is full, for example) fails alone.

use std::sync::Arc;

use parking_lot::Mutex;
use rusqlite::Connection;
use serde_json::Value;
use tokio::sync::oneshot;

use super::{Event, Key, Notice, Store, StoreError, Stored, log, log::Change};

/// Writes of one commit: bounds the size of a transaction.
const MAX_GROUP: usize = 256;

/// Writes that wait for a commit.
#[derive(Debug, Default)]
pub(super) struct Group(Mutex<Queue>);

#[derive(Debug, Default)]
struct Queue {
    waiting: Vec<Write>,
    /// Whether a task commits, and will take what waits.
    committing: bool,
}

/// One write, and where its outcome goes.
#[derive(Debug)]
pub(super) struct Write {
    pub(super) key: Key,
    /// The revision that the object must have; `None` if it must not exist.
    pub(super) expected: Option<u64>,
    pub(super) change: Change,
    pub(super) done: oneshot::Sender<Result<(Value, Stored), StoreError>>,
}

impl Group {
    /// Adds a write; true if the caller has the [`Duty`] to commit.
    pub(super) fn add(&self, write: Write) -> bool {
        let mut queue = self.0.lock();
        queue.waiting.push(write);
        !std::mem::replace(&mut queue.committing, true)
    }

    /// The next group; `None` ends the commits.
    fn next(&self) -> Option<Vec<Write>> {
        let mut queue = self.0.lock();
        if queue.waiting.is_empty() {
            queue.committing = false;
            return None;
        }
        let count = queue.waiting.len().min(MAX_GROUP);
        Some(queue.waiting.drain(..count).collect())
    }
}

/// The duty to commit. Dropped before its task began (the runtime of one of several callers ends), it is
/// fulfilled then, as writes of others wait. After a panic it fails what waits, so that later writes do not
/// wait for a task that no longer exists.
#[derive(Debug)]
pub(super) struct Duty {
    store: Store,
    fulfilled: bool,
}

impl Duty {
    pub(super) fn new(store: Store) -> Self {
        Self {
            store,
            fulfilled: false,
        }
    }

    /// Commits until nothing waits. Blocks.
    pub(super) fn fulfil(mut self) {
        self.commit_all();
    }

    fn commit_all(&mut self) {
        while let Some(group) = self.store.group.next() {
            commit(&self.store, group);
        }
        // From here on another task may commit.
        self.fulfilled = true;
    }
}

impl Drop for Duty {
    fn drop(&mut self) {
        if std::thread::panicking() && !self.fulfilled {
            *self.store.group.0.lock() = Queue::default();
        } else if !self.fulfilled {
            self.commit_all();
        }
    }
}

fn commit(store: &Store, mut group: Vec<Write>) {
    let Ok(mut db) = store.connections.writer() else {
        return refuse(store, group);
    };
    match log::commit(&mut db, &mut group) {
        Ok(outcomes) => {
            for (write, outcome) in group.into_iter().zip(outcomes) {
                answer(store, write, outcome);
            }
        }
        Err(error) if group.len() == 1 => {
            if let Some(write) = group.pop() {
                answer(store, write, Err(error));
            }
        }
        Err(_) => alone(store, &mut db, group),
    }
}

/// The log has no place for a commit.
fn refuse(store: &Store, group: Vec<Write>) {
    for write in group {
        answer(store, write, Err(StoreError::LogFull));
    }
}

/// Commits each write by itself, after their group failed: one of them may be the cause.
fn alone(store: &Store, db: &mut Connection, group: Vec<Write>) {
    for mut write in group {
        let outcome = log::commit(db, std::slice::from_mut(&mut write));
        let outcome = outcome.and_then(|mut one| one.pop().unwrap_or(Err(StoreError::Stopped)));
        answer(store, write, outcome);
    }
}

fn answer(store: &Store, write: Write, outcome: Result<Event, StoreError>) {
    let answer = outcome.map(|event| {
        let stored = Stored {
            revision: event.revision,
            body: event.body.clone(),
        };
        // A send without receivers is fine.
        let event = Arc::new(event);
        store.live.send(Arc::clone(&event)).ok();
        store.notices.send(Notice::of(event)).ok();
        (write.change.into_object(), stored)
    });
    // A request that was cancelled no longer waits for its answer.
    write.done.send(answer).ok();
}
