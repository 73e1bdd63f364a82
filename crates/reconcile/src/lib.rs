//! The parts that all controllers share: a work queue with its workers, watches into small stores,
//! writes by server-side apply, retries per object, events, leases, time.
//!
//! **Invariants**: an object is never reconciled twice at once; a reconcile that fails or panics
//! is retried after a growing delay; a change of an object during its reconcile triggers another
//! one; all time is tokio's or the injected [`Clock`]'s, so that tests
//! may pause it.
//!
//! It must not know `KubeVirt`: kinds, fields and conditions belong to the controllers.

mod apply;
mod clock;
mod controller;
mod events;
mod fragment;
mod key;
mod leader;
mod metrics;
mod queue;
mod report;
mod store;
mod tracked;
mod view;
mod watch;

pub use self::metrics::METRICS;
pub use apply::{
    WriteError, apply, create, delete, delete_in_foreground, delete_named, delete_unchanged, merge,
    merge_status,
};
pub use clock::Clock;
pub use controller::{ReconcileError, Reconciler, Requeue, Retry, panic_events, run_controller};
pub use events::{EventType, Recorder, RecorderTask, recorder};
pub use fragment::Fragment;
pub use key::Key;
pub use leader::{Election, Leadership, lead};
pub use queue::{Trigger, Triggers};
pub use report::apply_reported;
pub use store::Store;
pub use tracked::Tracked;
pub use view::View;
pub use watch::{watch, watch_if_defined, watch_namespace};
