//! `credentials`: keys and passwords in the Secrets of a VM's access credentials.

mod access;
mod cli;
mod password;
mod secrets;
mod ssh_keys;

pub(crate) use cli::{Credentials, run};
