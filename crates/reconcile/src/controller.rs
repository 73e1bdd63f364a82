//! The workers of a controller.

use std::error::Error;
use std::sync::Arc;
use std::time::Duration;

use backoff::{Delays, Failures, Severity};
use error_chain::error_chain;
use kube::Resource;
use panics::Panicked;
use reasons::Reason;
use tokio::task::JoinSet;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tracing::Instrument as _;

use crate::queue::{Queue, Started, Trigger, Triggers};
use crate::{EventType, Key, Recorder, Store, metrics};

/// How long a running reconcile may take to end after the stop.
const STOP_GRACE: Duration = Duration::from_secs(5);
/// For failures that may pass quickly, such as a server being restarted.
const DELAYS: Delays = Delays::new(Duration::from_millis(200), Duration::from_mins(1));

/// One controller: brings one object at a time from its actual to its desired state.
pub trait Reconciler: Send + Sync + 'static {
    /// Lower-case name for logs.
    const NAME: &'static str;
    type Error: ReconcileError;

    /// Observes the object of that key, which may be gone, and acts. May be dropped at any await
    /// and called again.
    fn reconcile(&self, key: &Key) -> impl Future<Output = Result<Requeue, Self::Error>> + Send;

    /// The UID of the object of that key as last observed, for the span of a reconcile. `None` if there
    /// is no such object.
    fn uid_of(&self, key: &Key) -> Option<String>;
}

/// When to reconcile again after a success.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Requeue {
    /// When something changes.
    OnChange,
    /// After that time, or earlier when something changes.
    After(Duration),
}

/// When to reconcile again after a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Retry {
    /// Only when something changes.
    Never,
    /// Almost at once: the observed state was stale.
    Soon,
    /// After a time that grows with each failure.
    BackOff,
}

pub trait ReconcileError: Error + Send + Sync + 'static {
    /// A stable reason in CamelCase.
    fn reason(&self) -> Reason;
    fn retry(&self) -> Retry;

    /// Whether trying again may help without any change to the object.
    fn is_transient(&self) -> bool {
        self.retry() != Retry::Never
    }
}

/// A warning event for an object of the store whose reconcile panicked, for [`run_controller`].
pub fn panic_events<K>(recorder: Recorder, store: Store<K>) -> impl Fn(&Key, &Panicked)
where
    K: Resource<DynamicType = ()>,
{
    move |key, panicked| {
        if let Some(object) = store.get(key) {
            let note = format!("the reconcile {panicked}");
            recorder.publish(
                &*object,
                EventType::Warning,
                Reason::ReconcilePanicked,
                note,
            );
        }
    }
}

/// Runs a controller until stopped, at most `concurrency` objects at a time. Start it when the
/// stores it reads are ready. A reconcile that panics is repeated with back-off, and `on_panic` called.
pub async fn run_controller<R: Reconciler>(
    reconciler: Arc<R>,
    triggers: Triggers,
    concurrency: usize,
    on_panic: impl Fn(&Key, &Panicked),
    stop: CancellationToken,
) {
    let mut queue = Queue::default();
    let mut running = JoinSet::new();
    let mut failures = Failures::new(DELAYS);
    loop {
        while running.len() < concurrency
            && let Some(Started {
                key,
                trigger,
                waited,
            }) = queue.start_next(Instant::now())
        {
            metrics::QUEUE_WAIT_SECONDS.observe([R::NAME], waited);
            let run = Run {
                failures: failures.count(&key),
                key,
                trigger,
            };
            running.spawn(run.reconcile(Arc::clone(&reconciler)));
        }
        report::<R>(&queue, running.len(), failures.len());
        let next = queue.next_at().filter(|_| running.len() < concurrency);
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            () = triggers.added() => {
                let now = Instant::now();
                for (key, trigger) in triggers.take() {
                    queue.add(key, now, trigger);
                }
            }
            Some(ended) = running.join_next() => {
                // A reconcile confines its own panics, so joining fails only for aborted ones, of
                // which there are none before the stop.
                if let Ok((key, outcome)) = ended {
                    if let Outcome::Panicked(panicked) = &outcome {
                        on_panic(&key, panicked);
                    }
                    let again = again_in(&key, &outcome, &mut failures);
                    queue.finish(key, again);
                }
            }
            () = tokio::time::sleep_until(next.unwrap_or_else(Instant::now)), if next.is_some() => {}
        }
    }
    let ended = async { while running.join_next().await.is_some() {} };
    if tokio::time::timeout(STOP_GRACE, ended).await.is_err() {
        tracing::warn!(controller = R::NAME, "stop interrupted running reconciles");
    }
}

