//! End-to-end tests on the running test cluster with Ferrovirt installed.

#![cfg(test)]

#[path = "../both/mod.rs"]
mod both;

mod bad_input;
mod causes;
mod component_replicas;
mod draining;
mod images;
mod migration;
mod networks;
mod policies;
mod rights;
mod services;
mod shared_storage;
mod storage;

type TestNamespace = e2e::TestNamespace<e2e::Cluster>;

/// Creates a namespace for a test on the shared cluster.
async fn test_namespace() -> TestNamespace {
    TestNamespace::create().await
}
