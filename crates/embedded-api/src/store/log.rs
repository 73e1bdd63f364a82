//! The write path and the log of revisions that watchers replay.
//!
//! Invariants: object, log and counter change in one transaction; the log holds every revision after
//! the `compacted` one, and for each of these changes the object before it: without that, a watch with
//! a selector could not tell that an object has left its selection.

use apimachinery::meta;
use bytes::Bytes;
use rusqlite::{Connection, OptionalExtension as _, Transaction, params};
use serde_json::Value;

use super::{
    Bound, Collection, Event, EventKind, Key, Scope, StoreError, Stored, group::Write,
    query::select,
};

/// The effect of a write.
#[derive(Debug)]
pub(crate) enum Change {
    Put(Value),
    /// With the final state of the object.
    Remove(Value),
}

impl Change {
    pub(super) fn into_object(self) -> Value {
        match self {
            Self::Put(object) | Self::Remove(object) => object,
        }
    }
}

pub(super) fn revision(db: &Connection) -> Result<u64, StoreError> {
    counter(db, "revision")
}

pub(super) fn counter(db: &Connection, name: &str) -> Result<u64, StoreError> {
    let mut query = db.prepare_cached("SELECT value FROM counters WHERE name = ?1")?;
    Ok(query.query_row([name], |row| row.get(0))?)
}

/// Commits a group of writes in one transaction. A write whose object is not at the expected
/// revision fails by itself; any other failure is that of the whole group, which changes nothing.
pub(super) fn commit(
    db: &mut Connection,
    group: &mut [Write],
) -> Result<Vec<Result<Event, StoreError>>, StoreError> {
    let db = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let mut outcomes = Vec::with_capacity(group.len());
    for write in group {
        match apply(&db, write) {
            // Decided before the first change of this write, so there is nothing to undo.
            outcome @ (Ok(_) | Err(StoreError::Conflict | StoreError::Exists)) => {
                outcomes.push(outcome);
            }
            Err(error) => return Err(error),
        }
    }
    db.commit()?;
    Ok(outcomes)
}

/// Writes if the object is at the expected revision; sets the object's new revision.
fn apply(db: &Transaction<'_>, write: &mut Write) -> Result<Event, StoreError> {
    let Write {
        key,
        expected,
        change,
        ..
    } = write;
    let before = select(db, key)?;
    match (before.as_ref().map(|stored| stored.revision), *expected) {
        (Some(_), None) => return Err(StoreError::Exists),
        (found, expected) if found != expected => return Err(StoreError::Conflict),
        _ => {}
    }
    if let Some(before) = &before {
        keep_before(db, key, before)?;
    }
    let revision = next_revision(db)?;
    let (object, kind) = match (change, &before) {
        (Change::Remove(last), _) => (last, EventKind::Deleted),
        (Change::Put(object), None) => (object, EventKind::Added),
        (Change::Put(object), Some(_)) => (object, EventKind::Modified),
    };
    meta::set(object, "resourceVersion", revision.to_string());
    let body = Bytes::from(serde_json::to_vec(object)?);
    record(db, key, kind, revision, &body)?;
    let owners: Vec<&str> = match kind {
        EventKind::Deleted => Vec::new(),
        _ => meta::owner_references(object)
            .map(|owner| owner.uid)
            .collect(),
    };
    set_owners(db, key, &owners)?;
    Ok(Event {
        revision,
        kind,
        key: key.clone(),
        body,
        previous: before.map(|stored| stored.body),
    })
}

fn next_revision(db: &Transaction<'_>) -> Result<u64, StoreError> {
    let mut query = db.prepare_cached(
        "UPDATE counters SET value = value + 1 WHERE name = 'revision' RETURNING value",
    )?;
    Ok(query.query_row([], |row| row.get(0))?)
}

