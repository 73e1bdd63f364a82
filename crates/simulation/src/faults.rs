//! What goes wrong between a controller and the cluster.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use apimachinery::{Reason, Status};
use http::{Method, StatusCode};
use parking_lot::Mutex;

use crate::cluster::Door;
use crate::random::Random;
use crate::tally::Tally;
use crate::told::Told;

/// A watch that nothing cuts off.
const FOR_EVER: Duration = Duration::from_hours(24);

/// What becomes of one request.
#[derive(Debug, Default)]
pub(crate) struct Fate {
    /// On the way there.
    pub(crate) before: Duration,
    /// In place of being carried out.
    pub(crate) refused: Option<Status>,
    /// On the way back.
    pub(crate) after: Duration,
    /// Carried out, but nobody hears of it.
    pub(crate) is_lost: bool,
}

/// The door of one controller process.
#[derive(Debug)]
pub(crate) struct Line {
    random: Mutex<Random>,
    state: Told<State>,
    /// Shared by all lines: off when the cluster is to be well.
    is_bad: Arc<AtomicBool>,
    tally: Tally,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    Open,
    /// Nothing passes for now; what was under way arrives later.
    Frozen,
    /// The process is dead.
    Cut,
}

impl Line {
    pub(crate) fn new(random: Random, is_bad: Arc<AtomicBool>, tally: Tally) -> Self {
        Self {
            random: Mutex::new(random),
            state: Told::new(State::Open),
            is_bad,
            tally,
        }
    }

    pub(crate) fn freeze(&self) {
        self.change(State::Open, State::Frozen);
    }

    pub(crate) fn thaw(&self) {
        self.change(State::Frozen, State::Open);
    }

    pub(crate) fn cut(&self) {
        self.state.set(State::Cut);
    }

    fn change(&self, from: State, to: State) {
        if self.state.get() == from {
            self.state.set(to);
        }
    }
}

impl Door for Line {
    async fn enter(&self) {
        self.state.listen().wait_until(State::Open).await;
    }

    fn fate(&self, method: &Method, path: &str) -> Fate {
        if !self.is_bad.load(Ordering::Relaxed) {
            return Fate::default();
        }
        let mut random = self.random.lock();
        let is_write = *method != Method::GET;
        let is_upkeep = path.contains("/leases/") || path.contains("/events");
        let mut fate = Fate::default();
        if random.chance(300) {
            fate.before = random.up_to(Duration::from_millis(400));
        }
        if random.chance(300) {
            fate.after = random.up_to(Duration::from_millis(400));
        }
        if is_upkeep {
            // A leader that cannot hold its lease is a story of its own; not all the time.
            fate.is_lost = random.chance(20);
            return fate;
        }
        fate.refused = match random.below(1000) {
            0..20 if is_write => Some(Status::new(Reason::Conflict, "somebody was faster")),
            20..40 => Some(Status::too_many_requests("too many requests", 1)),
            40..60 => Some(Status::internal("the server is out of order")),
            _ => None,
        };
        fate.is_lost = random.chance(20);
        fate
    }

    fn watch(&self) -> (Duration, Duration) {
        if !self.is_bad.load(Ordering::Relaxed) {
            return (FOR_EVER, Duration::ZERO);
        }
        let mut random = self.random.lock();
        let held = Duration::from_secs(5) + random.up_to(Duration::from_mins(3));
        let lag = if random.chance(100) {
            random.up_to(Duration::from_secs(8))
        } else {
            random.up_to(Duration::from_millis(300))
        };
        (held, lag)
    }

    fn note(&self, method: &Method, path: &str, status: StatusCode) {
        self.tally.note(method, path, status);
    }
}
