//! The store in memory and on disk.

use std::pin::pin;

use apimachinery::meta;
use futures::poll;
use serde_json::json;

use super::*;

fn memory() -> Store {
    Store::open(&Database::Memory).unwrap()
}

fn things() -> Collection {
    Collection::new("g", "things")
}

#[tokio::test]
async fn chunks_are_bounded_in_bytes() {
    let store = memory();
    let start = store.revision().await.unwrap();
    let large = json!({"metadata": {}, "data": "x".repeat(100)});
    for name in ["a", "b", "c"] {
        let key = things().key("n", name);
        store.create(&key, large.clone()).await.unwrap();
    }
    let bound = |bytes| Bound { count: 10, bytes };
    for (bytes, expected) in [(0, 1), (100, 1), (200, 2), (10_000, 3)] {
        let scope = Scope::all(things());
        let page = store.chunk(&scope, None, bound(bytes)).await.unwrap();
        assert_eq!(page.items.len(), expected, "list of {bytes} bytes");
        let remaining = page.more.map_or(0, |more| more.remaining);
        assert_eq!(remaining, 3 - u64::try_from(expected).unwrap());
        let changes = store.changes_after(&scope, start, bound(bytes)).await;
        assert_eq!(changes.unwrap().len(), expected, "changes of {bytes} bytes");
    }
}

#[tokio::test]
async fn large_objects_are_not_kept_for_slow_watches() {
    let store = memory();
    let mut notices = store.notices();
    for (name, size, is_large) in [("a", 10, false), ("b", 3 << 20, true)] {
        let object = json!({"metadata": {}, "data": "x".repeat(size)});
        store
            .create(&things().key("n", name), object)
            .await
            .unwrap();
        let notice = notices.recv().await.unwrap();
        assert_eq!(matches!(notice, Notice::Large { .. }), is_large, "{name}");
    }
}

fn thing(name: &str) -> Value {
    json!({"metadata": {"name": name}})
}

#[tokio::test]
async fn revision_is_the_resource_version_of_the_last_write() {
    let store = memory();
    let key = things().key("ns", "a");
    let (created, stored) = store.create(&key, thing("a")).await.unwrap();
    assert_eq!(
        meta::resource_version(&created),
        stored.revision.to_string()
    );
    assert!(matches!(
        store.create(&key, thing("a")).await,
        Err(StoreError::Exists)
    ));
    let (_, second) = store
        .update(&key, stored.revision, thing("a"))
        .await
        .unwrap();
    assert_eq!(second.revision, stored.revision + 1);
    let stale = store.update(&key, stored.revision, thing("a")).await;
    assert!(matches!(stale, Err(StoreError::Conflict)));
    assert_eq!(store.revision().await.unwrap(), second.revision);
    store
        .delete(&key, second.revision, thing("a"))
        .await
        .unwrap();
    assert!(store.get(&key).await.unwrap().is_none());
}

#[tokio::test]
async fn chunks_are_contiguous_and_count_the_rest() {
    let store = memory();
    for (namespace, name) in [("b", "x"), ("a", "z"), ("a", "y")] {
        store
            .create(&things().key(namespace, name), thing(name))
            .await
            .unwrap();
    }
    let scope = Scope::all(things());
    let first = store.list(&scope, None, Some(2)).await.unwrap();
    let more = first.more.unwrap();
    assert_eq!(
        more,
        More {
            after: Position {
                namespace: "a".into(),
                name: "z".into(),
            },
            remaining: 1,
        }
    );
    let rest = store.list(&scope, Some(more.after), Some(2)).await.unwrap();
    assert_eq!((rest.items.len(), rest.more), (1, None));
    let one = Scope {
        namespace: Some("a".into()),
        ..scope
    };
    assert_eq!(store.list(&one, None, None).await.unwrap().items.len(), 2);
}

