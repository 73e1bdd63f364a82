//! The seat of the request that a task serves.
//!
//! Invariant: a seat is in one place: here, in the response that took it, or back with its user.

use std::cell::RefCell;

use super::Seat;

tokio::task_local! {
    static CURRENT: RefCell<Option<Seat>>;
}

/// Runs the work of a request with its seat. Returns the seat unless it was taken.
pub(crate) async fn seat<T>(
    seat: Option<Seat>,
    work: impl Future<Output = T>,
) -> (T, Option<Seat>) {
    let seated = async {
        let done = work.await;
        (done, take())
    };
    CURRENT.scope(RefCell::new(seat), seated).await
}

/// Takes the seat of this request, for something that outlives its response. None for the system, and
/// outside of requests.
pub(crate) fn take() -> Option<Seat> {
    CURRENT.try_with(RefCell::take).ok().flatten()
}

/// Gives this request a seat.
pub(super) fn put(seat: Seat) {
    // Outside of requests nothing was taken, and the seat is given back.
    drop(CURRENT.try_with(|current| current.replace(Some(seat))));
}
