//! `ssh` and `scp`: the SSH client of this computer, through a port of the guest.
//!
//! Only the command line of the client is made here; it calls this program as its `ProxyCommand`.

mod arguments;
mod cli;
mod goal;
mod location;
mod run;

pub(crate) use cli::{Scp, Ssh};
pub(crate) use run::{scp, ssh};
