//! Database connections: one writer, a few readers.
//!
//! Invariant: the page caches of all connections together are bounded to a few megabytes.

use std::path::Path;

use parking_lot::{Mutex, MutexGuard};
use rusqlite::Connection;

use super::{Database, StoreError};

/// The version of the table layout; a database with a higher version is rejected.
const LAYOUT: i64 = 1;

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS objects (
        grp TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        revision INTEGER NOT NULL, body BLOB NOT NULL,
        PRIMARY KEY (grp, plural, namespace, name)
    );
    CREATE TABLE IF NOT EXISTS log (
        revision INTEGER PRIMARY KEY,
        grp TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        kind INTEGER NOT NULL, body BLOB NOT NULL
    );
    CREATE INDEX IF NOT EXISTS log_of_object ON log (grp, plural, namespace, name, revision);
    CREATE TABLE IF NOT EXISTS owners (
        owner TEXT NOT NULL,
        grp TEXT NOT NULL, plural TEXT NOT NULL, namespace TEXT NOT NULL, name TEXT NOT NULL,
        PRIMARY KEY (owner, grp, plural, namespace, name)
    ) WITHOUT ROWID;
    CREATE INDEX IF NOT EXISTS owners_of_object ON owners (grp, plural, namespace, name);
    CREATE TABLE IF NOT EXISTS counters (name TEXT PRIMARY KEY, value INTEGER NOT NULL);
    INSERT OR IGNORE INTO counters VALUES ('revision', 1), ('compacted', 1);
";

/// Maximum number of readers; further reads wait for one.
const READERS: usize = 2;

#[derive(Debug)]
pub(super) struct Connections {
    writer: Mutex<Connection>,
    /// Empty for an in-memory database, which has a single connection.
    readers: Vec<Mutex<Connection>>,
}

impl Connections {
    pub(super) fn open(database: &Database) -> Result<Self, StoreError> {
        let (writer, readers) = match database {
            Database::Memory => (Connection::open_in_memory()?, Vec::new()),
            Database::File(path) => {
                let writer = Connection::open(path)?;
                writer.pragma_update(None, "journal_mode", "WAL")?;
                // The WAL survives a crash of the process; a power loss may lose the last writes.
                writer.pragma_update(None, "synchronous", "NORMAL")?;
                check_layout(&writer, path)?;
                writer.execute_batch(TABLES)?;
                writer.pragma_update(None, "user_version", LAYOUT)?;
                let readers = (0..READERS)
                    .map(|_| {
                        let reader = Connection::open(path)?;
                        reader.pragma_update(None, "query_only", true)?;
                        bound(&reader, 512)?;
                        Ok(Mutex::new(reader))
                    })
                    .collect::<Result<Vec<_>, StoreError>>()?;
                (writer, readers)
            }
        };
        writer.execute_batch(TABLES)?;
        bound(&writer, 2048)?;
        Ok(Self {
            writer: Mutex::new(writer),
            readers,
        })
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

fn check_layout(connection: &Connection, path: &Path) -> Result<(), StoreError> {
    let found: i64 = connection.pragma_query_value(None, "user_version", |row| row.get(0))?;
    if found > LAYOUT {
        return Err(StoreError::TooNew {
            path: path.to_owned(),
            found,
        });
    }
    Ok(())
}

fn bound(connection: &Connection, kibibytes: i64) -> Result<(), StoreError> {
    connection.pragma_update(None, "cache_size", -kibibytes)?;
    connection.busy_timeout(std::time::Duration::from_secs(5))?;
    connection.set_prepared_statement_cache_capacity(16);
    Ok(())
}
