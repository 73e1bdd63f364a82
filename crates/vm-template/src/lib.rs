//! Templates of VMs: parameters with given, default or generated values, and the VM that they make.
//!
//! - `references` finds `${NAME}` and `${{NAME}}` in a template;
//! - `parameters` says which value a parameter has;
//! - `pattern` generates values;
//! - `substitute` puts values into JSON;
//! - `process` makes a VM of a template;
//! - `convert` makes a template of a Template of `OpenShift`.
//!
//! **Invariants**: no I/O and no randomness of its own; the work is linear in the size of the template; generated
//! values are limited by [`MAX_GENERATED`], and substituted ones by [`MAX_SIZE`], however long a value is and however
//! often it is referenced.

mod convert;
mod parameters;
mod pattern;
mod process;
mod references;
mod substitute;
#[cfg(test)]
mod tests;

pub use convert::{ConvertError, Converted, convert};
pub use parameters::{is_generated, is_open};
pub use pattern::{MAX_GENERATED, PatternError, example, generate};
pub use process::{Problem, Processed, Values, process};
pub use references::{Reference, is_name, references};
pub use substitute::{MAX_SIZE, SubstitutionError, substitute, substitute_text};
