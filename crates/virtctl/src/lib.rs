//! The command-line tool for operations on virtual machines that `kubectl` does not have.
//!
//! - [`cli`] is the command line, as data for clap;
//! - `connect` turns flags and kubeconfig into a client;
//! - `subresource` calls the aggregated API, by HTTP or websocket;
//! - `observe` reads the objects that `diagnosis` needs;
//! - `commands` has a module for each command;
//! - `printer` is the only module that writes to the terminal.
//!
//! **Invariants**: everything goes through the API server; only commands for changes change objects;
//! data goes to standard output, messages to standard error.

pub mod cli;
mod commands;
mod connect;
mod observe;
mod printer;
mod run;
mod subresource;

pub use observe::{Target, observe};
pub use run::main;
