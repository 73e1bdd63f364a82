//! What is wrong with an object.

use std::fmt;

use serde_json::{Value, json};

/// The machine-readable kind of a violation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cause {
    Duplicate,
    Forbidden,
    Invalid,
    NotFound,
    NotSupported,
    Required,
}

impl Cause {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Duplicate => "FieldValueDuplicate",
            Self::Forbidden => "FieldValueForbidden",
            Self::Invalid => "FieldValueInvalid",
            Self::NotFound => "FieldValueNotFound",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Required => "FieldValueRequired",
        }
    }
}

/// One thing that is wrong: where, and what would be right.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path from the root of the object, such as `spec.domain.devices.disks[0].name`.
    pub field: String,
    /// A sentence of its own, with the field.
    pub message: String,
    pub cause: Cause,
    /// Id of the rule that found it, see [`crate::rules`]; empty for what no rule can judge, such
    /// as an object that cannot be read.
    pub rule: &'static str,
}

impl Violation {
    /// `detail` completes "`field`: ...".
    pub fn new(cause: Cause, field: impl Into<String>, detail: impl fmt::Display) -> Self {
        let field = field.into();
        let message = format!("{field}: {detail}");
        Self {
            field,
            message,
            cause,
            rule: "",
        }
    }

    /// Says which rule found it.
    #[must_use]
    pub fn of(self, rule: &'static str) -> Self {
        Self { rule, ..self }
    }

    /// The same of an object that stands inside another, at `path`: `spec.a` becomes `path.spec.a`.
    #[must_use]
    pub(crate) fn below(self, path: &str) -> Self {
        self.moved("", &format!("{path}."))
    }

    /// The same at another place: the prefix `from` of the field becomes `to`.
    #[must_use]
    pub(crate) fn moved(self, from: &str, to: &str) -> Self {
        let rest = self.field.strip_prefix(from).unwrap_or(&self.field);
        let detail = self.detail().to_owned();
        Self::new(self.cause, format!("{to}{rest}"), detail).of(self.rule)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(Cause::Forbidden, field, detail)
    }

    pub fn not_found(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(Cause::NotFound, field, detail)
    }

    pub fn invalid(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(Cause::Invalid, field, detail)
    }

    pub fn required(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(Cause::Required, field, detail)
    }

    pub fn duplicate(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(Cause::Duplicate, field, detail)
    }

    pub fn not_supported(field: impl Into<String>, detail: impl fmt::Display) -> Self {
        Self::new(Cause::NotSupported, field, detail)
    }

    /// What is wrong, without the field.
    fn detail(&self) -> &str {
        let detail = self
            .message
            .strip_prefix(&self.field)
            .and_then(|rest| rest.strip_prefix(": "));
        detail.unwrap_or(&self.message)
    }

    /// As a cause of a `Status`: clients put the field in front of the message themselves.
    pub(crate) fn to_json(&self) -> Value {
        json!({ "reason": self.cause.as_str(), "field": self.field, "message": self.detail() })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
