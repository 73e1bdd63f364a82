//! Copies of the database: made while it is in use, and put in its place again.
//!
//! Invariants: a copy is the state of one revision, checked and on disk before it has its name; a
//! restored database continues with revisions that were never used, and without the log, so that
//! every client lists again instead of resuming from another history.

use std::{
    ffi::OsString,
    fs, io,
    path::{Path, PathBuf},
};

use rusqlite::{Connection, OpenFlags};
use serde_json::Value;

use super::{StoreError, error::corrupt, layout, log};

/// Added to the revision of a restored copy: more writes than happen between a copy and its use.
const NEW_HISTORY: u64 = 1_000_000_000;

/// The end of the name of a database that was replaced.
const ASIDE: &str = ".before-restore";

/// What `SQLite` keeps beside a database, by the end of the name.
const LOGS: [&str; 2] = ["-wal", "-shm"];

/// What a database holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contents {
    /// The latest revision.
    pub revision: u64,
    pub objects: u64,
    /// The uids of all pods.
    pub pods: Vec<String>,
}

/// Reads what a database holds and checks it; `None` if there is no file, or an empty one.
pub fn inspect(path: &Path) -> Result<Option<Contents>, StoreError> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(file_failed(path, error)),
        Ok(found) if found.len() == 0 => return Ok(None),
        Ok(_) => {}
    }
    existing(path)
        .and_then(|db| checked(&db, path))
        .map_err(|error| corrupt(error, path))
}

/// Copies a database, also one in use, to a new file that only its owner reads.
pub fn back_up(database: &Path, target: &Path) -> Result<Contents, StoreError> {
    if target.exists() {
        return Err(file_failed(target, io::ErrorKind::AlreadyExists.into()));
    }
    let db = existing(database).map_err(|error| corrupt(error, database))?;
    copy(&db, target)
}

/// Copies the database of a connection to a new file.
pub(super) fn copy(db: &Connection, target: &Path) -> Result<Contents, StoreError> {
    let failed = |error| file_failed(target, error);
    let draft = beside(target, durable_file::DRAFT);
    remove(&draft).map_err(failed)?;
    // Secrets are in it: private before the first byte is written.
    durable_file::replace(&draft, b"", durable_file::PRIVATE).map_err(failed)?;
    let name = draft.to_string_lossy();
    let copied = db
        .execute("VACUUM INTO ?1", [&*name])
        .map_err(StoreError::from)
        .and_then(|_| inspect(&draft))
        .and_then(|contents| {
            let contents = contents.ok_or_else(|| failed(io::ErrorKind::UnexpectedEof.into()))?;
            fs::File::open(&draft)
                .and_then(|file| file.sync_all())
                .and_then(|()| fs::rename(&draft, target))
                .and_then(|()| durable_file::sync_parent(target))
                .map_err(failed)?;
            Ok(contents)
        });
    if copied.is_err() {
        // The first error matters more than a leftover, which the next copy removes.
        remove(&draft).ok();
    }
    copied
}

/// Replaces a database that no process uses by a copy. The database before is kept beside it under
/// the returned name, if there was one.
pub fn restore(from: &Path, database: &Path) -> Result<Option<PathBuf>, StoreError> {
    let failed = |error| file_failed(database, error);
    if interrupted_restore(database).is_some() {
        // Its log may still be in the place of that of the copy.
        set_aside(database).map_err(failed)?;
    }
    let draft = beside(database, ".restored");
    for suffix in [""].into_iter().chain(LOGS) {
        remove(&beside(&draft, suffix)).map_err(failed)?;
    }
    let source = existing(from).map_err(|error| corrupt(error, from))?;
    let contents = checked(&source, from).map_err(|error| corrupt(error, from))?;
    if contents.is_none_or(|contents| contents.objects == 0) {
        return Err(StoreError::Empty {
            path: from.to_owned(),
        });
    }
    copy(&source, &draft)?;
    start_new_history(&draft)?;

    let before = set_aside(database).map_err(failed)?;
    fs::rename(&draft, database)
        .and_then(|()| durable_file::sync_parent(database))
        .map_err(failed)?;
    Ok(before)
}

