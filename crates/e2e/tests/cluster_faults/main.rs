//! End-to-end tests on the test cluster that take down nodes or break the installation. They run one
//! at a time, after all others.

#![cfg(test)]

mod bad_input;
mod nodes;

type TestNamespace = e2e::TestNamespace<e2e::Cluster>;
