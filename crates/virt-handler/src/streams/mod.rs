//! What users reach on this node through `virt-api`: a guest's console, its screen, its verbs.
//!
//! The paths end like those of the aggregated API. Callers prove by certificate that they are
//! `virt-api`; what a user may do was decided there. A new stream to the same device ends the one
//! before it.

mod device;
mod one_at_a_time;
mod router;

pub(crate) use router::{StreamsState, router};
