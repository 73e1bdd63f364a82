//! What the API fills in. Each function is one rule and never changes a value that is there.

pub mod controller;
mod devices;
mod features;
pub(crate) mod growth;
mod machine;
pub mod network;
pub mod source;
pub mod vm;
pub mod vmi;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use uuid::Uuid;

use crate::rules::{Rule, Summary};

/// What pure code cannot know by itself.
#[derive(Clone, Copy)]
pub struct Surroundings<'a> {
    pub now: &'a Time,
    /// A random identifier, a new one at each call.
    pub new_uuid: &'a dyn Fn() -> Uuid,
}

impl std::fmt::Debug for Surroundings<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Surroundings")
            .field("now", &self.now)
            .finish_non_exhaustive()
    }
}

/// Every default, for the list of rules.
pub(crate) fn summaries() -> impl Iterator<Item = Summary> {
    let of_vm = vm::ALL.iter().map(Rule::summary);
    let of_spec = vmi::SPEC.iter().map(Rule::summary);
    let of_object = vmi::OBJECT.iter().map(Rule::summary);
    of_vm.chain(of_spec).chain(of_object)
}
