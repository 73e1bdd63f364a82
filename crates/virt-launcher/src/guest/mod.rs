//! The one task that owns the guest.
//!
//! The handler's requests, libvirt's events, timers and the request to stop all arrive here and
//! are handled one at a time. An event only triggers a query: libvirt's response is
//! authoritative, and every new connection starts with that query. libvirtd may die at any time; the guest keeps
//! running, and a request that was interrupted is repeated on the next connection.
//!
//! **Invariant**: the domain is defined before it is started, so that libvirt still knows the
//! reason of a stop afterwards. A guest is started paused and resumed in a second step, and each
//! step is recorded in a file before it is taken: after any interruption the launcher knows
//! whether the guest ever ran.

mod task;

mod interfaces;
mod link;
mod links;
mod observe;
mod requests;
mod screenshot;
mod start;

mod migration;

mod agent_link;
mod backup_chain;
mod backup_checksum;
mod backup_files;
mod backup_run;
mod backup_xml;
mod backups;
mod block_jobs;
mod checkpoints;
mod content;
mod device_servers;
mod dhcp_servers;
mod disks;
mod domain_xml;
mod dumps;
mod ending;
mod faults;
mod file_servers;
mod hooks;
mod increment;
mod io_retry;
mod leftovers;
mod metrics_server;
mod offer;
mod passt_servers;
mod qmp;
mod record;
mod refusal;
mod replies;
mod saved_state;
mod separate;
mod shutdown;
mod size;
mod status;

pub(crate) use self::record::{Record, RecordStore};
pub(crate) use self::status::Phase;
pub(crate) use self::task::{Command, Guest, Parts};
