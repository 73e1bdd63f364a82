//! What users do, told as tests on a real host with real guests: the programs that users have, the
//! launcher image and the tiny guest that they get, and nothing in between replaced.
//!
//! - `programs` finds the built programs and runs them;
//! - `home` is what a story needs of where it is told, and there are two: `host` is a `ferrovirt up`
//!   of its own, with its own directory, port and pod network; `cluster` is the test cluster;
//! - `story` gives each test a namespace on a home that the tests of a process share;
//! - `manifests` are the VMs that the stories tell about;
//! - `waiting` watches objects until something is so;
//! - `console` is a guest's serial console, by websocket; `terminal` a program that is talked to;
//! - `processes` finds what runs in a pod, to kill it;
//! - `counting` is a guest that counts, and the look for gaps; `sightings` are guests as their processes
//!   show them;
//! - `registry` is a place that images are pulled from, which may be down;
//! - `nothing_notices` is the longest story, which is also a command; `random` is its dice;
//! - `times` notes how long each took; `traces` is what a host has left on the machine, `census`
//!   what it has there in full.
//!
//! Where a story is told is where its file lies: `tests/both` on either home, `tests/stories` on a
//! single host only, `tests/cluster` and, where whole nodes go, `tests/cluster_faults` on a cluster only. `docs/stories.md` is the list of all.
//!
//! **Invariants**: nothing sleeps for a fixed time, everything waits for a condition with a
//! deadline; a host is taken down when its last story is over, and a killed run's hosts are
//! recognised by a lock that nobody holds (`scripts/sweep.sh`). It must not know any other crate of ours: what it can
//! see of Ferrovirt is what users can see.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "all of this is for tests, which fail by panicking and explain on standard output"
)]

mod census;
mod cluster;
mod console;
mod counting;
mod gates;
mod home;
mod host;
mod manifests;
mod nothing_notices;
mod processes;
mod programs;
mod random;
mod registry;
mod sightings;
mod story;
mod terminal;
mod times;
mod traces;
mod waiting;

pub use census::{Census, at_rest, differences};
pub use cluster::{Cluster, CutOff, NAMESPACE};
pub use console::Console;
pub use counting::{counting, counts_on, rounds};
pub use gates::Gates;
pub use home::Home;
pub use host::Host;
pub use manifests::{Machine, claim, machine, replica_set};
pub use nothing_notices::{Ground, Ordeal, Report, Until, Victim, Word, nothing_notices};
pub use processes::{find_in_pod, kill, kill_in_pod, processes_of_pod, squeeze};
pub use programs::{Outcome, images, program, run};
pub use registry::Registry;
pub use sightings::Sightings;
pub use story::Story;
pub use terminal::Terminal;
pub use traces::traces;
pub use waiting::{DEADLINE, eventually, wait_for, wait_longer};
