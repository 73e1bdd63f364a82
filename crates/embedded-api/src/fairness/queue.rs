//! Seats for the requests of each user, first come, first served.
//!
//! Invariants: a seat that is dropped goes to the next in its user's queue, also if that one has gone
//! away, unless more are taken than there are; a user without requests leaves no state behind. Knows nothing
//! of HTTP.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use parking_lot::Mutex;
use tokio::sync::oneshot;

/// The limits of each user.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// At once.
    pub(super) seats: usize,
    /// In the queue behind them.
    pub(super) waiting: usize,
    /// How long one waits.
    pub(super) patience: Duration,
}

/// The users with requests.
#[derive(Debug, Clone)]
pub(super) struct Queues(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    limits: Limits,
    users: Mutex<HashMap<String, User>>,
}

#[derive(Debug, Default)]
struct User {
    seated: usize,
    waiting: VecDeque<oneshot::Sender<Seat>>,
}

/// The right to be served, until it is dropped.
#[derive(Debug)]
pub(crate) struct Seat {
    queues: Queues,
    user: String,
}

impl Queues {
    pub(super) fn new(limits: Limits) -> Self {
        Self(Arc::new(Inner {
            limits,
            users: Mutex::default(),
        }))
    }

    /// Waits for a seat. None if the queue is full or does not advance in time.
    pub(super) async fn seat(&self, user: &str) -> Option<Seat> {
        let waiting = match self.enter(user) {
            Entrance::Seated => return Some(self.new_seat(user)),
            Entrance::Full => return None,
            Entrance::Waits(waiting) => waiting,
        };
        let seat = tokio::time::timeout(self.0.limits.patience, waiting).await;
        seat.ok()?.ok()
    }

    /// A seat at once, beyond the limit if all are taken: for a request that has waited for one before.
    pub(super) fn seat_at_once(&self, user: &str) -> Seat {
        let mut users = self.0.users.lock();
        let state = users.entry(user.to_owned()).or_default();
        state.seated = state.seated.saturating_add(1);
        self.new_seat(user)
    }

    fn enter(&self, user: &str) -> Entrance {
        let mut users = self.0.users.lock();
        let limits = self.0.limits;
        let state = users.entry(user.to_owned()).or_default();
        if state.seated < limits.seats {
            state.seated = state.seated.saturating_add(1);
            return Entrance::Seated;
        }
        state.waiting.retain(|one| !one.is_closed());
        if state.waiting.len() >= limits.waiting {
            return Entrance::Full;
        }
        let (next, waiting) = oneshot::channel();
        state.waiting.push_back(next);
        Entrance::Waits(waiting)
    }

    fn new_seat(&self, user: &str) -> Seat {
        Seat {
            queues: self.clone(),
            user: user.to_owned(),
        }
    }

    /// The next in the queue, to whom the seat goes. Without one, or beyond the limit, the seat is gone.
    fn leave(&self, user: &str) -> Option<oneshot::Sender<Seat>> {
        let mut users = self.0.users.lock();
        let state = users.get_mut(user)?;
        let is_spare = state.seated > self.0.limits.seats;
        let next = state.waiting.pop_front_if(|_| !is_spare);
        if next.is_none() {
            state.seated = state.seated.saturating_sub(1);
            if state.seated == 0 {
                users.remove(user);
            }
        }
        next
    }
}

impl Seat {
    pub(super) fn is_of(&self, queues: &Queues) -> bool {
        Arc::ptr_eq(&self.queues.0, &queues.0)
    }

    pub(super) fn user(&self) -> &str {
        &self.user
    }
}

enum Entrance {
    Seated,
    Waits(oneshot::Receiver<Seat>),
    Full,
}

impl Drop for Seat {
    fn drop(&mut self) {
        if let Some(next) = self.queues.leave(&self.user) {
            // A seat that comes back, or is never fetched, is dropped and passed on in turn.
            drop(next.send(self.queues.new_seat(&self.user)));
        }
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    fn queues(seats: usize, waiting: usize) -> Queues {
        Queues::new(Limits {
            seats,
            waiting,
            patience: Duration::from_secs(10),
        })
    }

    /// A seat that is free now.
    fn now(queues: &Queues, user: &str) -> Option<Seat> {
        queues.seat(user).now_or_never().flatten()
    }

    fn users(queues: &Queues) -> usize {
        queues.0.users.lock().len()
    }

    #[tokio::test(start_paused = true)]
    async fn users_have_seats_of_their_own() {
        let queues = queues(2, 1);
        let held = [now(&queues, "a"), now(&queues, "a")];
        assert!(held.iter().all(Option::is_some));
        assert!(now(&queues, "a").is_none());
        assert!(now(&queues, "b").is_some());
        drop(held);
        assert!(now(&queues, "a").is_some());
        assert_eq!(users(&queues), 0, "nothing is left behind");
    }

    #[tokio::test(start_paused = true)]
    async fn queue_is_served_in_order_and_bounded() {
        let queues = queues(1, 2);
        let first = now(&queues, "a").unwrap();
        let (mut second, mut third) = (Box::pin(queues.seat("a")), Box::pin(queues.seat("a")));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        let fourth = queues.seat("a").now_or_never();
        assert!(fourth.expect("it is refused at once").is_none());
        drop(first);
        assert!((&mut third).now_or_never().is_none());
        let second = second.await.unwrap();
        drop(second);
        drop(third.await.unwrap());
        assert_eq!(users(&queues), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn cancelled_requests_leave_the_queue() {
        let queues = queues(1, 1);
        let first = now(&queues, "a").unwrap();
        let mut gone = Box::pin(queues.seat("a"));
        assert!((&mut gone).now_or_never().is_none());
        drop(gone);
        let mut second = Box::pin(queues.seat("a"));
        assert!((&mut second).now_or_never().is_none(), "it took the place");
        drop(first);
        drop(second.await.unwrap());
        assert_eq!(users(&queues), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn seat_that_was_never_fetched_is_passed_on() {
        let queues = queues(1, 2);
        let first = now(&queues, "a").unwrap();
        let (mut second, mut third) = (Box::pin(queues.seat("a")), Box::pin(queues.seat("a")));
        assert!((&mut second).now_or_never().is_none());
        assert!((&mut third).now_or_never().is_none());
        drop(first);
        // It was sent to the second, which is cancelled before it looks.
        drop(second);
        assert!(third.await.is_some());
        assert_eq!(users(&queues), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_longer_than_the_patience() {
        let queues = queues(1, 5);
        let _held = now(&queues, "a").unwrap();
        let begin = tokio::time::Instant::now();
        assert!(queues.seat("a").await.is_none());
        assert_eq!(begin.elapsed(), Duration::from_secs(10));
    }

    #[tokio::test(start_paused = true)]
    async fn seat_beyond_the_limit_is_not_passed_on() {
        let queues = queues(1, 1);
        let first = now(&queues, "a").unwrap();
        let beyond = queues.seat_at_once("a");
        let mut waiting = Box::pin(queues.seat("a"));
        assert!((&mut waiting).now_or_never().is_none());
        drop(beyond);
        assert!((&mut waiting).now_or_never().is_none());
        drop(first);
        drop(waiting.await.unwrap());
        drop(queues.seat_at_once("a"));
        assert_eq!(users(&queues), 0);
    }
}
