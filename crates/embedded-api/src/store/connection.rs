//! Database connections: one writer, several readers, and that of the checkpoints.
//!
//! Invariants: a commit is on disk when it returns, and no reader sees it before; the page caches
//! of all connections together are bounded to a few megabytes.

use std::{
    ffi::CStr,
    path::{Path, PathBuf},
    sync::Arc,
};

use parking_lot::{Condvar, Mutex, MutexGuard};
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::{
    Database, Snapshot, StoreError,
    checkpoint::{Checkpoints, Limits},
    error::corrupt,
    layout,
};

/// Maximum number of readers; further reads wait for one. Enough that the long lists of a user, who has as many
/// requests at once, seldom hold up a short read: they wait for the processor most of the time.
pub(super) const READERS: usize = 8;

/// The page caches, in KiB. A reader's is small: the kernel has a cache of the file as well.
const WRITER_CACHE: i64 = 2048;
const READER_CACHE: i64 = 256;

#[derive(Debug)]
pub(super) struct Connections {
    /// `None` in memory. Before the writer, which it uses: fields are dropped in this order.
    checkpoints: Option<Checkpoints>,
    writer: Arc<Mutex<Connection>>,
    /// `None` for an in-memory database, which has a single connection.
    readers: Option<Readers>,
    path: Option<PathBuf>,
}

/// The readers that no query uses now. The last one returned is the next one taken, as its cache is filled.
#[derive(Debug)]
struct Readers {
    /// Each lock is taken by the one user of its connection.
    free: Mutex<Vec<Arc<Mutex<Connection>>>>,
    returned: Condvar,
}

impl Connections {
    pub(super) fn open(database: &Database) -> Result<Self, StoreError> {
        match database {
            Database::Memory => {
                let writer = Connection::open_in_memory()?;
                layout::create(&writer)?;
                Self::in_memory(writer)
            }
            Database::MemoryFrom(Snapshot(bytes)) => {
                let mut writer = Connection::open_in_memory()?;
                writer.deserialize_read_exact(MAIN_DB, &**bytes, bytes.len(), false)?;
                Self::in_memory(writer)
            }
            Database::File(path) => {
                Self::open_file(path, None, Limits::USUAL).map_err(|error| corrupt(error, path))
            }
        }
    }

    /// Opens or creates a database file, through another `vfs` in tests.
    pub(super) fn open_file(
        path: &Path,
        vfs: Option<&CStr>,
        limits: Limits,
    ) -> Result<Self, StoreError> {
        let writer = connect(path, vfs)?;
        layout::check(&writer, path)?;
        writer.pragma_update(None, "journal_mode", "WAL")?;
        // Syncs the log at every commit: an acknowledged write survives a power cut.
        writer.pragma_update(None, "synchronous", "FULL")?;
        layout::migrate(&writer)?;
        if vfs.is_none() {
            // SQLite syncs the directory of its logs, not that of a new database.
            durable_file::sync_parent(path).map_err(|source| StoreError::File {
                path: path.to_owned(),
                source,
            })?;
        }
        bound(&writer, WRITER_CACHE)?;
        let readers = (0..READERS)
            .map(|_| {
                let reader = connect(path, vfs)?;
                reader.pragma_update(None, "query_only", true)?;
                bound(&reader, READER_CACHE)?;
                Ok(Arc::new(Mutex::new(reader)))
            })
            .collect::<Result<Vec<_>, StoreError>>()?;
        let writer = Arc::new(Mutex::new(writer));
        let own = connect(path, vfs)?;
        bound(&own, READER_CACHE)?;
        Ok(Self {
            checkpoints: Some(Checkpoints::start(&writer, own, path, limits)?),
            writer,
            readers: Some(Readers {
                free: Mutex::new(readers),
                returned: Condvar::new(),
            }),
            path: Some(path.to_owned()),
        })
    }

    fn in_memory(writer: Connection) -> Result<Self, StoreError> {
        bound(&writer, WRITER_CACHE)?;
        Ok(Self {
            checkpoints: None,
            writer: Arc::new(Mutex::new(writer)),
            readers: None,
            path: None,
        })
    }

    /// The file; `None` in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    /// The connection for writes, unless the log has reached its bound.
    pub(super) fn writer(&self) -> Result<MutexGuard<'_, Connection>, StoreError> {
        if self.checkpoints.as_ref().is_some_and(Checkpoints::is_full) {
            return Err(StoreError::LogFull);
        }
        Ok(self.writer.lock())
    }

    /// Pages in the write-ahead log.
    pub(super) fn log_pages(&self) -> u32 {
        self.checkpoints.as_ref().map_or(0, Checkpoints::pages)
    }

    pub(super) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        match &self.readers {
            Some(readers) => query(&readers.take().connection.lock()),
            None => query(&self.writer.lock()),
        }
    }
}

impl Readers {
    fn take(&self) -> Reader<'_> {
        let mut free = self.free.lock();
        loop {
            if let Some(connection) = free.pop() {
                return Reader {
                    readers: self,
                    connection,
                };
            }
            self.returned.wait(&mut free);
        }
    }
}

/// A reader that is in use. It is returned however its use ends, also by a panic.
#[derive(Debug)]
struct Reader<'a> {
    readers: &'a Readers,
    connection: Arc<Mutex<Connection>>,
}

impl Drop for Reader<'_> {
    fn drop(&mut self) {
        self.readers.free.lock().push(Arc::clone(&self.connection));
        self.readers.returned.notify_one();
    }
}

fn connect(path: &Path, vfs: Option<&CStr>) -> Result<Connection, StoreError> {
    let flags = OpenFlags::default();
    Ok(match vfs {
        None => Connection::open_with_flags(path, flags)?,
        Some(vfs) => Connection::open_with_flags_and_vfs(path, flags, vfs)?,
    })
}

fn bound(connection: &Connection, kibibytes: i64) -> Result<(), StoreError> {
    connection.pragma_update(None, "cache_size", -kibibytes)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(())
}
