//! `run`: makes a VM with its disk and key, and waits until it can be used.
//!
//! [`image`] and [`manifest`] are pure; [`key`] reads and makes files; [`wait`] asks the guest.

mod command;
mod image;
mod key;
mod manifest;
mod wait;

pub(crate) use command::{Run, run_vm};
