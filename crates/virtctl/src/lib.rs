//! The user's tool: what `kubectl` cannot do with virtual machines.
//!
//! - [`cli`] is the command line, as data for clap;
//! - `connect` turns flags and kubeconfig into a client;
//! - `subresource` asks the aggregated API, plainly or by websocket;
//! - `observe` reads all that `diagnosis` wants to know of a machine;
//! - `commands` has a module for each command;
//! - `printer` is the only place that writes to the user.
//!
//! **Invariants**: everything goes through the API server; nothing is changed without a command
//! that says so; data goes to standard output, words about it to standard error.

pub mod cli;
mod commands;
mod connect;
mod observe;
mod printer;
mod run;
mod subresource;

pub use observe::observe;
pub use run::main;