#[tokio::test]
async fn compacted_changes_are_rejected_and_later_ones_replayed() {
    let store = memory();
    let key = things().key("", "a");
    let start = store.revision().await.unwrap();
    let (_, first) = store.create(&key, thing("a")).await.unwrap();
    let (_, second) = store
        .update(&key, first.revision, thing("a"))
        .await
        .unwrap();
    let scope = Scope::all(things());
    let all = store
        .changes_after(&scope, start, Bound::ALL)
        .await
        .unwrap();
    let kinds: Vec<_> = all
        .iter()
        .map(|event| (event.kind, event.previous.is_some()))
        .collect();
    assert_eq!(
        kinds,
        [(EventKind::Added, false), (EventKind::Modified, true)]
    );
    store.compact_in_parts(last(1), last(1)).await.unwrap();
    let compacted = store.changes_after(&scope, start, Bound::ALL).await;
    assert!(matches!(compacted, Err(StoreError::Compacted { .. })));
    let kept = store
        .changes_after(&scope, first.revision, Bound::ALL)
        .await
        .unwrap();
    assert_eq!(kept.first().unwrap().revision, second.revision);
}

/// Issue: what was left of a compaction stayed until there was more to compact.
#[tokio::test]
async fn interrupted_compaction_is_completed() {
    let store = memory();
    let key = things().key("", "a");
    let (_, mut latest) = store.create(&key, thing("a")).await.unwrap();
    for _ in 0..5 {
        let updated = store.update(&key, latest.revision, thing("a")).await;
        latest = updated.unwrap().1;
    }
    let keep = last(1);
    let compacted = store.write(move |db| log::compact(db, keep)).await;
    compacted.unwrap();
    assert_eq!(changes_in_log(&store).await, 6);
    store.compact_in_parts(keep, last(1)).await.unwrap();
    // The one that is kept, and the object before it.
    assert_eq!(changes_in_log(&store).await, 2);
}

async fn changes_in_log(store: &Store) -> u64 {
    let count = store.read(|db| {
        let query = "SELECT count(*) FROM log";
        Ok(db.query_row(query, [], |row| row.get(0))?)
    });
    count.await.unwrap()
}

/// A sort would copy the bodies of all changes of the kind, for every watch that reads on.
#[tokio::test]
async fn log_is_read_in_its_order_without_a_sort() {
    let store = memory();
    let explain = format!("EXPLAIN QUERY PLAN {}", log::AFTER);
    let steps = store.read(move |db| {
        let mut query = db.prepare(&explain)?;
        let nothing = None::<String>;
        let wanted = rusqlite::params![1, "g", "things", nothing, nothing, 100];
        let rows = query.query_map(wanted, |row| row.get::<_, String>(3))?;
        Ok(rows.collect::<Result<Vec<_>, _>>()?)
    });
    assert_eq!(
        steps.await.unwrap(),
        ["SEARCH log USING INTEGER PRIMARY KEY (rowid>?)"]
    );
}

#[tokio::test]
async fn object_that_is_created_again_has_none_before_it() {
    let store = memory();
    let key = things().key("", "a");
    let (_, first) = store.create(&key, thing("a")).await.unwrap();
    store
        .delete(&key, first.revision, thing("a"))
        .await
        .unwrap();
    let (_, again) = store.create(&key, thing("a")).await.unwrap();
    let scope = Scope::all(things());
    let changes = store.changes_after(&scope, again.revision - 1, Bound::ALL);
    let changes = changes.await.unwrap();
    let found: Vec<_> = changes
        .iter()
        .map(|event| (event.kind, event.previous.is_some()))
        .collect();
    assert_eq!(found, [(EventKind::Added, false)]);
}

/// The last changes, of any size.
fn last(count: usize) -> Bound {
    Bound {
        count,
        ..Bound::ALL
    }
}

