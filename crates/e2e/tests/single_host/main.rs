//! End-to-end tests on a single host. All share one host, except for those that kill it.

#![cfg(test)]

#[path = "../both/mod.rs"]
mod both;

mod backups;
mod bad_input;
mod causes;
mod chaos;
mod clones;
mod crashes;
mod database;
mod debian;
mod decentralized;
mod dedicated_cpus;
mod exports;
mod failpoints;
mod hostile_tenant;
mod hotplug;
mod imports;
mod memory_dump;
mod missing_requirements;
mod moves;
mod networks;
mod pulls;
mod reboot;
mod snapshots;
mod storage;
mod suspend;
mod taking_down;
mod templates;
mod transcripts;
mod uploads;
mod volume_moves;
mod web_console;

type TestNamespace = e2e::TestNamespace<e2e::Host>;

/// Creates a namespace for a test on the shared host.
async fn test_namespace() -> TestNamespace {
    TestNamespace::create().await
}
