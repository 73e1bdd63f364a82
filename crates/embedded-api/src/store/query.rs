//! Queries for current objects.

use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Row, params};

use super::{Collection, Key, More, Page, Position, Scope, StoreError, Stored, log};

pub(super) fn select(db: &Connection, key: &Key) -> Result<Option<Stored>, StoreError> {
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

fn stored(row: &Row<'_>) -> rusqlite::Result<Stored> {
    Ok(Stored {
        revision: row.get(0)?,
        body: Bytes::from(row.get::<_, Vec<u8>>(1)?),
    })
}

/// Counts for the metrics.
#[derive(Debug)]
pub(crate) struct Statistics {
    pub(crate) revision: u64,
    /// The log starts after this revision.
    pub(crate) compacted: u64,
    pub(crate) bytes: u64,
    /// What is in the write-ahead log, without its small headers.
    pub(crate) log_bytes: u64,
    /// Number of objects, by resource.
    pub(crate) objects: Vec<(Collection, u64)>,
}

pub(super) fn statistics(db: &Connection, log_pages: u32) -> Result<Statistics, StoreError> {
    // Reads only the index of the primary key.
    let mut query =
        db.prepare_cached("SELECT grp, plural, COUNT(*) FROM objects GROUP BY grp, plural")?;
    let rows = query.query_map([], |row| {
        let (group, plural): (String, String) = (row.get(0)?, row.get(1)?);
        Ok((Collection::new(&group, &plural), row.get(2)?))
    })?;
    let pages: u64 = db.pragma_query_value(None, "page_count", |row| row.get(0))?;
    let page_size: u64 = db.pragma_query_value(None, "page_size", |row| row.get(0))?;
    Ok(Statistics {
        revision: log::revision(db)?,
        compacted: log::counter(db, "compacted")?,
        bytes: pages.saturating_mul(page_size),
        log_bytes: u64::from(log_pages).saturating_mul(page_size),
        objects: rows.collect::<Result<_, _>>()?,
    })
}

const SCOPED: &str = "grp = ?1 AND plural = ?2
    AND (?3 IS NULL OR namespace = ?3) AND (?4 IS NULL OR name = ?4)
    AND (namespace, name) > (?5, ?6)";

pub(super) fn list(
    db: &Connection,
    scope: &Scope,
    after: Option<Position>,
    (limit, max_bytes): (Option<usize>, usize),
) -> Result<Page, StoreError> {
    // One read transaction, so that objects and revision are consistent.
    let db = db.unchecked_transaction()?;
    let revision = log::revision(&db)?;
    let Position { namespace, name } = after.unwrap_or_default();
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
    let mut bytes = 0_usize;
    let mut last = None;
    while let Some(row) = rows.next()? {
        let item = stored(row)?;
        bytes = bytes.saturating_add(item.body.len());
        items.push(item);
        if limit == Some(items.len()) || bytes >= max_bytes {
            last = Some(Position {
                namespace: row.get(2)?,
                name: row.get(3)?,
            });
            break;
        }
    }
    drop(rows);
    drop(query);
    let mut more = None;
    if let Some(last) = last {
        let mut query =
            db.prepare_cached(&format!("SELECT COUNT(*) FROM objects WHERE {SCOPED}"))?;
        let rest = params![
            &*scope.collection.group,
            &*scope.collection.plural,
            scope.namespace,
            scope.name,
            last.namespace,
            last.name,
        ];
        let remaining: u64 = query.query_row(rest, |row| row.get(0))?;
        if remaining > 0 {
            more = Some(More {
                after: last,
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
