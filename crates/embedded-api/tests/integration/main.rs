//! Tests of the API server through its router and through real clients. All are in one binary, which
//! links the server once.

mod access;
mod behaviour;
mod checks;
mod clients;
mod fairness;
mod fairness_across_servers;
mod garbage;
mod kinds;
mod limits;
mod metrics;
mod objects;
mod other_servers;
mod pod_security;
mod protobuf;
mod quotas;
mod services;
mod spans;
mod support;
mod upkeep;