/// Publishes the state of the queue.
fn report<R: Reconciler>(queue: &Queue, running: usize, failing: usize) {
    let waited = queue.next_at().map(|at| at.elapsed());
    metrics::QUEUE_DEPTH.set([R::NAME], queue.len());
    metrics::QUEUE_LONGEST_WAIT.set([R::NAME], waited.unwrap_or_default());
    metrics::RUNNING.set([R::NAME], running);
    metrics::BACKOFFS.set([R::NAME], failing);
}

#[derive(Debug)]
enum Outcome {
    Done(Requeue),
    Failed(Retry),
    Panicked(Panicked),
}

impl Outcome {
    /// The value of the metric's label.
    fn result(&self) -> &'static str {
        match self {
            Self::Done(Requeue::OnChange) => "done",
            Self::Done(Requeue::After(_)) => "requeued",
            Self::Failed(Retry::Never) => "rejected",
            Self::Failed(Retry::Soon | Retry::BackOff) => "failed",
            Self::Panicked(_) => "panicked",
        }
    }
}

/// One reconcile of one object.
#[derive(Debug)]
struct Run {
    key: Key,
    trigger: Trigger,
    /// Consecutive failures before this run.
    failures: u32,
}

impl Run {
    async fn reconcile<R: Reconciler>(self, reconciler: Arc<R>) -> (Key, Outcome) {
        let span = tracing::info_span!(
            "reconcile",
            controller = R::NAME,
            namespace = self.key.namespace,
            object = self.key.name,
            uid = panics::catch(|| reconciler.uid_of(&self.key))
                .ok()
                .flatten(),
            trigger = self.trigger.name,
            triggers = self.trigger.count,
        );
        let started = Instant::now();
        let outcome = self.outcome(&*reconciler).instrument(span).await;
        metrics::RECONCILE_SECONDS.observe([R::NAME], started.elapsed());
        metrics::RECONCILES.increment([R::NAME, outcome.result()]);
        (self.key, outcome)
    }

    async fn outcome<R: Reconciler>(&self, reconciler: &R) -> Outcome {
        tracing::debug!("reconcile started");
        match panics::confined(reconciler.reconcile(&self.key)).await {
            Ok(Ok(requeue)) => {
                if Severity::has_warned(self.failures) {
                    tracing::info!(failures = self.failures, "reconcile succeeded again");
                }
                Outcome::Done(requeue)
            }
            Ok(Err(error)) => {
                metrics::FAILURES.increment([R::NAME, error.reason().as_str()]);
                self.report(&error);
                Outcome::Failed(error.retry())
            }
            Err(panicked) => {
                let reason = Reason::ReconcilePanicked;
                metrics::FAILURES.increment([R::NAME, reason.as_str()]);
                let failures = self.failures.saturating_add(1);
                tracing::error!(%reason, error = %panicked, failures, "reconcile failed");
                Outcome::Panicked(panicked)
            }
        }
    }

    /// Logs a failure: at debug level at first, as a warning when it repeats or is permanent.
    fn report(&self, error: &impl ReconcileError) {
        let failures = self.failures.saturating_add(1);
        let (reason, chain) = (error.reason(), error_chain(error));
        let severity = if error.is_transient() {
            Severity::of(failures)
        } else {
            Severity::Warn
        };
        match severity {
            Severity::Debug => {
                tracing::debug!(%reason, error = chain, failures, "reconcile failed");
            }
            Severity::Warn => tracing::warn!(%reason, error = chain, failures, "reconcile failed"),
        }
    }
}

