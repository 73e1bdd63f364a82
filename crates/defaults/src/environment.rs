//! Non-deterministic inputs of pure functions.

use std::fmt;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use uuid::Uuid;

/// The current time and a source of random identifiers, passed in by the caller.
#[derive(Clone, Copy)]
pub struct Environment<'a> {
    pub now: &'a Time,
    /// Returns a new random identifier at each call.
    pub new_uuid: &'a dyn Fn() -> Uuid,
}

impl fmt::Debug for Environment<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Environment")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}
