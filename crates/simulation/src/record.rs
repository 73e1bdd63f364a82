//! Records the requests and the other events of a scenario, and detects hot loops.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;

use http::{Method, StatusCode};
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Limits of one scenario; one that passes needs a few writes for each change.
const MOST_WRITES: u64 = 20_000;
const MOST_REQUESTS: u64 = 200_000;

/// Clones share the record.
#[derive(Debug, Clone)]
pub(crate) struct Record(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    counts: Mutex<Counts>,
    overrun: Notify,
}

#[derive(Debug)]
struct Counts {
    begin: Instant,
    requests: u64,
    /// Without leases and events, which are written all the time.
    writes: u64,
    /// The successful ones of them.
    done: u64,
    /// The last events, for the reader of a failed scenario.
    last: Vec<String>,
    fingerprint: u64,
}

const LAST: usize = 100;

impl Record {
    pub(crate) fn new() -> Self {
        let counts = Mutex::new(Counts {
            begin: Instant::now(),
            requests: 0,
            writes: 0,
            done: 0,
            last: Vec::new(),
            fingerprint: 0,
        });
        let overrun = Notify::new();
        Self(Arc::new(Shared { counts, overrun }))
    }

    pub(crate) fn note(&self, method: &Method, path: &str, status: StatusCode) {
        let mut counts = self.0.counts.lock();
        let at = counts.begin.elapsed();
        let mut hasher = DefaultHasher::new();
        (
            counts.fingerprint,
            at,
            method.as_str(),
            path,
            status.as_u16(),
        )
            .hash(&mut hasher);
        counts.fingerprint = hasher.finish();
        counts.requests += 1;
        if counts.requests == MOST_REQUESTS {
            self.0.overrun.notify_one();
        }
        let is_upkeep = path.contains("/leases") || path.contains("/events");
        if *method == Method::GET || is_upkeep {
            return;
        }
        counts.writes += 1;
        if counts.writes == MOST_WRITES {
            self.0.overrun.notify_one();
        }
        counts.done += u64::from(status.is_success());
        if counts.last.len() == LAST {
            counts.last.remove(0);
        }
        let seconds = at.as_secs_f32();
        counts
            .last
            .push(format!("{seconds:9.3} {method} {path} {}", status.as_u16()));
    }

    /// Records any other event.
    pub(crate) fn event(&self, what: &str) {
        let mut counts = self.0.counts.lock();
        let at = counts.begin.elapsed();
        let mut hasher = DefaultHasher::new();
        (counts.fingerprint, at, what).hash(&mut hasher);
        counts.fingerprint = hasher.finish();
        if counts.last.len() == LAST {
            counts.last.remove(0);
        }
        let seconds = at.as_secs_f32();
        counts.last.push(format!("{seconds:9.3} -- {what}"));
    }

    /// Waits until there were more requests than any scenario needs; returns the problem.
    pub(crate) async fn overrun(&self) -> String {
        self.0.overrun.notified().await;
        let counts = self.0.counts.lock();
        let (writes, requests) = (counts.writes, counts.requests);
        let after = counts.begin.elapsed().as_secs();
        format!("hot loop: {writes} writes and {requests} requests after {after} s")
    }

    pub(crate) fn requests(&self) -> u64 {
        self.0.counts.lock().requests
    }

    pub(crate) fn writes(&self) -> u64 {
        self.0.counts.lock().writes
    }

    pub(crate) fn writes_done(&self) -> u64 {
        self.0.counts.lock().done
    }

    pub(crate) fn fingerprint(&self) -> u64 {
        self.0.counts.lock().fingerprint
    }

    pub(crate) fn last(&self) -> Vec<String> {
        self.0.counts.lock().last.clone()
    }
}
