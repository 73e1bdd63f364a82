//! The work queue and its workers.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::error::Error;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt as _;
use parking_lot::Mutex;
use reasons::Reason;
use tokio::sync::Notify;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::Key;
use crate::chain::error_chain;
use crate::failures::{Backoff, Failures};

/// How long a pass may still run after the stop was asked for.
const STOP_GRACE: Duration = Duration::from_secs(5);

/// One controller: turns the state of one object into what it should be, a step at a time.
pub trait Reconciler: Send + Sync + 'static {
    /// Lower-case name for logs.
    const NAME: &'static str;
    type Error: ReconcileError;

    /// Looks at the object of that key, which may be gone, and acts. May be cut off at any await
    /// and called again.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Requeue, Self::Error>> + Send;
}

/// When to look again after a pass that went well.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// When something changes.
    OnChange,
    /// After that time, or earlier when something changes.
    After(Duration),
}

/// What a failure means for the next try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Only when something changes.
    Never,
    /// At once or nearly so: what was looked at had become stale.
    Soon,
    /// After a time that grows with each failure.
    BackOff,
}

pub trait ReconcileError: Error + Send + Sync + 'static {
    /// A stable CamelCase word.
    fn reason(&self) -> Reason;
    fn retry(&self) -> Retry;
}

/// Says which objects need a look. Bounded by the number of objects: a key counts once.
#[derive(Debug, Clone, Default)]
pub struct Triggers {
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    /// In order, so that the same history gives the same passes.
    keys: Mutex<BTreeSet<Key>>,
    added: Notify,
}

impl Triggers {
    pub fn new() -> Self {
        Self::default()
    }

    pub fn add(&self, key: Key) {
        if self.shared.keys.lock().insert(key) {
            self.shared.added.notify_one();
        }
    }

    fn take(&self) -> BTreeSet<Key> {
        std::mem::take(&mut self.shared.keys.lock())
    }
}

/// Runs a controller until stopped, at most `concurrency` objects at a time. Start it when the
/// stores it reads are ready.
pub async fn run_controller<R: Reconciler>(
    reconciler: Arc<R>,
    triggers: Triggers,
    concurrency: usize,
    stop: CancellationToken,
) {
    let mut queue = Queue::default();
    let mut passes = JoinSet::new();
    let mut failures = Failures::new(Backoff::RECONCILE);
    loop {
        while passes.len() < concurrency
            && let Some(key) = queue.start_next(Instant::now())
        {
            passes.spawn(pass(Arc::clone(&reconciler), key));
        }
        let due = queue.next_due().filter(|_| passes.len() < concurrency);
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = triggers.shared.added.notified() => {
                let now = Instant::now();
                for key in triggers.take() {
                    queue.add(key, now);
                }
            }
            Some(ended) = passes.join_next() => {
                // A pass catches its own panics, so joining fails only for aborted ones, of
                // which there are none before the stop.
                if let Ok((key, outcome)) = ended {
                    let again = settle(&key, outcome, &mut failures);
                    queue.finish(key, again);
                }
            }
            () = tokio::time::sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
        }
    }
    let ended = async { while passes.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
        tracing::warn!(controller = R::NAME, "reconciles were cut off by the stop");
    }
}

#[derive(Debug, Clone, Copy)]
enum Outcome {
    Done(Requeue),
    Failed(Retry),
}

async fn pass<R: Reconciler>(reconciler: Arc<R>, key: Key) -> (Key, Outcome) {
    let span = tracing::info_span!(
        "reconcile",
        controller = R::NAME,
        namespace = key.namespace,
        name = key.name
    );
    let outcome = async {
        match AssertUnwindSafe(reconciler.reconcile(&key))
            .catch_unwind()
            .await
        {
            Ok(Ok(requeue)) => Outcome::Done(requeue),
            Ok(Err(error)) => {
                report(&error);
                Outcome::Failed(error.retry())
            }
            Err(_) => {
                tracing::error!("reconcile panicked");
                Outcome::Failed(Retry::BackOff)
            }
        }
    }
    .instrument(span)
    .await;
    (key, outcome)
}

fn report(error: &impl ReconcileError) {
    let chain = error_chain(error);
    match error.retry() {
        Retry::Soon => tracing::debug!(reason = %error.reason(), error = chain, "looking again"),
        Retry::Never | Retry::BackOff => {
            tracing::warn!(reason = %error.reason(), error = chain, "reconcile failed");
        }
    }
}

fn settle(key: &Key, outcome: Outcome, failures: &mut Failures<Key>) -> Option<Duration> {
    match outcome {
        Outcome::Done(requeue) => {
            failures.succeeded(key);
            match requeue {
                Requeue::OnChange => None,
                Requeue::After(wait) => Some(wait),
            }
        }
        Outcome::Failed(Retry::Never) => {
            failures.succeeded(key);
            None
        }
        // A stale view is cured by the watch within moments; the growing wait only keeps a
        // watch that lags from being asked in a tight loop.
        Outcome::Failed(Retry::Soon) => Some(failures.failed(key.clone()) / 20),
        Outcome::Failed(Retry::BackOff) => Some(failures.failed(key.clone())),
    }
}