/// When to reconcile the object again without a change, and the trigger to name then.
fn again_in(
    key: &Key,
    outcome: &Outcome,
    failures: &mut Failures<Key>,
) -> Option<(Duration, Trigger)> {
    match outcome {
        Outcome::Done(requeue) => {
            failures.succeeded(key);
            match requeue {
                Requeue::OnChange => None,
                Requeue::After(wait) => Some((*wait, Trigger::TIMER)),
            }
        }
        Outcome::Failed(Retry::Never) => {
            failures.succeeded(key);
            None
        }
        // The watch refreshes a stale view within moments; the growing wait only keeps a watch
        // that lags from causing a tight loop.
        Outcome::Failed(Retry::Soon) => {
            let delay = failures.failed(key.clone()).delay;
            Some((delay / 20, Trigger::RETRY))
        }
        Outcome::Failed(Retry::BackOff) | Outcome::Panicked(_) => {
            let delay = failures.failed(key.clone()).delay;
            Some((delay, Trigger::RETRY))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};

    use k8s_openapi::api::core::v1::Pod;
    use tokio::sync::Notify;

    use super::*;

    #[derive(Debug, thiserror::Error)]
    #[error("broken")]
    struct Broken;

    impl ReconcileError for Broken {
        fn reason(&self) -> Reason {
            Reason::FailedUpdate
        }

        fn retry(&self) -> Retry {
            Retry::BackOff
        }
    }

    /// Fails or panics for a number of calls, and counts the concurrent calls.
    struct Counting {
        calls: AtomicU32,
        concurrent: AtomicU32,
        most_concurrent: AtomicU32,
        fail_until: u32,
        done: Notify,
    }

    impl Counting {
        fn new(fail_until: u32) -> Arc<Self> {
            Arc::new(Self {
                calls: AtomicU32::new(0),
                concurrent: AtomicU32::new(0),
                most_concurrent: AtomicU32::new(0),
                fail_until,
                done: Notify::new(),
            })
        }
    }

    impl Reconciler for Counting {
        const NAME: &'static str = "counting";
        type Error = Broken;

        async fn reconcile(&self, _: &Key) -> Result<Requeue, Broken> {
            let running = self.concurrent.fetch_add(1, Ordering::SeqCst) + 1;
            self.most_concurrent.fetch_max(running, Ordering::SeqCst);
            tokio::time::sleep(Duration::from_millis(10)).await;
            self.concurrent.fetch_sub(1, Ordering::SeqCst);
            let calls = self.calls.fetch_add(1, Ordering::SeqCst) + 1;
            assert!(calls > self.fail_until / 2, "the first half panics");
            if calls <= self.fail_until {
                return Err(Broken);
            }
            self.done.notify_one();
            Ok(Requeue::OnChange)
        }

        fn uid_of(&self, _: &Key) -> Option<String> {
            None
        }
    }

    async fn run_until_done(reconciler: &Arc<Counting>, keys: u32, concurrency: usize) {
        let (triggers, stop) = (Triggers::new(), CancellationToken::new());
        for n in 0..keys {
            triggers.add(Key::new("default", format!("a{n}")), "test");
        }
        let run = run_controller(
            Arc::clone(reconciler),
            triggers,
            concurrency,
            |_, _| (),
            stop.clone(),
        );
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
        assert_eq!(reconciler.most_concurrent.load(Ordering::SeqCst), 3);
    }

    /// Panics for one object, always.
    struct OneBad(AtomicU32);

    impl Reconciler for OneBad {
        const NAME: &'static str = "one-bad";
        type Error = Broken;

        async fn reconcile(&self, key: &Key) -> Result<Requeue, Broken> {
            assert!(key.name != "bad", "no reconcile of this object ends well");
            self.0.fetch_add(1, Ordering::SeqCst);
            Ok(Requeue::After(Duration::from_secs(1)))
        }

        fn uid_of(&self, key: &Key) -> Option<String> {
            assert!(key.name != "bad", "not even this");
            None
        }
    }

    #[tokio::test(start_paused = true)]
    async fn object_that_panics_is_reported_and_tried_again_and_others_go_on() {
        let (recorder, mut events) = crate::events::tests::recorder(16);
        let store = Store::new();
        let mut pod = Pod::default();
        pod.metadata.name = Some("bad".to_owned());
        pod.metadata.namespace = Some("default".to_owned());
        store.put(pod);
        let (triggers, stop) = (Triggers::new(), CancellationToken::new());
        for name in ["bad", "good"] {
            triggers.add(Key::new("default", name), "test");
        }
        let reconciler = Arc::new(OneBad(AtomicU32::new(0)));
        let run = run_controller(
            Arc::clone(&reconciler),
            triggers,
            1,
            panic_events(recorder, store),
            stop.clone(),
        );
        // At 0, 0.2, 0.6, 1.4, 3.0 and 6.2 seconds, each up to a quarter later.
        let minute = async {
            tokio::time::sleep(Duration::from_secs(8)).await;
            stop.cancel();
        };
        tokio::join!(run, minute);
        let notes = std::iter::from_fn(|| events.try_next()).collect::<Vec<_>>();
        assert!((5..=6).contains(&notes.len()), "{notes:?}");
        for (reason, note) in notes {
            assert_eq!(reason, Reason::ReconcilePanicked);
            assert!(note.starts_with("the reconcile panicked at "), "{note}");
        }
        assert_eq!(reconciler.0.load(Ordering::SeqCst), 8);
    }
}
