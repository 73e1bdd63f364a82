//! An invalid field, with the wording of kube-apiserver.

use std::fmt;

use serde_json::Value;

/// The kind of error in a field.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    NotFound,
    Required,
    Duplicate,
    Invalid,
    NotSupported,
    Forbidden,
    TooLong,
    TooMany,
    TypeInvalid,
    /// A whole object or list is invalid; the value is too large to be shown.
    InvalidWhole,
    Internal,
}

impl Fault {
    /// The `reason` of a status cause.
    pub fn reason(self) -> &'static str {
        match self {
            Self::NotFound => "FieldValueNotFound",
            Self::Required => "FieldValueRequired",
            Self::Duplicate => "FieldValueDuplicate",
            Self::Invalid | Self::InvalidWhole => "FieldValueInvalid",
            Self::NotSupported => "FieldValueNotSupported",
            Self::Forbidden => "FieldValueForbidden",
            Self::TooLong => "FieldValueTooLong",
            Self::TooMany => "FieldValueTooMany",
            Self::TypeInvalid => "FieldValueTypeInvalid",
            Self::Internal => "InternalError",
        }
    }

    fn text(self) -> &'static str {
        match self {
            Self::NotFound => "Not found",
            Self::Required => "Required value",
            Self::Duplicate => "Duplicate value",
            Self::Invalid | Self::InvalidWhole | Self::TypeInvalid => "Invalid value",
            Self::NotSupported => "Unsupported value",
            Self::Forbidden => "Forbidden",
            Self::TooLong => "Too long",
            Self::TooMany => "Too many",
            Self::Internal => "Internal error",
        }
    }

    fn shows_value(self) -> bool {
        !matches!(
            self,
            Self::Required | Self::Forbidden | Self::TooLong | Self::InvalidWhole | Self::Internal
        )
    }
}

/// A field and its error. `Display` gives `spec.x: Required value: detail`.
#[derive(Debug, Clone, PartialEq)]
pub struct Violation {
    pub fault: Fault,
    /// Dotted path, `<nil>` when the error belongs to no single field.
    pub field: String,
    pub value: Value,
    pub detail: String,
}

impl Violation {
    pub fn required(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Fault::Required, field, Value::Null, detail)
    }

    pub fn invalid(
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self::new(Fault::Invalid, field, value, detail)
    }

    pub fn forbidden(field: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Fault::Forbidden, field, Value::Null, detail)
    }

    pub fn duplicate(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(Fault::Duplicate, field, value, "")
    }

    pub fn not_found(field: impl Into<String>, value: impl Into<Value>) -> Self {
        Self::new(Fault::NotFound, field, value, "")
    }

    pub fn too_long(field: impl Into<String>, value: impl Into<Value>, max: u64) -> Self {
        let detail = format!("may not be more than {max} bytes");
        Self::new(Fault::TooLong, field, value, detail)
    }

    pub fn too_many(field: impl Into<String>, actual: usize, max: u64) -> Self {
        let detail = format!("must have at most {max} items");
        Self::new(Fault::TooMany, field, actual, detail)
    }

    /// `supported` is shown in the given order.
    pub fn not_supported<'a>(
        field: impl Into<String>,
        value: impl Into<Value>,
        supported: impl IntoIterator<Item = &'a str>,
    ) -> Self {
        let list: Vec<String> = supported.into_iter().map(quoted).collect();
        let detail = format!("supported values: {}", list.join(", "));
        Self::new(Fault::NotSupported, field, value, detail)
    }

    pub fn new(
        fault: Fault,
        field: impl Into<String>,
        value: impl Into<Value>,
        detail: impl Into<String>,
    ) -> Self {
        Self {
            fault,
            field: field.into(),
            value: value.into(),
            detail: detail.into(),
        }
    }

    /// The text without the field: the `message` of a status cause.
    pub fn body(&self) -> String {
        let mut text = self.fault.text().to_owned();
        if self.fault.shows_value() {
            text.push_str(": ");
            text.push_str(&self.value.to_string());
        }
        if !self.detail.is_empty() {
            text.push_str(": ");
            text.push_str(&self.detail);
        }
        text
    }
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.field, self.body())
    }
}

/// A string in double quotes with the usual escapes.
pub(crate) fn quoted(text: &str) -> String {
    Value::from(text).to_string()
}