/// The database that [`restore`] has set aside, if nothing is in its place: it was killed before the copy was
/// there, or the copy was removed.
pub fn interrupted_restore(database: &Path) -> Option<PathBuf> {
    let aside = beside(database, ASIDE);
    (!database.exists() && aside.exists()).then_some(aside)
}

fn start_new_history(path: &Path) -> Result<(), StoreError> {
    let db = Connection::open(path)?;
    db.pragma_update(None, "synchronous", "FULL")?;
    layout::migrate(&db)?;
    let change = db.unchecked_transaction()?;
    let revision = log::revision(&change)?.saturating_add(NEW_HISTORY);
    change.execute(
        "UPDATE counters SET value = ?1 WHERE name IN ('revision', 'compacted')",
        [revision],
    )?;
    change.execute("DELETE FROM log", [])?;
    change.commit()?;
    // Without a log beside it, so that one rename puts it in place.
    db.pragma_update(None, "journal_mode", "DELETE")?;
    db.close().map_err(|(_, error)| error)?;
    Ok(())
}

/// Keeps the database that is replaced, with its log, under another name. Killed at any point, it
/// continues: what was set aside is replaced only by a database that is there.
fn set_aside(database: &Path) -> io::Result<Option<PathBuf>> {
    let aside = beside(database, ASIDE);
    let exists = database.try_exists()?;
    if exists {
        // The logs of an earlier one must not be taken for those of this one.
        for log in LOGS {
            remove(&beside(&aside, log))?;
        }
        fs::rename(database, &aside)?;
    }
    for log in LOGS {
        match fs::rename(beside(database, log), beside(&aside, log)) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    Ok(aside.try_exists()?.then_some(aside))
}

fn existing(path: &Path) -> Result<Connection, StoreError> {
    // Without SQLITE_OPEN_CREATE: a wrong name must not become an empty database.
    let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX;
    if !path.exists() {
        return Err(file_failed(path, io::ErrorKind::NotFound.into()));
    }
    let db = Connection::open_with_flags(path, flags)?;
    db.busy_timeout(std::time::Duration::from_secs(5))?;
    Ok(db)
}

fn checked(db: &Connection, path: &Path) -> Result<Option<Contents>, StoreError> {
    layout::check(db, path)?;
    if layout::version(db)? == 0 {
        return Ok(None);
    }
    let db = db.unchecked_transaction()?;
    let mut query = db.prepare("SELECT body FROM objects WHERE grp = '' AND plural = 'pods'")?;
    let mut rows = query.query([])?;
    let mut pods = Vec::new();
    while let Some(row) = rows.next()? {
        let pod: Value = serde_json::from_slice(&row.get::<_, Vec<u8>>(0)?)?;
        pods.extend(pod["metadata"]["uid"].as_str().map(ToOwned::to_owned));
    }
    Ok(Some(Contents {
        revision: log::revision(&db)?,
        objects: db.query_row("SELECT COUNT(*) FROM objects", [], |row| row.get(0))?,
        pods,
    }))
}

fn beside(path: &Path, suffix: &str) -> PathBuf {
    let mut name = OsString::from(path.as_os_str());
    name.push(suffix);
    PathBuf::from(name)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

fn file_failed(path: &Path, source: io::Error) -> StoreError {
    StoreError::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use serde_json::json;

    use super::*;
    use crate::store::{Collection, Database, Scope, Store};

    fn pods() -> Collection {
        Collection::new("", "pods")
    }

    async fn add(store: &Store, name: &str) -> u64 {
        let object = json!({"metadata": {"name": name, "uid": format!("u-{name}")}});
        let (_, stored) = store.create(&pods().key("ns", name), object).await.unwrap();
        stored.revision
    }

    #[tokio::test]
    async fn copy_of_a_database_in_use_is_restored_with_new_revisions() {
        let dir = tempfile::tempdir().unwrap();
        let (path, target) = (dir.path().join("api.db"), dir.path().join("copy.db"));
        let database = Database::File(path.clone());
        let store = Store::open(&database).unwrap();
        let kept = add(&store, "kept").await;
        let copied = back_up(&path, &target).unwrap();
        let mode = fs::metadata(&target).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let expected = Contents {
            revision: kept,
            objects: 1,
            pods: vec!["u-kept".to_owned()],
        };
        assert_eq!(
            (&copied, inspect(&target).unwrap().as_ref()),
            (&expected, Some(&expected))
        );
        let again = back_up(&path, &target).unwrap_err();
        assert!(format!("{again:?}").contains("AlreadyExists"), "{again:?}");

        let lost = add(&store, "lost").await;
        drop(store);
        let aside = restore(&target, &path).unwrap().unwrap();
        let store = Store::open(&database).unwrap();
        assert!(
            store
                .get(&pods().key("ns", "kept"))
                .await
                .unwrap()
                .is_some()
        );
        assert!(
            store
                .get(&pods().key("ns", "lost"))
                .await
                .unwrap()
                .is_none()
        );
        for revision in [kept, lost] {
            let resumed = store
                .changes_after(&Scope::all(pods()), revision, crate::store::Bound::ALL)
                .await;
            assert!(
                matches!(resumed, Err(StoreError::Compacted { .. })),
                "{revision}"
            );
        }
        assert!(add(&store, "new").await > lost);
        assert_eq!(inspect(&aside).unwrap().unwrap().objects, 2);
    }

    #[test]
    fn interrupted_replacement_loses_neither_the_database_nor_its_log() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let aside = dir.path().join("api.db.before-restore");
        let write = |path: &Path, text: &str| fs::write(path, text).unwrap();
        let read = |path: &Path| fs::read_to_string(path).unwrap();
        // Of an earlier restore.
        write(&aside, "older");
        write(&beside(&aside, "-wal"), "older log");
        write(&path, "now");
        write(&beside(&path, "-wal"), "log");
        // Killed after the first rename, and started again.
        remove(&beside(&aside, "-wal")).unwrap();
        assert_eq!(interrupted_restore(&path), None);
        fs::rename(&path, &aside).unwrap();
        assert_eq!(interrupted_restore(&path).as_ref(), Some(&aside));
        for _ in 0..2 {
            assert_eq!(set_aside(&path).unwrap().as_ref(), Some(&aside));
            assert_eq!(read(&aside), "now");
            assert_eq!(read(&beside(&aside, "-wal")), "log");
        }
        assert!(!path.exists() && !beside(&path, "-wal").exists());
        // A database without a log does not get the log of another one.
        write(&path, "next");
        set_aside(&path).unwrap();
        assert_eq!(read(&aside), "next");
        assert!(!beside(&aside, "-wal").exists());
    }

    #[tokio::test]
    async fn nothing_is_replaced_by_a_copy_that_is_no_good() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let store = Store::open(&Database::File(path.clone())).unwrap();
        add(&store, "kept").await;
        drop(store);
        let [empty, torn, missing] = ["empty", "torn", "missing"].map(|name| dir.path().join(name));
        drop(Store::open(&Database::File(empty.clone())).unwrap());
        fs::write(&torn, b"SQLite format 3\0 and then nothing").unwrap();
        for bad in [empty, torn, missing] {
            restore(&bad, &path).unwrap_err();
            assert!(
                !bad.ends_with("missing") || !bad.exists(),
                "created by reading"
            );
            let contents = inspect(&path).unwrap().unwrap();
            assert_eq!(contents.pods, ["u-kept"]);
        }
        assert!(inspect(&dir.path().join("missing")).unwrap().is_none());
    }
}
