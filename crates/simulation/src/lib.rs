//! The controllers on virtual time, with faults: stories that a seed tells the same each time.
//!
//! The controllers are the real ones. Around them all is made up: the API server, nodes, people,
//! and what goes wrong. A story ends well when everything is as it was asked for, what is said of
//! it is true, nothing is left over, and nobody writes any more.
//!
//! **Invariant**: one thread, no time but tokio's paused clock, no randomness but the seed's, no
//! order that differs from run to run; so a story that failed fails again.

mod bench;
mod cluster;
mod faults;
mod guests;
mod judge;
mod nodes;
mod plane;
mod processes;
mod random;
mod story;
mod tally;
mod told;

mod user;

pub use bench::{Bench, Figures, measure, serve_controllers};
pub use story::{Ending, tell};
