//! Ferrovirt as a service of systemd.
//!
//! - [`unit`] renders the units, pure;
//! - [`install`] and [`uninstall`] write and remove them;
//! - [`systemd`] runs `systemctl`;
//! - [`notify`] reports to systemd that this process is up.
//!
//! **Invariants**: a file that this program did not write is never replaced or removed; installing and
//! restarting the service touches no guest.

mod install;
pub(crate) mod notify;
pub(crate) mod systemd;
mod uninstall;
mod unit;

pub(crate) use install::install;
pub(crate) use uninstall::uninstall;
pub(crate) use unit::LONGEST_SHUTDOWN;
