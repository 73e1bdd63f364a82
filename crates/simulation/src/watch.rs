//! A watch channel that wakes its waiters in the order in which they began to wait.
//!
//! The watch channel of tokio wakes waiters in random order; then the same seed would not give the
//! same scenario twice.

use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Watch<T>(Arc<Shared<T>>);

#[derive(Debug)]
struct Shared<T> {
    value: Mutex<Versioned<T>>,
    waiting: Notify,
}

#[derive(Debug, Clone, Copy)]
struct Versioned<T> {
    value: T,
    version: u64,
}

/// Clones have observed the same version.
#[derive(Debug, Clone)]
pub(crate) struct Watcher<T> {
    shared: Arc<Shared<T>>,
    observed: u64,
}

impl<T: Copy + PartialEq> Watch<T> {
    pub(crate) fn new(value: T) -> Self {
        let value = Mutex::new(Versioned { value, version: 0 });
        let waiting = Notify::new();
        Self(Arc::new(Shared { value, waiting }))
    }

    pub(crate) fn get(&self) -> T {
        self.0.value.lock().value
    }

    pub(crate) fn set(&self, value: T) {
        let mut now = self.0.value.lock();
        if now.value == value {
            return;
        }
        now.value = value;
        now.version += 1;
        drop(now);
        self.0.waiting.notify_waiters();
    }

    /// A watcher that has observed the current value.
    pub(crate) fn watcher(&self) -> Watcher<T> {
        Watcher {
            observed: self.0.value.lock().version,
            shared: Arc::clone(&self.0),
        }
    }
}

impl<T: Copy + PartialEq> Watcher<T> {
    pub(crate) fn get(&self) -> T {
        self.shared.value.lock().value
    }

    /// Marks the current value as observed and returns it.
    pub(crate) fn observe(&mut self) -> T {
        let now = *self.shared.value.lock();
        self.observed = now.version;
        now.value
    }

    /// Waits for a value that was not observed yet.
    pub(crate) async fn changed(&mut self) {
        loop {
            let mut notified = pin!(self.shared.waiting.notified());
            // Queued before the check, so that no change is missed in between.
            notified.as_mut().enable();
            let version = self.shared.value.lock().version;
            if version != self.observed {
                self.observed = version;
                return;
            }
            notified.await;
        }
    }

    pub(crate) async fn wait_until(&mut self, value: T) {
        while self.observe() != value {
            self.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn waiters_are_woken_in_order_of_arrival() {
        let watch = Watch::new(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for n in 0..50 {
            let (mut listener, order) = (watch.watcher(), Arc::clone(&order));
            tasks.spawn(async move {
                listener.wait_until(3).await;
                order.lock().push(n);
            });
        }
        tokio::task::yield_now().await;
        watch.set(2);
        tokio::task::yield_now().await;
        assert!(order.lock().is_empty());
        watch.set(3);
        tasks.join_all().await;
        assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
    }
}
