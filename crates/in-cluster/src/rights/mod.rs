//! Missing rights of this component: taken from requests that the API server refused, reported by events on
//! the component's own pod with the role that has the right, and checked until they are granted.
//!
//! A component without any rights does not belong to the installation of this cluster (another namespace has
//! it, or the role bindings were deleted): it waits and does nothing, on its node neither.
//!
//! **Invariant**: a right is reported as missing only after a `SelfSubjectAccessReview` has confirmed it, since
//! an API server that has just started refuses every request.

mod refusal;
mod right;
mod role;
mod watch;

pub(crate) use refusal::{Refused, refusals, report_refusal};
pub(crate) use right::Right;
pub(crate) use watch::{wait_for_any, watch};
