//! The connection of a controller process to the cluster, with faults.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apimachinery::{Reason, Status};
use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::cluster::{Connection, WatchFault};
use crate::random::Random;
use crate::record::Record;
use crate::watch::Watch;

/// A watch without faults.
const FOREVER: Duration = Duration::from_hours(24);

/// The faults of one request.
#[derive(Debug, Default)]
pub(crate) struct Fault {
    /// Delay of the request.
    pub(crate) before: Duration,
    /// Response without execution.
    pub(crate) refused: Option<Status>,
    /// Delay of the response.
    pub(crate) after: Duration,
    /// Executed, but the response is lost.
    pub(crate) is_lost: bool,
}

/// The connection of one controller process.
#[derive(Debug)]
pub(crate) struct FaultyConnection {
    random: Mutex<Random>,
    state: Watch<State>,
    /// Shared by all connections: off when the faults end.
    has_faults: Arc<AtomicBool>,
    record: Record,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Up,
    /// Nothing passes for now; pending messages arrive later.
    Stalled,
    /// The process is dead.
    Closed,
}

impl FaultyConnection {
    pub(crate) fn new(random: Random, has_faults: Arc<AtomicBool>, record: Record) -> Self {
        Self {
            random: Mutex::new(random),
            state: Watch::new(State::Up),
            has_faults,
            record,
        }
    }

    pub(crate) fn stall(&self) {
        self.change(State::Up, State::Stalled);
    }

    pub(crate) fn resume(&self) {
        self.change(State::Stalled, State::Up);
    }

    pub(crate) fn close(&self) {
        self.state.set(State::Closed);
    }

    fn change(&self, from: State, to: State) {
        if self.state.get() == from {
            self.state.set(to);
        }
    }
}

impl Connection for FaultyConnection {
    async fn enter(&self) {
        self.state.watcher().wait_until(State::Up).await;
    }

    fn fault(&self, method: &Method, path: &str) -> Fault {
        if !self.has_faults.load(Ordering::Relaxed) {
            return Fault::default();
        }
        let mut random = self.random.lock();
        let is_write = *method != Method::GET;
        let is_upkeep = path.contains("/leases/") || path.contains("/events");
        let mut fault = Fault::default();
        if random.chance(300) {
            fault.before = random.up_to(Duration::from_millis(400));
        }
        if random.chance(300) {
            fault.after = random.up_to(Duration::from_millis(400));
        }
        if is_upkeep {
            // Leases fail rarely: a leader that cannot hold its lease tests nothing else.
            fault.is_lost = random.chance(20);
            return fault;
        }
        fault.refused = match random.below(1000) {
            0..20 if is_write => Some(Status::new(Reason::Conflict, "another writer was faster")),
            20..40 => Some(Status::too_many_requests("too many requests", 1)),
            40..60 => Some(Status::internal("internal error")),
            _ => None,
        };
        fault.is_lost = random.chance(20);
        fault
    }

    fn watch(&self) -> WatchFault {
        if !self.has_faults.load(Ordering::Relaxed) {
            return WatchFault {
                lasts: FOREVER,
                lag: Duration::ZERO,
            };
        }
        let mut random = self.random.lock();
        let lasts = Duration::from_secs(5) + random.up_to(Duration::from_mins(3));
        let lag = if random.chance(100) {
            random.up_to(Duration::from_secs(8))
        } else {
            random.up_to(Duration::from_millis(300))
        };
        WatchFault { lasts, lag }
    }

    fn note(&self, method: &Method, path: &str, status: StatusCode) {
        self.record.note(method, path, status);
    }
}
