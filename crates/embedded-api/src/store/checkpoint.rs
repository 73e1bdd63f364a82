//! Checkpoints: a thread of its own moves the write-ahead log into the database.
//!
//! Invariants: no write does this work before it is answered; a commit is on disk when it returns, in the log,
//! whatever this thread does; the log has a bound, beyond which writes are refused. A reader of an old state
//! holds the log up: reads of this process end soon, a copy made by another process may not.

use std::{
    ffi::c_int,
    path::Path,
    sync::Arc,
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};

use parking_lot::{Condvar, Mutex};
use rusqlite::{Connection, hooks::Wal};

use super::StoreError;

/// When the log is moved, in pages of the database, and how often what did not work is tried again.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Written since the last checkpoint: the next one begins; writes do not wait for it.
    pub(super) due: u32,
    /// In the log: writes wait until the log is empty, or for `patience`.
    pub(super) long: u32,
    /// In the log: writes are refused.
    pub(super) full: u32,
    pub(super) retry: Duration,
    /// How long writes wait for readers of a long log.
    pub(super) patience: Duration,
}

impl Limits {
    /// 4 MiB, 32 MiB and 1 GiB with pages of 4 KiB.
    pub(super) const USUAL: Self = Self {
        due: 1 << 10,
        long: 1 << 13,
        full: 1 << 18,
        retry: Duration::from_secs(5),
        patience: Duration::from_secs(1),
    };
}

/// A log of this part of its bound that is held up is worth a warning, so that an administrator can act before writes are
/// refused.
const WORRYING: u32 = 4;

/// The thread, which ends with this value.
#[derive(Debug)]
pub(super) struct Checkpoints {
    log: Arc<Log>,
    thread: Option<JoinHandle<()>>,
}

/// What writers and the thread know about the log.
#[derive(Debug)]
struct Log {
    limits: Limits,
    size: Mutex<Size>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Size {
    /// Pages in the log at the last commit.
    pages: u32,
    /// Pages written since the last checkpoint began.
    written: u32,
    stopping: bool,
}

impl Checkpoints {
    /// Takes the checkpoints over from a writer that has made them itself, with another connection.
    pub(super) fn start(
        writer: &Arc<Mutex<Connection>>,
        own: Connection,
        path: &Path,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        // Syncs the log before it moves pages, and the database before the log is used again.
        own.pragma_update(None, "synchronous", "FULL")?;
        own.busy_timeout(limits.patience)?;
        let log = Arc::new(Log {
            limits,
            size: Mutex::default(),
            changed: Condvar::new(),
        });
        let hook = {
            let log = Arc::clone(&log);
            move |_: &mut Wal, pages: c_int| {
                log.grown_to(u32::try_from(pages).unwrap_or(0));
                Ok(())
            }
        };
        // Replaces the checkpoints of the writer.
        writer.lock().wal_hook(Some(hook))?;
        let worker = Worker {
            log: Arc::clone(&log),
            writer: Arc::clone(writer),
            own,
            patient_after: Instant::now(),
            is_held_up: false,
        };
        let thread = thread::Builder::new()
            .name("checkpoints".to_owned())
            .spawn(move || worker.run())
            .map_err(|source| StoreError::File {
                path: path.to_owned(),
                source,
            })?;
        Ok(Self {
            log,
            thread: Some(thread),
        })
    }

    /// Pages in the log.
    pub(super) fn pages(&self) -> u32 {
        self.log.size.lock().pages
    }

    /// Whether the log has reached its bound.
    pub(super) fn is_full(&self) -> bool {
        self.pages() >= self.log.limits.full
    }
}

impl Drop for Checkpoints {
    fn drop(&mut self) {
        self.log.size.lock().stopping = true;
        self.log.changed.notify_all();
        if let Some(thread) = self.thread.take() {
            // A panic of the thread has ended the process.
            thread.join().ok();
        }
    }
}

impl Log {
    /// After a commit, with the number of pages that the log has now.
    fn grown_to(&self, pages: u32) {
        let mut size = self.size.lock();
        // Fewer than before: the log was moved, and starts again from its beginning.
        let new = pages.checked_sub(size.pages).unwrap_or(pages);
        size.written = size.written.saturating_add(new);
        size.pages = pages;
        let due = size.written >= self.limits.due;
        drop(size);
        if due {
            self.changed.notify_all();
        }
    }

    /// Waits until a checkpoint is due; false at the end.
    fn wait(&self) -> bool {
        let mut size = self.size.lock();
        while !size.stopping && size.written < self.limits.due {
            if size.pages >= self.limits.long {
                // Nothing may be written any more, and what held the log up may have ended.
                if self
                    .changed
                    .wait_for(&mut size, self.limits.retry)
                    .timed_out()
                {
                    break;
                }
            } else {
                self.changed.wait(&mut size);
            }
        }
        size.written = 0;
        !size.stopping
    }
}

struct Worker {
    log: Arc<Log>,
    writer: Arc<Mutex<Connection>>,
    own: Connection,
    /// Not before that, writes wait again.
    patient_after: Instant,
    /// Whether the log was last found to be held up, and a warning says so.
    is_held_up: bool,
}

impl Worker {
    fn run(mut self) {
        let mut failing = false;
        while self.log.wait() {
            let Err(error) = self.checkpoint() else {
                failing = false;
                continue;
            };
            if !std::mem::replace(&mut failing, true) {
                tracing::warn!(
                    error = &error as &dyn std::error::Error,
                    reason = %error.reason(),
                    "moving the write-ahead log into the database failed, will retry"
                );
            }
        }
    }

