//! The stories on the test cluster in which whole nodes go, or the installation is not as it should be.
//! They are told one after the other, and after all others.

#![cfg(test)]

mod bad_input;
mod nodes;

type Story = stories::Story<stories::Cluster>;
