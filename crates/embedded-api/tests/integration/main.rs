//! Tests of the API server through its router and through real clients. All are in one binary, which
//! links the server once.

mod access;
mod clients;
mod kinds;
mod metrics;
mod objects;
mod other_servers;
mod quotas;
mod spans;
mod support;
mod upkeep;
