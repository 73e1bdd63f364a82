//! What users do, told as tests on a real host with real guests: the programs that users have, the
//! launcher image and the tiny guest that they get, and nothing in between replaced.
//!
//! - `programs` finds the built programs and runs them;
//! - `host` is a `ferrovirt up` of its own, with its own directory, port and pod network;
//! - `story` gives each test a namespace on a host that the tests of a process share;
//! - `manifests` are the VMs that the stories tell about;
//! - `waiting` watches objects until something is so;
//! - `console` is a guest's serial console, by websocket; `terminal` a program that is talked to;
//! - `processes` finds what runs in a pod, to kill it;
//! - `traces` is what a host has left on the machine.
//!
//! **Invariants**: nothing sleeps, everything waits for a condition with a deadline; a host is taken
//! down when its last story is over, and a killed run's hosts are recognised by a lock that nobody
//! holds (`scripts/sweep.sh`). It must not know any other crate of ours: what it can
//! see of Ferrovirt is what users can see.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "all of this is for tests, which fail by panicking and explain on standard output"
)]

mod console;
mod host;
mod manifests;
mod processes;
mod programs;
mod story;
mod terminal;
mod traces;
mod waiting;

pub use console::Console;
pub use host::Host;
pub use manifests::{Machine, machine};
pub use processes::{kill, kill_in_pod, processes_of_pod};
pub use programs::{Outcome, images, program, run};
pub use story::{Story, story};
pub use terminal::Terminal;
pub use traces::traces;
pub use waiting::{DEADLINE, eventually, wait_for};
