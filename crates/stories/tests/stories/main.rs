//! The stories on a single host. They share one, except for those that kill it.

#![cfg(test)]

#[path = "../both/mod.rs"]
mod both;

mod bad_input;
mod crashes;
mod lacking;
mod nothing_notices;
mod places;
mod storage;
mod taking_down;

type Story = stories::Story<stories::Host>;

/// Begins a story on the shared host.
async fn story() -> Story {
    Story::begin().await
}
