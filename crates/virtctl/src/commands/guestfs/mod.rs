//! `guestfs`: a shell with the tools of libguestfs beside a claim.
//!
//! - `cli` is the command line;
//! - `pod` makes the pod: pure;
//! - `run` has the steps, and removes the pod at the end whatever happened;
//! - `shell` connects the terminal to the pod.

mod cli;
mod pod;
mod run;
mod shell;

pub(crate) use cli::Guestfs;
pub(crate) use run::guestfs;
