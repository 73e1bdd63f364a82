//! Instance types, preferences and presets, as pure functions on typed objects.
//!
//! An instance type is authoritative: the template must not set the same fields ([`conflicts`]). A
//! preference fills in fields that the template leaves open. [`apply`] does both; the crate
//! `defaults` combines it with the default devices.
//!
//! - [`size`], [`prefer`]: the values that are applied, one rule each;
//! - [`topology`]: how vCPUs become sockets, cores and threads;
//! - [`requirements`]: the minimum that a preference requires of a VM;
//! - [`reference`](mod@reference): the object that a VM refers to, and the content of its revisions;
//! - [`infer`]: from a volume to the names on the labels of its source;
//! - [`presets`]: the older kind, merged into new VMIs.
//!
//! Invariants: a preference never changes a field that the template sets, except two that are named
//! in their rules; nothing here performs a lookup.

mod target;

pub mod reference;
pub mod topology;

pub mod conflicts;
pub mod prefer;
pub mod requirements;
pub mod size;

mod apply;

pub mod infer;
pub mod presets;

pub use apply::{apply, summaries};
pub use target::{Choice, TEMPLATE_PATH, Target};
