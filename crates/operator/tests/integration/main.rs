//! The operator on our own API server, with the rights of its account on a single host or a cluster.

#![expect(clippy::unwrap_used, clippy::panic, reason = "for tests only")]

mod importer;
mod installation;
mod instancetypes;
mod world;
