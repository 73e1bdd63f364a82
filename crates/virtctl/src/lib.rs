//! The command-line tool for operations on virtual machines that `kubectl` does not have.
//!
//! - [`cli`] is the command line, as data for clap;
//! - `connect` turns flags and kubeconfig into a client, `requests` limits its requests;
//! - `proxy` connects through a proxy;
//! - `subresource` calls the aggregated API, by HTTP or websocket;
//! - `create` makes manifests from flags;
//! - `objects` reads and changes objects of any kind;
//! - `files` writes output files, whole or not at all;
//! - `changes` waits until they may have changed, `away` has patience with a server that does not answer;
//! - `commands` has a module for each command;
//! - `terminal` is the state of the terminal, `signals` end the process;
//! - `table` aligns the columns of a table;
//! - `printer` is the only module that writes to the terminal, but for the shell of `guestfs`.
//!
//! **Invariants**: everything goes through the API server, but the data of `image-upload` and `vmexport`
//! (`https`); only commands for changes change objects;
//! data goes to standard output, messages to standard error.

mod away;
mod changes;
pub mod cli;
mod commands;
mod connect;
mod create;
mod failure;
mod files;
mod https;
mod key_values;
mod objects;
pub mod ports;
mod printer;
mod proxy;
mod random;
mod requests;
mod run;
mod signals;
#[cfg(test)]
mod streams_server;
mod subresource;
mod table;
mod terminal;

pub use run::main;
