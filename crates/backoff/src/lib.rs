//! Delays between attempts that fail one after another, and how loudly to log the failures.
//!
//! Pure: it counts failures and computes durations; callers own the clock and the logging.
//! Jitter is derived from a hash, so the same failures give the same delays in every run.

mod delays;
mod failures;

pub use delays::Delays;
pub use failures::{Backoff, Failure, Failures, Severity};