/// Keeps the object before a change in the log, which has it already unless it was compacted since.
fn keep_before(db: &Transaction<'_>, key: &Key, before: &Stored) -> Result<(), StoreError> {
    let Key {
        collection: Collection { group, plural },
        namespace,
        name,
    } = key;
    db.prepare_cached("INSERT OR IGNORE INTO log VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
        .execute(params![
            before.revision,
            &**group,
            &**plural,
            namespace,
            name,
            code(EventKind::Modified),
            &*before.body
        ])?;
    Ok(())
}

fn record(
    db: &Transaction<'_>,
    key: &Key,
    kind: EventKind,
    revision: u64,
    body: &[u8],
) -> Result<(), StoreError> {
    let Key {
        collection: Collection { group, plural },
        namespace,
        name,
    } = key;
    if kind == EventKind::Deleted {
        db.prepare_cached(
            "DELETE FROM objects WHERE grp = ?1 AND plural = ?2 AND namespace = ?3 AND name = ?4",
        )?
        .execute(params![&**group, &**plural, namespace, name])?;
    } else {
        db.prepare_cached("INSERT OR REPLACE INTO objects VALUES (?1, ?2, ?3, ?4, ?5, ?6)")?
            .execute(params![
                &**group, &**plural, namespace, name, revision, body
            ])?;
    }
    db.prepare_cached("INSERT INTO log VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7)")?
        .execute(params![
            revision,
            &**group,
            &**plural,
            namespace,
            name,
            code(kind),
            body
        ])?;
    Ok(())
}

/// Maintains the index from owners to dependents.
fn set_owners(db: &Transaction<'_>, key: &Key, owners: &[&str]) -> Result<(), StoreError> {
    let Key {
        collection: Collection { group, plural },
        namespace,
        name,
    } = key;
    db.prepare_cached(
        "DELETE FROM owners WHERE grp = ?1 AND plural = ?2 AND namespace = ?3 AND name = ?4",
    )?
    .execute(params![&**group, &**plural, namespace, name])?;
    for owner in owners {
        db.prepare_cached("INSERT OR IGNORE INTO owners VALUES (?1, ?2, ?3, ?4, ?5)")?
            .execute(params![owner, &**group, &**plural, namespace, name])?;
    }
    Ok(())
}

pub(super) fn dependents(db: &Connection, owner: &str) -> Result<Vec<Key>, StoreError> {
    let mut query =
        db.prepare_cached("SELECT grp, plural, namespace, name FROM owners WHERE owner = ?1")?;
    let mut rows = query.query([owner])?;
    let mut keys = Vec::new();
    while let Some(row) = rows.next()? {
        let collection = Collection::new(&row.get::<_, String>(0)?, &row.get::<_, String>(1)?);
        keys.push(collection.key(&row.get::<_, String>(2)?, &row.get::<_, String>(3)?));
    }
    Ok(keys)
}

/// Rejects a revision that the log cannot continue from: compacted away, or not reached yet. The
/// latter is of another history, before a restored copy for example, and what follows it here is
/// unknown to its holder.
pub(super) fn check_kept(db: &Connection, wanted: u64) -> Result<(), StoreError> {
    let oldest = counter(db, "compacted")?;
    if wanted < oldest {
        return Err(StoreError::Compacted { wanted, oldest });
    }
    let latest = revision(db)?;
    if wanted > latest {
        return Err(StoreError::Future { wanted, latest });
    }
    Ok(())
}

/// Not by the index of objects: the changes found there would be sorted with their bodies, for each read again.
pub(super) const AFTER: &str = "SELECT revision, kind, namespace, name, body FROM log NOT INDEXED
     WHERE revision > ?1 AND grp = ?2 AND plural = ?3
         AND (?4 IS NULL OR namespace = ?4) AND (?5 IS NULL OR name = ?5)
     ORDER BY revision LIMIT ?6";

pub(super) fn after(
    db: &Connection,
    scope: &Scope,
    revision: u64,
    bound: Bound,
) -> Result<Vec<Event>, StoreError> {
    let db = db.unchecked_transaction()?;
    check_kept(&db, revision)?;
    let mut query = db.prepare_cached(AFTER)?;
    let Collection { group, plural } = &scope.collection;
    let limit = i64::try_from(bound.count).unwrap_or(i64::MAX);
    let wanted = params![
        revision,
        &**group,
        &**plural,
        scope.namespace,
        scope.name,
        limit
    ];
    let mut rows = query.query(wanted)?;
    let mut events = Vec::new();
    let mut bytes = 0_usize;
    while let Some(row) = rows.next()? {
        let key = scope
            .collection
            .key(&row.get::<_, String>(2)?, &row.get::<_, String>(3)?);
        let revision = row.get(0)?;
        let kind = kind(row.get(1)?);
        let previous = match kind {
            // What the log has from before is of a deleted object of the same name.
            EventKind::Added => None,
            EventKind::Modified | EventKind::Deleted => previous(&db, &key, revision)?,
        };
        let body = Bytes::from(row.get::<_, Vec<u8>>(4)?);
        let event = Event {
            revision,
            kind,
            key,
            body,
            previous,
        };
        bytes = bytes.saturating_add(event.bytes());
        events.push(event);
        if bytes >= bound.bytes {
            break;
        }
    }
    Ok(events)
}

/// The object before `revision`, if the log still contains it.
fn previous(db: &Connection, key: &Key, revision: u64) -> Result<Option<Bytes>, StoreError> {
    let mut query = db.prepare_cached(
        "SELECT body FROM log
         WHERE grp = ?1 AND plural = ?2 AND namespace = ?3 AND name = ?4 AND revision < ?5
         ORDER BY revision DESC LIMIT 1",
    )?;
    let Key {
        collection: Collection { group, plural },
        namespace,
        name,
    } = key;
    let found: Option<Vec<u8>> = query
        .query_row(
            params![&**group, &**plural, namespace, name, revision],
            |row| row.get(0),
        )
        .optional()?;
    Ok(found.map(Bytes::from))
}

/// Compacts all but the last `keep.count` changes, and of these all but the last `keep.bytes`. Returns the last
/// change that is no longer kept.
pub(super) fn compact(db: &mut Connection, keep: Bound) -> Result<u64, StoreError> {
    let db = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let count = u64::try_from(keep.count).unwrap_or(u64::MAX);
    let by_count = revision(&db)?.saturating_sub(count);
    let compacted = counter(&db, "compacted")?;
    let until = by_count.max(last_beyond(&db, keep.bytes)?).max(compacted);
    if until > compacted {
        db.execute(
            "UPDATE counters SET value = ?1 WHERE name = 'compacted'",
            [until],
        )?;
    }
    db.commit()?;
    Ok(until)
}

/// Drops a part of what was compacted `until` a change: what comes after the change `from`, within the bound.
/// Returns the last change of the part. The object before a change that is kept stays. Parts go from the oldest on,
/// as what makes a change superfluous is newer.
pub(super) fn drop_part(
    db: &mut Connection,
    (from, until): (u64, u64),
    bound: Bound,
) -> Result<u64, StoreError> {
    let db = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let end = end_of_part(&db, (from, until), bound)?;
    db.execute(
        "DELETE FROM log AS old WHERE revision > ?2 AND revision <= ?3 AND (
             NOT EXISTS (
                 SELECT 1 FROM log AS kept
                 WHERE kept.grp = old.grp AND kept.plural = old.plural
                     AND kept.namespace = old.namespace AND kept.name = old.name
                     AND kept.revision > ?1)
             OR EXISTS (
                 SELECT 1 FROM log AS nearer
                 WHERE nearer.grp = old.grp AND nearer.plural = old.plural
                     AND nearer.namespace = old.namespace AND nearer.name = old.name
                     AND nearer.revision > old.revision AND nearer.revision <= ?1))",
        [until, from, end],
    )?;
    db.commit()?;
    Ok(end)
}

