//! A value of which others are told when it changes, in the order in which they began to wait.
//!
//! The runtime has such a channel, but draws by lot whom to wake first; then the same seed would
//! not tell the same story twice.

use std::pin::pin;
use std::sync::Arc;

use parking_lot::Mutex;
use tokio::sync::Notify;

#[derive(Debug)]
pub(crate) struct Told<T>(Arc<Shared<T>>);

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

/// Clones have heard the same.
#[derive(Debug, Clone)]
pub(crate) struct Listener<T> {
    shared: Arc<Shared<T>>,
    heard: u64,
}

impl<T: Copy + PartialEq> Told<T> {
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

    /// Who has heard what there is now.
    pub(crate) fn listen(&self) -> Listener<T> {
        Listener {
            heard: self.0.value.lock().version,
            shared: Arc::clone(&self.0),
        }
    }
}

impl<T: Copy + PartialEq> Listener<T> {
    pub(crate) fn get(&self) -> T {
        self.shared.value.lock().value
    }

    /// As heard.
    pub(crate) fn hear(&mut self) -> T {
        let now = *self.shared.value.lock();
        self.heard = now.version;
        now.value
    }

    /// Waits until there is something that was not heard yet.
    pub(crate) async fn changed(&mut self) {
        loop {
            let mut told = pin!(self.shared.waiting.notified());
            // In the queue before looking, so that nothing is missed between.
            told.as_mut().enable();
            let version = self.shared.value.lock().version;
            if version != self.heard {
                self.heard = version;
                return;
            }
            told.await;
        }
    }

    pub(crate) async fn wait_until(&mut self, value: T) {
        while self.hear() != value {
            self.changed().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use tokio::task::JoinSet;

    use super::*;

    #[tokio::test]
    async fn those_who_wait_are_told_in_their_order() {
        let told = Told::new(1);
        let order = Arc::new(Mutex::new(Vec::new()));
        let mut tasks = JoinSet::new();
        for n in 0..50 {
            let (mut listener, order) = (told.listen(), Arc::clone(&order));
            tasks.spawn(async move {
                listener.wait_until(3).await;
                order.lock().push(n);
            });
        }
        tokio::task::yield_now().await;
        told.set(2);
        tokio::task::yield_now().await;
        assert!(order.lock().is_empty());
        told.set(3);
        tasks.join_all().await;
        assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
    }
}