/// Which object is due when, and which are being worked on. A key waits at most once.
#[derive(Debug, Default)]
struct Queue {
    /// In order of time; the number keeps equal times apart and in order.
    due: BTreeMap<(Instant, u64), Key>,
    waiting: HashMap<Key, (Instant, u64)>,
    running: HashSet<Key>,
    /// Triggered while running.
    again: HashSet<Key>,
    number: u64,
}

impl Queue {
    fn add(&mut self, key: Key, at: Instant) {
        if self.running.contains(&key) {
            self.again.insert(key);
            return;
        }
        if let Some(slot) = self.waiting.get(&key).copied() {
            if slot.0 <= at {
                return;
            }
            self.due.remove(&slot);
        }
        self.number += 1;
        let slot = (at, self.number);
        self.due.insert(slot, key.clone());
        self.waiting.insert(key, slot);
    }

    fn next_due(&self) -> Option<Instant> {
        self.due.keys().next().map(|(at, _)| *at)
    }

    fn start_next(&mut self, now: Instant) -> Option<Key> {
        if self.next_due()? > now {
            return None;
        }
        let (_, key) = self.due.pop_first()?;
        self.waiting.remove(&key);
        self.running.insert(key.clone());
        Some(key)
    }

    fn finish(&mut self, key: Key, again_in: Option<Duration>) {
        self.running.remove(&key);
        let now = Instant::now();
        if self.again.remove(&key) {
            self.add(key, now);
        } else if let Some(wait) = again_in {
            self.add(key, now + wait);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("does not work")]
    struct Broken;

    impl ReconcileError for Broken {
        fn reason(&self) -> Reason {
            Reason::FailedUpdate
        }

        fn retry(&self) -> Retry {
            Retry::BackOff
        }
    }

    /// Fails or panics until it was called often enough, and notes how many ran at once.
    struct Counting {
        calls: AtomicU32,
        at_once: AtomicU32,
        most_at_once: AtomicU32,
        fail_until: u32,
        done: Notify,
    }

    impl Counting {
        fn new(fail_until: u32) -> Arc<Self> {
            Arc::new(Self {
                calls: AtomicU32::new(0),
                at_once: AtomicU32::new(0),
                most_at_once: AtomicU32::new(0),
                fail_until,
                done: Notify::new(),
            })
        }
    }

    impl Reconciler for Counting {
        const NAME: &'static str = "counting";
        type Error = Broken;

        async fn reconcile(&self, _: &Key) -> Result<Requeue, Broken> {
            let running = self.at_once.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_at_once.fetch_max(running, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.at_once.fetch_sub(1, Ordering::SeqCst);
            let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(calls > self.fail_until / 2, "the first half panics");
            if calls <= self.fail_until {
                return Err(Broken);
            }
            self.done.notify_one();
            Ok(Requeue::OnChange)
        }
    }

    async fn run_until_done(reconciler: &Arc<Counting>, keys: u32, concurrency: usize) {
        let (triggers, stop) = (Triggers::new(), CancellationToken::new());
        for n in 0..keys {
            triggers.add(Key::new("default", format!("a{n}")));
        }
        let run = run_controller(Arc::clone(reconciler), triggers, concurrency, stop.clone());
        let finish = async {
            while reconciler.calls.load(Ordering::SeqCst) < reconciler.fail_until + keys {
                reconciler.done.notified().await;
            }
            stop.cancel();
        };
        let both = async { tokio::join!(run, finish) };
        tokio::time::timeout(Duration::from_mins(10), both)
            .await
            .unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn failing_and_panicking_reconciles_are_tried_again() {
        let reconciler = Counting::new(6);
        let start = Instant::now();
        run_until_done(&reconciler, 1, 4).await;
        assert_eq!(reconciler.calls.load(Ordering::SeqCst), 7);
        // 0.2 + 0.4 + … + 6.4 seconds, plus at most a quarter.
        let waited = start.elapsed();
        assert!(
            waited > Duration::from_secs(12) && waited < Duration::from_secs(17),
            "{waited:?}"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn concurrency_is_bounded() {
        let reconciler = Counting::new(0);
        run_until_done(&reconciler, 20, 3).await;
        assert_eq!(reconciler.most_at_once.load(Ordering::SeqCst), 3);
    }

    #[test]
    fn key_triggered_while_running_runs_once_more_and_never_beside_itself() {
        let mut queue = Queue::default();
        let (key, now) = (Key::new("n", "a"), Instant::now());
        queue.add(key.clone(), now);
        queue.add(key.clone(), now);
        assert_eq!(queue.start_next(now), Some(key.clone()));
        assert_eq!(queue.start_next(now), None);
        queue.add(key.clone(), now);
        assert_eq!(queue.start_next(now), None);
        queue.finish(key.clone(), Some(Duration::from_mins(1)));
        assert_eq!(queue.start_next(Instant::now()), Some(key.clone()));
        queue.finish(key.clone(), None);
        assert_eq!(queue.next_due(), None);
    }

    #[test]
    fn earlier_time_wins() {
        let mut queue = Queue::default();
        let (key, now) = (Key::new("n", "a"), Instant::now());
        queue.add(key.clone(), now + Duration::from_secs(9));
        queue.add(key.clone(), now + Duration::from_secs(3));
        queue.add(key, now + Duration::from_secs(5));
        assert_eq!(queue.next_due(), Some(now + Duration::from_secs(3)));
        assert_eq!(queue.due.len(), 1);
    }
}
