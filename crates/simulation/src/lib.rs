//! Runs the controllers through randomised scenarios with faults, on virtual time.
//!
//! The controllers are the real ones. Everything around them is synthetic: the API server, nodes,
//! users and faults. A scenario passes when the actual state matches the desired one, every status
//! is true, nothing is left over, and no controller writes any more.
//!
//! **Invariant**: one thread, no time but tokio's paused clock, no randomness but the seed's, no
//! order that differs from run to run; so a scenario that failed fails again.

mod bench;
mod checks;
mod cluster;
mod connection;
mod control_plane;
mod features;
mod guests;
mod nodes;
mod processes;
mod random;
mod record;
mod scenario;
mod user;
mod watch;

pub use bench::{Bench, Figures, measure, serve_controllers};
pub use scenario::{Outcome, run};