    fn checkpoint(&mut self) -> Result<(), StoreError> {
        // Moves most of it, beside writes and reads.
        move_log(&self.own, "PASSIVE")?;
        let (pages, limits) = (self.log.size.lock().pages, self.log.limits);
        if pages < limits.long || Instant::now() < self.patient_after {
            return Ok(());
        }
        // Writes that come all the time keep the log from ever being moved whole.
        let writer = self.writer.lock();
        let emptied = move_log(&self.own, "TRUNCATE");
        if matches!(emptied, Ok(true)) {
            self.log.size.lock().pages = 0;
        } else {
            let next = Instant::now().checked_add(limits.retry);
            self.patient_after = next.unwrap_or(self.patient_after);
        }
        drop(writer);
        let is_held_up = !emptied? && pages >= limits.full / WORRYING;
        if is_held_up && !self.is_held_up {
            tracing::warn!(
                pages,
                full = limits.full,
                "the write-ahead log of the API's database grows, as a process reads an old state of it, such as \
                 `ferrovirt backup`: once the log is full, writes are refused"
            );
        }
        self.is_held_up = is_held_up;
        if is_held_up && pages >= limits.full {
            return Err(StoreError::LogFull);
        }
        Ok(())
    }
}

/// True if nothing is left in the log.
fn move_log(db: &Connection, mode: &str) -> Result<bool, StoreError> {
    let query = format!("PRAGMA wal_checkpoint({mode})");
    let (busy, pages, moved) = db.query_row(&query, [], |row| {
        Ok((
            row.get::<_, i64>(0)?,
            row.get::<_, i64>(1)?,
            row.get::<_, i64>(2)?,
        ))
    })?;
    Ok(busy == 0 && pages == moved)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;
    use crate::store::{Collection, Store, connection::Connections};

    const DEADLINE: Duration = Duration::from_mins(1);

    fn store(path: &Path, limits: Limits) -> Store {
        Store::with(Connections::open_file(path, None, limits).unwrap())
    }

    async fn write(store: &Store, name: &str) -> Result<(), StoreError> {
        let key = Collection::new("", "configmaps").key("ns", name);
        let object = json!({"metadata": {}, "data": {"k": "x".repeat(20_000)}});
        store.create(&key, object).await.map(drop)
    }

    async fn until(what: &str, mut holds: impl AsyncFnMut() -> bool) {
        let mut ticks = tokio::time::interval(Duration::from_millis(10));
        let wait = async {
            while !holds().await {
                ticks.tick().await;
            }
        };
        let waited = tokio::time::timeout(DEADLINE, wait).await;
        assert!(waited.is_ok(), "{what}");
    }

    #[tokio::test]
    async fn log_is_moved_into_the_database_without_the_writer() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let limits = Limits {
            due: 100,
            ..Limits::USUAL
        };
        let store = store(&path, limits);
        let size = || fs::metadata(&path).unwrap().len();
        let empty = size();
        write(&store, "small").await.unwrap();
        assert_eq!(size(), empty, "not due yet");
        for number in 0..20 {
            write(&store, &number.to_string()).await.unwrap();
        }
        until("the database has the pages", async || size() > empty).await;
    }

    #[tokio::test]
    async fn long_log_starts_again() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let limits = Limits {
            due: 50,
            long: 100,
            full: 100_000,
            retry: Duration::from_millis(20),
            ..Limits::USUAL
        };
        let store = store(&path, limits);
        for number in 0..20 {
            // More than 200 pages in all.
            write(&store, &number.to_string()).await.unwrap();
        }
        until("the log is short", async || {
            store.connections.log_pages() < 100
        })
        .await;
        let log = store.statistics().await.unwrap().log_bytes;
        assert!(log < 100 * 4096, "{log}");
        write(&store, "last").await.unwrap();
    }

    /// As a copy that another process makes and does not end.
    #[tokio::test]
    async fn log_has_a_bound_while_another_process_reads_an_old_state() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let limits = Limits {
            due: 10,
            long: 50,
            full: 200,
            retry: Duration::from_millis(20),
            patience: Duration::from_millis(20),
        };
        let store = store(&path, limits);
        write(&store, "first").await.unwrap();
        let other = Connection::open(&path).unwrap();
        let reading = other.unchecked_transaction().unwrap();
        let count = "SELECT COUNT(*) FROM objects";
        let before: i64 = reading.query_row(count, [], |row| row.get(0)).unwrap();

        let mut refused = None;
        for number in 0..100 {
            if let Err(error) = write(&store, &number.to_string()).await {
                refused = Some(error);
                break;
            }
        }
        assert!(matches!(refused, Some(StoreError::LogFull)), "{refused:?}");
        assert!(store.revision().await.unwrap() > 1, "reads go on");
        let still: i64 = reading.query_row(count, [], |row| row.get(0)).unwrap();
        assert_eq!(still, before);
        drop(reading);
        until("writes go on", async || write(&store, "last").await.is_ok()).await;
    }
}
