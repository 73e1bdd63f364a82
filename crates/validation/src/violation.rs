//! Violations: a wrong field, the problem and the remedy.

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

/// One problem of an object: the field, and a message that also names the remedy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Violation {
    /// Path from the root of the object, such as `spec.domain.devices.disks[0].name`.
    pub field: String,
    /// A complete sentence that includes the field.
    pub message: String,
    pub cause: Cause,
    /// Id of the [`Rule`](crate::Rule) that reports it; empty when no rule applies, for example
    /// when the object cannot be parsed.
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

    #[must_use]
    pub fn reported_by(self, rule: &'static str) -> Self {
        Self { rule, ..self }
    }

    /// The same violation of an object that is embedded in another at `path`: `spec.a` becomes
    /// `path.spec.a`.
    #[must_use]
    pub fn nested_in(self, path: &str) -> Self {
        self.rebased("", &format!("{path}."))
    }

    /// The same violation with the prefix `from` of its field replaced by `to`.
    #[must_use]
    pub fn rebased(self, from: &str, to: &str) -> Self {
        let rest = self.field.strip_prefix(from).unwrap_or(&self.field);
        let detail = self.detail().to_owned();
        Self::new(self.cause, format!("{to}{rest}"), detail).reported_by(self.rule)
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

    /// The message without the field.
    fn detail(&self) -> &str {
        let detail = self
            .message
            .strip_prefix(&self.field)
            .and_then(|rest| rest.strip_prefix(": "));
        detail.unwrap_or(&self.message)
    }

    /// A cause of a `metav1.Status`. Clients print the field in front of the message themselves.
    pub fn to_status_cause(&self) -> Value {
        json!({ "reason": self.cause.as_str(), "field": self.field, "message": self.detail() })
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}
