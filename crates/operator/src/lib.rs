//! The installation as an object of the API: `KubeVirt`, as `KubeVirt`'s operator keeps it.
//!
//! - [`Settings`], [`run`]: wiring; one of several processes is active, elected by a lease;
//! - `components`: which components run, on a cluster or a single host;
//! - `installation`: the controller of the `KubeVirt` object, which it creates if it is missing, and its status;
//! - `release`: what is installed: versions, images, and their identifier;
//! - `importer`: on a cluster without CDI, the definitions of data volumes and the API for uploads;
//! - `instancetypes`: the common instance types and preferences, and the controller that keeps them;
//! - `view`: the parts of objects that are read here.
//!
//! **Invariants**: the spec of the `KubeVirt` object belongs to the administrator and is never written after the
//! creation; only instance types and preferences with our label are changed or deleted; definitions of data volumes are
//! never deleted.
//!
//! It must not know how components run guests. It does not install the components, and changes nothing of theirs but the
//! network of virt-handler's pods.

mod components;
mod importer;
mod installation;
mod instancetypes;
mod release;
mod run;
mod view;

pub use components::Environment;
pub use run::{Settings, run};

/// The field manager of all writes.
pub const MANAGER: &str = "virt-operator";
