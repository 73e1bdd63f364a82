//! Database connections: one writer, a few readers.
//!
//! Invariants: a commit is on disk when it returns, and no reader sees it before; the page caches
//! of all connections together are bounded to a few megabytes.

use std::{
    ffi::CStr,
    path::{Path, PathBuf},
};

use parking_lot::{Mutex, MutexGuard};
use rusqlite::{Connection, MAIN_DB, OpenFlags};

use super::{Database, Snapshot, StoreError, error::corrupt, layout};

/// Maximum number of readers; further reads wait for one.
const READERS: usize = 2;

#[derive(Debug)]
pub(super) struct Connections {
    writer: Mutex<Connection>,
    /// Empty for an in-memory database, which has a single connection.
    readers: Vec<Mutex<Connection>>,
    path: Option<PathBuf>,
}

impl Connections {
    pub(super) fn open(database: &Database) -> Result<Self, StoreError> {
        match database {
            Database::Memory => {
                let writer = Connection::open_in_memory()?;
                layout::create(&writer)?;
                Self::with(writer, Vec::new(), None)
            }
            Database::MemoryFrom(Snapshot(bytes)) => {
                let mut writer = Connection::open_in_memory()?;
                writer.deserialize_read_exact(MAIN_DB, &**bytes, bytes.len(), false)?;
                Self::with(writer, Vec::new(), None)
            }
            Database::File(path) => {
                Self::open_file(path, None).map_err(|error| corrupt(error, path))
            }
        }
    }

    /// Opens or creates a database file, through another `vfs` in tests.
    pub(super) fn open_file(path: &Path, vfs: Option<&CStr>) -> Result<Self, StoreError> {
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
        let readers = (0..READERS)
            .map(|_| {
                let reader = connect(path, vfs)?;
                reader.pragma_update(None, "query_only", true)?;
                bound(&reader, 512)?;
                Ok(Mutex::new(reader))
            })
            .collect::<Result<Vec<_>, StoreError>>()?;
        Self::with(writer, readers, Some(path.to_owned()))
    }

    fn with(
        writer: Connection,
        readers: Vec<Mutex<Connection>>,
        path: Option<PathBuf>,
    ) -> Result<Self, StoreError> {
        bound(&writer, 2048)?;
        Ok(Self {
            writer: Mutex::new(writer),
            readers,
            path,
        })
    }

    /// The file; `None` in memory.
    pub(super) fn path(&self) -> Option<&Path> {
        self.path.as_deref()
    }

    pub(super) fn writer(&self) -> MutexGuard<'_, Connection> {
        self.writer.lock()
    }

    pub(super) fn read<T>(
        &self,
        query: impl FnOnce(&Connection) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let free = self.readers.iter().find_map(Mutex::try_lock);
        let connection = match (free, self.readers.first()) {
            (Some(free), _) => free,
            (None, Some(first)) => first.lock(),
            (None, None) => self.writer.lock(),
        };
        query(&connection)
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
