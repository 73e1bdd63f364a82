//! Confined closures and futures.

use std::{
    any::Any,
    io,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::atomic::{AtomicU64, Ordering},
    task::{Context, Poll},
};

use crate::section::{self, Section};

static COUNT: AtomicU64 = AtomicU64::new(0);

/// The panics of this process that were confined.
pub fn count() -> u64 {
    COUNT.load(Ordering::Relaxed)
}

/// A confined section panicked. The log has the message, which may hold what others must not read.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("panicked at {}: report the message in the log", place.as_deref().unwrap_or("an unknown place"))]
pub struct Panicked {
    /// File, line and column. None without the hook.
    pub place: Option<String>,
}

impl Panicked {
    fn of(payload: Box<dyn Any + Send>) -> Self {
        // A payload is a text in practice; any other may panic when it is dropped.
        if !payload.is::<&str>() && !payload.is::<String>() {
            std::mem::forget(payload);
        }
        COUNT.fetch_add(1, Ordering::Relaxed);
        Self {
            place: section::take_place(),
        }
    }
}

/// Runs the closure; a panic ends only the closure.
pub fn catch<T>(work: impl FnOnce() -> T) -> Result<T, Panicked> {
    let section = Section::enter();
    let done = catch_unwind(AssertUnwindSafe(work));
    drop(section);
    done.map_err(Panicked::of)
}

/// As [`catch`], for work that may fail anyway, such as that of a thread for blocking calls.
pub fn catch_io<T>(work: impl FnOnce() -> io::Result<T>) -> io::Result<T> {
    catch(work).unwrap_or_else(|panicked| Err(io::Error::other(panicked)))
}

/// The future with panics of its polls and of its drop confined. Tasks that it starts are not.
pub fn confined<F: Future>(future: F) -> Confined<F> {
    Confined(Some(Box::pin(future)))
}

/// See [`confined`].
#[derive(Debug)]
#[must_use = "futures do nothing unless polled"]
pub struct Confined<F>(Option<Pin<Box<F>>>);

impl<F: Future> Future for Confined<F> {
    type Output = Result<F::Output, Panicked>;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let Some(future) = self.0.as_mut() else {
            // The future has ended, and must not be polled again.
            return Poll::Pending;
        };
        match catch(|| future.as_mut().poll(context)) {
            Ok(Poll::Pending) => Poll::Pending,
            Ok(Poll::Ready(output)) => {
                self.discard();
                Poll::Ready(Ok(output))
            }
            Err(panicked) => {
                self.discard();
                Poll::Ready(Err(panicked))
            }
        }
    }
}

impl<F> Confined<F> {
    /// Drops the future. A panic in that is in the log, and has nothing left to end.
    fn discard(&mut self) {
        if let Some(future) = self.0.take() {
            catch(|| drop(future)).unwrap_or_default();
        }
    }
}

impl<F> Drop for Confined<F> {
    fn drop(&mut self) {
        self.discard();
    }
}

#[cfg(test)]
mod tests {
    use futures::FutureExt as _;

    use super::*;

    struct Bomb;

    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("a destructor panics");
        }
    }

    async fn bug(number: u64) -> u64 {
        tokio::task::yield_now().await;
        assert!(number > 1, "a bug");
        number
    }

    #[test]
    fn panic_of_a_closure_is_an_error() {
        let before = count();
        assert_eq!(catch(|| 1), Ok(1));
        for kind in 0..3 {
            let panicked = catch(|| match kind {
                0 => panic!("fixed"),
                1 => panic!("built: {kind}"),
                _ => std::panic::panic_any(Bomb),
            });
            assert!(panicked.is_err(), "{kind}");
        }
        assert!(count() >= before + 3);
    }

    #[tokio::test]
    async fn panic_of_a_future_is_an_error_and_others_go_on() {
        let all = futures::future::join_all([2, 1, 3].map(|number| confined(bug(number)))).await;
        let all: Vec<_> = all.into_iter().map(Result::ok).collect();
        assert_eq!(all, [Some(2), None, Some(3)]);
    }

    #[test]
    fn panic_of_work_that_may_fail_is_a_failure() {
        assert_eq!(catch_io(|| Ok(1)).unwrap(), 1);
        let missing = catch_io(|| Err::<(), _>(io::ErrorKind::NotFound.into()));
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
        let bug = catch_io(|| -> io::Result<()> { panic!("a bug") });
        assert!(bug.unwrap_err().to_string().starts_with("panicked at "));
    }

    #[test]
    fn panic_while_a_future_is_dropped_is_confined() {
        let bomb = Bomb;
        let mut pending = confined(async move {
            let _bomb = bomb;
            std::future::pending::<()>().await;
        });
        assert!((&mut pending).now_or_never().is_none());
        let before = count();
        drop(pending);
        assert!(count() > before);
    }

    #[test]
    fn lock_of_a_section_that_panicked_is_free() {
        let lock = parking_lot::Mutex::new(1);
        let ended = catch(|| {
            let _held = lock.lock();
            panic!("while the lock is held");
        });
        assert!(ended.is_err());
        assert_eq!(*lock.try_lock().expect("the lock is free"), 1);
    }
}
