//! A panic ends the confined section of code that it occurs in; any other panic ends the process.
//!
//! - [`confined`] confines a future: one request, one stream, one reconcile;
//! - [`catch`] does the same for a closure, such as the work of a thread, [`catch_io`] for one that may fail;
//! - [`install`] sets the hook that logs every panic and ends the process for those that are not confined;
//! - [`count`] is the number of panics that were confined.
//!
//! Invariants: a section is confined on the thread that runs it, and never in the tasks and threads that it starts,
//! since nobody might notice that those are gone; a second panic, while the first is cleaned up, ends the process.
//! What a confined section changes must be whole at each step, or the section must not be confined: `parking_lot`'s
//! locks are released by a panic and do not fail later users.

mod confined;
mod hook;
mod section;

pub use confined::{Confined, Panicked, catch, catch_io, confined, count};
pub use hook::install;
