//! End-to-end tests with real guests: the built programs, the launcher image and the tiny guest that
//! users get, with nothing between them replaced.
//!
//! - `programs` finds the built programs and runs them;
//! - `environment` is where a test runs: `host` is a `ferrovirt up` with its own directory, port and
//!   pod network; `cluster` is the test cluster;
//! - `test_namespace` gives each test a namespace in an environment that the tests of a process share;
//! - `manifests` builds the VMs of the tests;
//! - `explained` checks the answers of `virtctl why`;
//! - `transcripts` compares what `virtctl` prints with files;
//! - `waiting` watches objects until a condition holds;
//! - `console` is a guest's serial console over a websocket; `terminal` drives a program through pipes;
//! - `processes` finds processes of a pod, to kill them;
//! - `counting` is a guest that counts, and the check for gaps; `serial` checks that for a guest that moves
//!   from pod to pod; `guest_processes` observes guests by their QEMU processes;
//! - `feature_gates` switches gates for one test; `registry` is an image registry that can be down;
//! - `chaos` kills everything around counting guests, also as a command; `random` is its generator;
//! - `inventory` lists what Ferrovirt has on this host, for leak checks; `leftovers` does it for a host
//!   that was taken down; `times` records durations.
//!
//! A test's directory decides where it runs: `tests/both` in either environment, `tests/single_host`
//! on a single host, `tests/cluster` on a cluster, and `tests/cluster_faults` on a cluster whose nodes
//! it takes down. `docs/e2e-tests.md` lists all tests.
//!
//! **Invariants**: nothing sleeps for a fixed time; every wait has a condition and a deadline. A host
//! is taken down after its last test, and hosts of killed runs are recognised by their released lock
//! (`scripts/sweep.sh`). This crate uses no other crate of the workspace (its tests use
//! `browser`): it sees what users see.

#![expect(
    clippy::panic,
    clippy::print_stdout,
    reason = "all of this is for tests, which fail by panicking and explain on standard output"
)]

mod attempts;
mod chaos;
mod cluster;
mod console;
mod counting;
mod environment;
mod explained;
mod feature_gates;
mod guest_processes;
mod host;
mod inventory;
mod leftovers;
mod manifests;
mod processes;
mod programs;
mod random;
mod registry;
mod serial;
mod terminal;
mod test_namespace;
mod times;
mod transcripts;
mod waiting;

pub use attempts::{Attempt, FORBIDDEN, Intruder, attempt};
pub use chaos::{ChaosEnvironment, ChaosRun, Liveness, Report, Target, Until, run_chaos};
pub use cluster::{Cluster, Disconnected, NAMESPACE};
pub use console::Console;
pub use counting::{keeps_counting, rounds, start_counting};
pub use environment::Environment;
pub use explained::{Answer, answer, later_answer};
pub use feature_gates::FeatureGates;
pub use guest_processes::GuestProcesses;
pub use host::Host;
pub use inventory::{Inventory, differences, stable_inventory};
pub use leftovers::leftovers;
pub use manifests::{VmManifest, claim, pool, replica_set, tiny_vm};
pub use processes::{
    find_in_pod, kill, kill_if_alive, kill_in_pod, limit_memory, processes_of_pod, suspend_in_pod,
};
pub use programs::{Outcome, images, program, run};
pub use registry::Registry;
pub use serial::{Serial, reading};
pub use terminal::Terminal;
pub use test_namespace::TestNamespace;
pub use transcripts::Transcripts;
pub use waiting::{DEADLINE, eventually, wait_for, wait_for_within};
