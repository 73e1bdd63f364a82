//! What our reconcilers share: a work queue with its workers, watches into small stores, writes by
//! server-side apply, back-off per object, events, leases, time.
//!
//! **Invariants**: an object is never reconciled twice at once; a reconcile that fails or panics
//! is tried again, later each time; whatever happens to an object while it is being reconciled
//! makes it reconciled once more; all time is tokio's or the injected [`Clock`]'s, so that tests
//! may pause it.
//!
//! It must not know `KubeVirt`: kinds, fields and conditions are the controllers' business.

mod apply;
mod chain;
mod clock;
mod controller;
mod events;
mod failures;
mod key;
mod leader;
mod store;
mod tracked;
mod watch;

pub use apply::{Fragment, WriteError, apply, create, delete, delete_as_seen, delete_named, merge};
pub use chain::error_chain;
pub use clock::Clock;
pub use controller::{ReconcileError, Reconciler, Requeue, Retry, Triggers, run_controller};
pub use events::{EventType, Recorder, RecorderTask, recorder};
pub use failures::{Backoff, Failures};
pub use key::Key;
pub use leader::{Election, lead};
pub use store::Store;
pub use tracked::Tracked;
pub use watch::{watch, watch_if_defined};
