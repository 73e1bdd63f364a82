//! The stories on the test cluster, which has to be up and have Ferrovirt in it.

#![cfg(test)]

#[path = "../both/mod.rs"]
mod both;

mod bad_input;
mod moving;
mod replicas;
mod rights;
mod rules;
mod services;
mod sharing;

type Story = stories::Story<stories::Cluster>;

/// Begins a story on the cluster.
async fn story() -> Story {
    Story::begin().await
}