/// A watch with a selector needs the object before a change, or misses that it left the selection.
#[tokio::test]
async fn object_before_a_change_is_known_however_old_it_is() {
    let store = memory();
    let scope = Scope::all(things());
    let names = |events: &[Event]| -> Vec<(String, Option<u64>)> {
        let before = |event: &Event| {
            let object: Value = serde_json::from_slice(event.previous.as_ref()?).unwrap();
            meta::resource_version(&object).parse().ok()
        };
        let name = |event: &Event| event.key.name.to_string();
        events
            .iter()
            .map(|event| (name(event), before(event)))
            .collect()
    };
    let create = async |name: &str| {
        let created = store.create(&things().key("", name), thing(name)).await;
        created.unwrap().1.revision
    };
    let update = async |name: &str, revision: u64| {
        let key = things().key("", name);
        let updated = store.update(&key, revision, thing(name)).await;
        updated.unwrap().1.revision
    };
    let [a, b] = [create("a").await, create("b").await];
    // The log is empty when the old objects change.
    store.compact_in_parts(last(0), last(1)).await.unwrap();
    let a2 = update("a", a).await;
    let b2 = update("b", b).await;
    let found = store.changes_after(&scope, b, Bound::ALL).await.unwrap();
    let expected = [("a".to_owned(), Some(a)), ("b".to_owned(), Some(b))];
    assert_eq!(
        names(&found),
        expected,
        "the objects themselves are no changes"
    );
    // The change of `a` is compacted, and that of `b` is kept with what was before it.
    store.compact_in_parts(last(1), last(1)).await.unwrap();
    let found = store.changes_after(&scope, a2, Bound::ALL).await.unwrap();
    assert_eq!(names(&found), [("b".to_owned(), Some(b))]);
    let a3 = update("a", a2).await;
    store
        .delete(&things().key("", "b"), b2, thing("b"))
        .await
        .unwrap();
    let found = store.changes_after(&scope, b2, Bound::ALL).await.unwrap();
    let expected = [("a".to_owned(), Some(a2)), ("b".to_owned(), Some(b2))];
    assert_eq!(names(&found), expected);
    assert!(matches!(
        store.check_kept(a2 - 1).await,
        Err(StoreError::Compacted { .. })
    ));
    // What no kept change needs is dropped.
    store.compact_in_parts(last(0), last(1)).await.unwrap();
    let rows: u64 = store
        .read(|db| Ok(db.query_row("SELECT COUNT(*) FROM log", [], |row| row.get(0))?))
        .await
        .unwrap();
    assert_eq!(rows, 0);
    update("a", a3).await;
}

/// One of the callers has the duty to commit, and its runtime may end before that begins.
#[test]
fn write_does_not_fail_with_the_runtime_of_another_caller() {
    let runtime = || {
        let mut builder = tokio::runtime::Builder::new_current_thread();
        builder.max_blocking_threads(1).build().unwrap()
    };
    let (store, ended, own) = (memory(), runtime(), runtime());
    let (release, held) = std::sync::mpsc::channel::<()>();
    drop(ended.spawn_blocking(move || held.recv()));
    let [a, b] = ["a", "b"].map(|name| things().key("", name));
    let mut first = pin!(store.create(&a, thing("a")));
    let mut second = pin!(store.create(&b, thing("b")));
    // Both wait, and the task that commits has not begun.
    assert!(ended.block_on(async { poll!(&mut first) }).is_pending());
    assert!(own.block_on(async { poll!(&mut second) }).is_pending());
    ended.shutdown_background();
    release.send(()).unwrap();
    own.block_on(second).unwrap();
    own.block_on(first).unwrap();
}

#[tokio::test]
async fn log_is_bounded_in_bytes() {
    let store = memory();
    let large = json!({"metadata": {}, "data": "x".repeat(1000)});
    let mut revisions = Vec::new();
    for name in ["a", "b", "c"] {
        let created = store.create(&things().key("", name), large.clone()).await;
        revisions.push(created.unwrap().1.revision);
    }
    let keep = |bytes| Bound {
        bytes,
        ..Bound::ALL
    };
    for (bytes, oldest) in [(10_000, 1), (2500, revisions[0]), (0, revisions[2])] {
        store.compact(keep(bytes)).await.unwrap();
        store.check_kept(oldest).await.unwrap();
        let before = store.check_kept(oldest - 1).await;
        assert!(before.is_err(), "{bytes} bytes");
    }
}

