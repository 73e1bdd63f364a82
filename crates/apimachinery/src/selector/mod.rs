//! Label and field selectors, from query strings and from `LabelSelector` objects.

mod field;
mod label;

pub use field::FieldSelector;
pub use label::{LabelSelector, Operator, Requirement};

/// A selector parse error; returned to the client as a 400.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct SelectorError(pub(crate) String);

impl SelectorError {
    pub fn reason(&self) -> &'static str {
        "BadSelector"
    }

    pub fn to_status(&self) -> crate::Status {
        crate::Status::bad_request(self.0.clone())
    }
}
