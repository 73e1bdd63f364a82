//! libvirt's wire protocol, for one client on one thread.
//!
//! [`attach`] takes a connected unix socket and returns three things: a [`Connection`] that makes
//! calls, a [`Driver`] whose `run` must be polled by a task of the caller, and the server's
//! [`Events`]. Several calls may be in flight; replies are matched by serial. Nothing here spawns
//! tasks or reconnects: when the socket ends, every call in flight fails with [`Error::Closed`], and
//! a new [`attach`] starts without any state (event subscriptions are gone too).
//!
//! **Invariants**: every length, count and string read from the wire has a bound that is checked
//! before memory is allocated for it; no decoder panics on any input; a full event queue ends the
//! connection instead of dropping an event, so that the owner queries the state again.
//!
//! What it must not know: Kubernetes, domain XML, and how a caller handles errors.

mod backup;
mod calls;
mod connection;
mod domain;
mod dump;
mod error;
mod event;
mod frame;
mod migrate;
pub mod procedure;
mod save;
mod socket;
mod stream;
mod xdr;

#[cfg(test)]
mod tests;

pub use backup::{DiskJob, JobPhase};
pub use calls::{DomainCapabilitiesQuery, Screenshot, StartMode};
pub use connection::{Connection, Driver, attach};
pub use domain::{Domain, DomainState, DomainUuid, PausedReason, RunningReason, ShutoffReason};
pub use error::{Error, ErrorCode, ProtocolError, RemoteError};
pub use event::{AgentState, Event, EventKind, Events, Lifecycle};
pub use frame::MAX_FRAME;
pub use migrate::{
    Compression, Cookie, Job, Migration, MigrationFlags, MigrationParameters, Outcome, Parallel,
};
pub use save::SAVED_MAGIC;
use stream::Stream;

/// Runs every decoder of this crate over `bytes`, for fuzzing. Any result is fine; a panic or an
/// unbounded allocation is a bug.
pub fn fuzz_decoders(bytes: &[u8]) {
    let frame = frame::Frame::parse(bytes).ok();
    let body = frame.as_ref().map_or(bytes, |frame| &frame.body);
    let decoded = (
        RemoteError::decode(body).is_ok(),
        procedure::ALL
            .iter()
            .filter(|number| matches!(event::decode(**number, body), Ok(Some(_))))
            .count(),
        calls::decode_auth_types(body).is_ok(),
        calls::decode_memory_stats(body).is_ok(),
        calls::decode_messages(body).is_ok(),
        calls::decode_text(body).is_ok(),
        calls::decode_optional_text(body).is_ok(),
        Job::decode(body).is_ok(),
        (
            dump::decode_has_job(body).is_ok(),
            DiskJob::decode(body).is_ok(),
        ),
        migrate::decode_begun(body).is_ok(),
        migrate::decode_prepared(body).is_ok(),
        migrate::decode_finished(body).is_ok(),
    );
    tracing::trace!(?decoded, "decoded");
}
