//! `metav1.Status` errors with the wording and codes of kube-apiserver.
//!
//! - [`Reason`] is the machine-readable reason;
//! - `errors` has a constructor for each error.
//!
//! Invariant: `code` follows from `reason` except where the API itself has several.

mod errors;
mod reason;

#[cfg(test)]
mod tests;

use std::fmt;

use serde_json::{Map, Value, json};

pub use self::reason::Reason;
use crate::{GroupResource, Violation};

/// One entry of `details.causes`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cause {
    pub reason: String,
    pub message: String,
    pub field: String,
}

impl From<&Violation> for Cause {
    fn from(violation: &Violation) -> Self {
        Self {
            reason: violation.fault.reason().to_owned(),
            message: violation.body(),
            field: violation.field.clone(),
        }
    }
}

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct Details {
    name: String,
    group: String,
    kind: String,
    uid: String,
    causes: Vec<Cause>,
    retry_after_seconds: u32,
}

/// A failure, ready to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Status {
    reason: Reason,
    message: String,
    details: Option<Box<Details>>,
}

impl Status {
    pub fn new(reason: Reason, message: impl Into<String>) -> Self {
        Self {
            reason,
            message: message.into(),
            details: None,
        }
    }

    fn about(reason: Reason, resource: GroupResource<'_>, name: &str, message: String) -> Self {
        let details = Details {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            ..Details::default()
        };
        Self {
            reason,
            message,
            details: Some(Box::new(details)),
        }
    }

    /// Asks the client to retry later; the server also sends a `Retry-After` header.
    #[must_use]
    pub fn retry_after(mut self, seconds: u32) -> Self {
        self.details.get_or_insert_default().retry_after_seconds = seconds;
        self
    }

    #[must_use]
    pub fn with_uid(mut self, uid: &str) -> Self {
        uid.clone_into(&mut self.details.get_or_insert_default().uid);
        self
    }

    #[must_use]
    pub fn with_cause(mut self, cause: Cause) -> Self {
        self.details.get_or_insert_default().causes.push(cause);
        self
    }

    pub fn reason(&self) -> Reason {
        self.reason
    }

    pub fn code(&self) -> u16 {
        self.reason.code()
    }

    pub fn message(&self) -> &str {
        &self.message
    }

    pub fn retry_after_seconds(&self) -> Option<u32> {
        self.details
            .as_ref()
            .map(|d| d.retry_after_seconds)
            .filter(|s| *s > 0)
    }

    /// The object to send.
    pub fn to_value(&self) -> Value {
        let mut out = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message,
        });
        if self.reason != Reason::Unknown {
            out["reason"] = self.reason.as_str().into();
        }
        if let Some(details) = &self.details {
            out["details"] = details.to_value();
        }
        out["code"] = self.code().into();
        out
    }

    /// The body of a successful delete that removed the object immediately.
    pub fn deleted(resource: GroupResource<'_>, name: &str, uid: &str) -> Value {
        let details = Details {
            name: name.to_owned(),
            group: resource.group.to_owned(),
            kind: resource.resource.to_owned(),
            uid: uid.to_owned(),
            ..Details::default()
        };
        json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success",
            "details": details.to_value(),
        })
    }
}

/// The user and the denied request; empty strings for absent parts.
#[derive(Debug, Clone, Copy)]
pub struct Denied<'a> {
    pub user: &'a str,
    pub verb: &'a str,
    pub resource: GroupResource<'a>,
    pub subresource: &'a str,
    pub namespace: &'a str,
    pub name: &'a str,
}

impl Details {
    fn to_value(&self) -> Value {
        let mut out = Map::new();
        let texts = [
            ("name", &self.name),
            ("group", &self.group),
            ("kind", &self.kind),
            ("uid", &self.uid),
        ];
        for (key, text) in texts {
            if !text.is_empty() {
                out.insert(key.to_owned(), text.as_str().into());
            }
        }
        if !self.causes.is_empty() {
            out.insert(
                "causes".to_owned(),
                self.causes.iter().map(Cause::to_value).collect(),
            );
        }
        if self.retry_after_seconds > 0 {
            out.insert(
                "retryAfterSeconds".to_owned(),
                self.retry_after_seconds.into(),
            );
        }
        Value::Object(out)
    }
}

impl Cause {
    fn to_value(&self) -> Value {
        let mut out = Map::new();
        let texts = [
            ("reason", &self.reason),
            ("message", &self.message),
            ("field", &self.field),
        ];
        for (key, text) in texts {
            if !text.is_empty() {
                out.insert(key.to_owned(), text.as_str().into());
            }
        }
        Value::Object(out)
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Status {}
