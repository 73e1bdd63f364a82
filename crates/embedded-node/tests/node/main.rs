//! Runs real pods as root with an API server in this process: start, failure, end, adoption,
//! removal.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    reason = "helpers of tests may panic as tests do"
)]

mod cpus;
mod devices;
mod disk;
mod environment;
mod failpoints;
mod kubelet;
mod networks;
mod panics;
mod pods;
mod policies;
mod probes;
mod reboot;
mod services;
mod snapshots;
mod storage;
mod streams;

use devices::register_null_device;
use environment::{Environment, NoNetwork, TIMEOUT, supervisor};
