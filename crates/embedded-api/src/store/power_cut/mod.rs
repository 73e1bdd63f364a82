//! Power cuts: a recording of what reached the disk is replayed up to random points, without a
//! random part of the writes that were not synced, and the database is opened again.
//!
//! `FERROVIRT_POWER_CUT_WRITES` sets the number of acknowledged writes: `cargo xtask power-cut`.

mod recorder;
mod replay;

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use futures::future::join_all;
use serde_json::json;

use self::{
    recorder::{Acknowledged, Tape},
    replay::{Disk, Random},
};
use super::{checkpoint::Limits, connection::Connections, *};

/// Acknowledged writes on one database, so that a recording fits into memory.
const ROUND: usize = 1000;
const CUTS: usize = 12;
const WRITERS: usize = 8;

/// Checkpoints all the time.
const BUSY: Limits = Limits {
    due: 20,
    long: 150,
    full: 1 << 18,
    retry: Duration::from_millis(50),
    patience: Duration::from_millis(50),
};

fn things() -> Collection {
    Collection::new("g", "things")
}

/// What the cuts of one round did.
#[derive(Debug, Default, PartialEq, Eq)]
struct Losses {
    acknowledged: usize,
    cuts: usize,
    lost: usize,
    used_twice: usize,
    unreadable: usize,
}

impl Losses {
    fn add(&mut self, other: &Self) {
        self.acknowledged += other.acknowledged;
        self.cuts += other.cuts;
        self.lost += other.lost;
        self.used_twice += other.used_twice;
        self.unreadable += other.unreadable;
    }
}

#[tokio::test]
async fn acknowledged_writes_survive_power_cuts() {
    let writes = std::env::var("FERROVIRT_POWER_CUT_WRITES").map_or(ROUND, |text| {
        text.parse()
            .expect("FERROVIRT_POWER_CUT_WRITES is a number")
    });
    let mut all = Losses::default();
    let mut seed = 1;
    while all.acknowledged < writes {
        // Half of the rounds have checkpoints all the time, which empty the log again and again.
        let limits = if seed % 2 == 0 { Limits::USUAL } else { BUSY };
        all.add(&round(seed, "FULL", limits).await);
        seed += 1;
    }
    println!("{all:?}");
    let expected = Losses {
        acknowledged: all.acknowledged,
        cuts: all.cuts,
        ..Losses::default()
    };
    assert_eq!(all, expected);
}

/// The test of the test: commits that do not wait for the disk are lost, and it notices.
#[tokio::test]
async fn writes_without_a_sync_are_found_to_be_lost() {
    let losses = round(1, "NORMAL", Limits::USUAL).await;
    assert!(losses.lost > 0, "{losses:?}");
    assert!(losses.used_twice > 0, "{losses:?}");
}

async fn round(seed: u64, synchronous: &str, limits: Limits) -> Losses {
    let dir = tempfile::tempdir().unwrap();
    let tape = Tape::record(dir.path());
    let path = dir.path().join("api.db");
    let connections = Connections::open_file(&path, Some(recorder::NAME), limits).unwrap();
    connections
        .writer()
        .unwrap()
        .pragma_update(None, "synchronous", synchronous)
        .unwrap();
    let store = Store::with(connections);
    let writers = (0..WRITERS).map(|writer| write(&store, &tape, seed, writer));
    join_all(writers).await;
    let ops = tape.take();
    drop(store);

    let mut random = Random(seed);
    let mut cuts: Vec<usize> = (0..CUTS).map(|_| random.below(ops.len() + 1)).collect();
    cuts.sort_unstable();
    let mut disk = Disk::default();
    let mut acknowledged = BTreeMap::new();
    let mut losses = Losses::default();
    let mut cuts = cuts.into_iter().peekable();
    for at in 0..=ops.len() {
        while cuts.next_if_eq(&at).is_some() {
            let after = tempfile::tempdir().unwrap();
            disk.cut(&mut random, after.path());
            let database = Database::File(after.path().join("api.db"));
            losses.cuts += 1;
            check(&database, &acknowledged, &mut losses).await;
        }
        match ops.get(at) {
            Some(recorder::Op::Acknowledged(write)) => {
                let before = acknowledged.insert(write.revision, write.clone());
                assert!(
                    before.is_none(),
                    "two writes have revision {}",
                    write.revision
                );
            }
            Some(op) => disk.apply(op),
            None => {}
        }
    }
    losses.acknowledged = acknowledged.len();
    losses
}

/// Creates, updates and deletes a few objects that only this writer changes.
async fn write(store: &Store, tape: &Tape, seed: u64, writer: usize) {
    let mut random = Random(seed ^ (u64::try_from(writer).unwrap() << 32));
    let mut live: BTreeMap<String, u64> = BTreeMap::new();
    for _ in 0..ROUND / WRITERS {
        let name = format!("{writer}-{}", random.below(4));
        let key = things().key("ns", &name);
        let filler = "x".repeat(random.below(3000));
        let object = json!({"metadata": {"name": name}, "data": filler});
        let (object, kind) = match live.get(&name) {
            Some(revision) if random.below(5) == 0 => {
                let last = store.delete(&key, *revision, object).await.unwrap();
                (last, EventKind::Deleted)
            }
            Some(revision) => {
                let put = store.update(&key, *revision, object).await.unwrap();
                (put.0, EventKind::Modified)
            }
            None => (
                store.create(&key, object).await.unwrap().0,
                EventKind::Added,
            ),
        };
        let revision: u64 = apimachinery::meta::resource_version(&object)
            .parse()
            .unwrap();
        if kind == EventKind::Deleted {
            live.remove(&name);
        } else {
            live.insert(name, revision);
        }
        let body = Bytes::from(object.to_string());
        tape.acknowledged(Acknowledged {
            revision,
            kind,
            body,
        });
    }
}

/// Opens what a power cut left: every acknowledged write is in the log under its revision, and the
/// next write gets a new one.
async fn check(database: &Database, written: &BTreeMap<u64, Acknowledged>, losses: &mut Losses) {
    let Ok(store) = Store::open(database) else {
        losses.unreadable += 1;
        return;
    };
    let all = Scope::all(things());
    let log = store.changes_after(&all, 1, Bound::ALL).await.unwrap();
    let log: BTreeMap<u64, Event> = log
        .into_iter()
        .map(|event| (event.revision, event))
        .collect();
    for write in written.values() {
        let kept = log
            .get(&write.revision)
            .is_some_and(|event| event.kind == write.kind && event.body == write.body);
        losses.lost += usize::from(!kept);
    }
    let latest = written.keys().last().copied().unwrap_or(1);
    if store.check_kept(latest).await.is_err() && losses.lost == 0 {
        losses.lost += 1;
    }
    let probe = things().key("ns", "probe");
    let (_, probe) = store.create(&probe, json!({"metadata": {}})).await.unwrap();
    losses.used_twice += usize::from(written.contains_key(&probe.revision));
    losses.used_twice += usize::from(log.contains_key(&probe.revision));
}
