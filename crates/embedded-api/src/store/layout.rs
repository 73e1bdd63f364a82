//! The layout of the tables, its versions, and the check of a file before it is used.
//!
//! Invariant: a released step of [`STEPS`] never changes; a new layout is a further step, and
//! `tests/layouts` gets a database of the layout that it replaces.

use std::path::Path;

use rusqlite::Connection;

use super::{StoreError, error::on_one_line};

/// The steps from an empty file to today's layout. The version of a database, its `user_version`,
/// is the number of steps that it went through. The first one also completes the files of a version
/// that created its tables and set `user_version` separately.
const STEPS: &[&str] = &["
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
"];

/// Refuses a database of a newer layout, and a damaged one. An empty file is a new database.
pub(super) fn check(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let found = version(db)?;
    let known = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
    if found > known {
        return Err(StoreError::TooNew {
            path: path.to_owned(),
            found,
            known,
        });
    }
    // One finding is enough: the remedy is the same for all.
    let result: String = db.query_row("PRAGMA quick_check(1)", [], |row| row.get(0))?;
    if result != "ok" {
        return Err(StoreError::Corrupt {
            path: path.to_owned(),
            detail: on_one_line(&result),
        });
    }
    Ok(())
}

/// Takes the steps that the database lacks, all or none.
pub(super) fn migrate(db: &Connection) -> Result<(), StoreError> {
    let db = db.unchecked_transaction()?;
    let found = usize::try_from(version(&db)?).unwrap_or(0);
    for step in STEPS.iter().skip(found) {
        db.execute_batch(step)?;
    }
    if found < STEPS.len() {
        let version = i64::try_from(STEPS.len()).unwrap_or(i64::MAX);
        db.pragma_update(None, "user_version", version)?;
    }
    Ok(db.commit()?)
}

/// Creates the tables of a new database.
pub(super) fn create(db: &Connection) -> Result<(), StoreError> {
    migrate(db)
}

pub(super) fn version(db: &Connection) -> Result<i64, StoreError> {
    Ok(db.pragma_query_value(None, "user_version", |row| row.get(0))?)
}

#[cfg(test)]
mod tests {
    use rusqlite::Connection;

    use super::*;
    use crate::store::{Collection, Database, Scope, Store};

    /// Databases of all released layouts, as SQL: the file of version `n` is the `n`th.
    const RELEASED: &[&str] = &[include_str!("../../tests/layouts/1.sql")];

    fn schema(db: &Connection) -> Vec<String> {
        let mut query = db
            .prepare("SELECT sql FROM sqlite_master WHERE sql IS NOT NULL ORDER BY name")
            .unwrap();
        let rows = query.query_map([], |row| row.get::<_, String>(0)).unwrap();
        let squeeze = |sql: String| sql.split_whitespace().collect::<Vec<_>>().join(" ");
        rows.map(|row| squeeze(row.unwrap())).collect()
    }

    #[tokio::test]
    async fn databases_of_every_released_layout_are_migrated() {
        let fresh = Connection::open_in_memory().unwrap();
        create(&fresh).unwrap();
        for (number, sql) in RELEASED.iter().enumerate() {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("api.db");
            let old = Connection::open(&path).unwrap();
            old.execute_batch(sql).unwrap();
            assert_eq!(usize::try_from(version(&old).unwrap()).unwrap(), number + 1);
            old.close().unwrap();
            let store = Store::open(&Database::File(path.clone())).unwrap();
            let maps = Collection::new("", "configmaps");
            let kept = store.get(&maps.key("default", "a")).await.unwrap().unwrap();
            assert_eq!(kept.parse().unwrap()["data"]["k"], "v");
            assert_eq!(store.revision().await.unwrap(), 4);
            let changes = store
                .changes_after(&Scope::all(maps), 2, crate::store::Bound::ALL)
                .await
                .unwrap();
            assert_eq!(changes.len(), 2, "the log is kept");
            assert_eq!(store.dependents("u-1").await.unwrap().len(), 1);
            drop(store);
            let new = Connection::open(&path).unwrap();
            assert_eq!(schema(&new), schema(&fresh));
            assert_eq!(version(&new).unwrap(), version(&fresh).unwrap());
        }
    }

    /// A changed step instead of a further one would leave released databases behind.
    #[test]
    fn every_step_has_the_layout_that_was_released() {
        assert_eq!(
            RELEASED.len(),
            STEPS.len(),
            "add a database to tests/layouts"
        );
        let made = Connection::open_in_memory().unwrap();
        for (step, released) in STEPS.iter().zip(RELEASED) {
            made.execute_batch(step).unwrap();
            let old = Connection::open_in_memory().unwrap();
            old.execute_batch(released).unwrap();
            assert_eq!(schema(&made), schema(&old));
        }
    }

    #[test]
    fn database_of_a_newer_version_is_refused_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let newer = Connection::open(&path).unwrap();
        newer
            .execute_batch("CREATE TABLE future (a); PRAGMA user_version = 99")
            .unwrap();
        newer.close().unwrap();
        let before = std::fs::read(&path).unwrap();
        let error = Store::open(&Database::File(path.clone())).unwrap_err();
        assert!(
            matches!(error, StoreError::TooNew { found: 99, .. }),
            "{error}"
        );
        assert!(
            error.to_string().contains("run the newer version"),
            "{error}"
        );
        assert_eq!(std::fs::read(&path).unwrap(), before);
    }

    #[tokio::test]
    async fn damaged_database_is_refused_with_the_remedy() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("api.db");
        let store = Store::open(&Database::File(path.clone())).unwrap();
        for number in 0..50 {
            let key = Collection::new("", "configmaps").key("default", &number.to_string());
            let object = serde_json::json!({"metadata": {}, "data": {"k": "x".repeat(2000)}});
            store.create(&key, object).await.unwrap();
        }
        let writer = store.connections.writer().unwrap();
        let move_log = writer.query_row("PRAGMA wal_checkpoint(TRUNCATE)", [], |_| Ok(()));
        move_log.unwrap();
        drop(writer);
        let whole = std::fs::read(&path).unwrap();
        let mut overwritten = whole.clone();
        overwritten[8192..40_960].fill(0xA5);
        let cases = [
            ("overwritten pages", overwritten),
            ("truncated", whole[..whole.len() / 2].to_vec()),
            (
                "no database",
                b"something else entirely, and long enough".repeat(200),
            ),
        ];
        for (case, bytes) in cases {
            let dir = tempfile::tempdir().unwrap();
            let path = dir.path().join("api.db");
            std::fs::write(&path, &bytes).unwrap();
            let error = Store::open(&Database::File(path.clone())).unwrap_err();
            assert!(
                matches!(error, StoreError::Corrupt { .. }),
                "{case}: {error:?}"
            );
            let message = error.to_string();
            assert!(message.contains("ferrovirt restore"), "{case}: {message}");
            assert_eq!(message.lines().count(), 1, "{case}: {message}");
            assert_eq!(
                std::fs::read(&path).unwrap(),
                bytes,
                "{case} is kept as evidence"
            );
        }
    }
}