#[tokio::test]
async fn objects_survive_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let database = Database::File(folder.path().join("api.db"));
    let key = things().key("", "a");
    let (_, stored) = Store::open(&database)
        .unwrap()
        .create(&key, thing("a"))
        .await
        .unwrap();
    let again = Store::open(&database).unwrap();
    assert_eq!(
        again.get(&key).await.unwrap().unwrap().revision,
        stored.revision
    );
    assert_eq!(again.revision().await.unwrap(), stored.revision);
}

#[tokio::test]
async fn full_disk_is_one_clear_error() {
    let store = memory();
    store
        .connections
        .writer()
        .unwrap()
        .pragma_update(None, "max_page_count", 20)
        .unwrap();
    let big = json!({"metadata": {}, "data": "x".repeat(200_000)});
    let full = store.create(&things().key("", "a"), big).await.unwrap_err();
    assert!(matches!(full, StoreError::DiskFull), "{full:?}");
    // Reading goes on, and so does what still fits.
    let read = store.get(&things().key("", "a")).await.unwrap();
    assert!(read.is_none(), "nothing is half written");
    store
        .create(&things().key("", "b"), thing("b"))
        .await
        .unwrap();
}

/// As a file system that the kernel has made read-only.
#[tokio::test]
async fn read_only_disk_is_one_clear_error() {
    let store = memory();
    let key = things().key("", "a");
    store.create(&key, thing("a")).await.unwrap();
    let read_only = |is: bool| {
        let writer = store.connections.writer().unwrap();
        writer.pragma_update(None, "query_only", is).unwrap();
    };
    read_only(true);
    let refused = store.create(&things().key("", "b"), thing("b")).await;
    let refused = refused.unwrap_err();
    assert!(matches!(refused, StoreError::ReadOnly), "{refused:?}");
    // Reading goes on, and writing once it is mounted for writing again.
    assert!(store.get(&key).await.unwrap().is_some());
    read_only(false);
    store
        .create(&things().key("", "b"), thing("b"))
        .await
        .unwrap();
}

#[tokio::test]
async fn copy_of_a_database_in_memory_continues_on_its_own() {
    let original = memory();
    let (kept, added) = (things().key("n", "kept"), things().key("n", "added"));
    let object = || json!({"metadata": {}});
    original.create(&kept, object()).await.unwrap();
    let copy = Store::open(&Database::MemoryFrom(original.snapshot().unwrap())).unwrap();
    let revision = original.revision().await.unwrap();
    assert_eq!(copy.revision().await.unwrap(), revision);
    assert!(copy.get(&kept).await.unwrap().is_some());
    copy.create(&added, object()).await.unwrap();
    assert!(copy.get(&added).await.unwrap().is_some());
    assert!(original.get(&added).await.unwrap().is_none());
    assert_eq!(original.revision().await.unwrap(), revision);
}

#[test]
fn short_reads_do_not_wait_for_long_ones() {
    use super::connection::READERS;

    let folder = tempfile::tempdir().unwrap();
    let database = Database::File(folder.path().join("api.db"));
    let connections = connection::Connections::open(&database).unwrap();
    let long = std::sync::Barrier::new(READERS);
    std::thread::scope(|threads| {
        // All but one are in a long read until the short one is there: they meet.
        for _ in 1..READERS {
            threads.spawn(|| {
                let read = connections.read(|db| {
                    long.wait();
                    log::revision(db)
                });
                read.unwrap();
            });
        }
        let short = connections.read(log::revision);
        assert_eq!(short.unwrap(), 1);
        long.wait();
    });
    // More reads than readers take turns, and a reader whose read panicked is there again.
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        connections.read::<()>(|_| panic!("a bug"))
    }));
    assert!(panicked.is_err());
    std::thread::scope(|threads| {
        for _ in 0..4 * READERS {
            threads.spawn(|| assert_eq!(connections.read(log::revision).unwrap(), 1));
        }
    });
}