/// The change that reaches the bound, counted from the one after `from`; else `until`.
fn end_of_part(
    db: &Connection,
    (from, until): (u64, u64),
    bound: Bound,
) -> Result<u64, StoreError> {
    let mut query = db.prepare_cached(
        "SELECT revision, length(body) FROM log WHERE revision > ?1 AND revision <= ?2 ORDER BY revision",
    )?;
    let mut rows = query.query([from, until])?;
    let (mut count, mut bytes) = (0_usize, 0_usize);
    while let Some(row) = rows.next()? {
        count = count.saturating_add(1);
        bytes = bytes.saturating_add(row.get(1)?);
        if count >= bound.count || bytes >= bound.bytes {
            return Ok(row.get(0)?);
        }
    }
    Ok(until)
}

/// The latest change that is not among the last `bytes` of the log; 0 without one.
fn last_beyond(db: &Connection, bytes: usize) -> Result<u64, StoreError> {
    let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
    let mut query = db.prepare_cached(
        "SELECT coalesce(max(revision), 0) FROM (
             SELECT revision, sum(length(body)) OVER (ORDER BY revision DESC) AS total FROM log)
         WHERE total > ?1",
    )?;
    Ok(query.query_row([bytes], |row| row.get(0))?)
}

fn code(kind: EventKind) -> u8 {
    match kind {
        EventKind::Added => 0,
        EventKind::Modified => 1,
        EventKind::Deleted => 2,
    }
}

fn kind(code: u8) -> EventKind {
    match code {
        0 => EventKind::Added,
        1 => EventKind::Modified,
        _ => EventKind::Deleted,
    }
}
