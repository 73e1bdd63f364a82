//! `metav1.Status` errors, worded and coded as kube-apiserver does.
//!
//! Invariant: `code` follows from `reason` except where the API itself has several.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::{GroupKind, GroupResource, Violation, violation::quoted};

/// The machine-readable reason.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reason {
    Unauthorized,
    Forbidden,
    NotFound,
    AlreadyExists,
    Conflict,
    Gone,
    Expired,
    Invalid,
    BadRequest,
    MethodNotAllowed,
    NotAcceptable,
    RequestEntityTooLarge,
    UnsupportedMediaType,
    TooManyRequests,
    InternalError,
    ServiceUnavailable,
    Timeout,
    /// An error that the original passes on without a reason.
    Unknown,
}

impl Reason {
    /// The HTTP status code that goes with the reason.
    pub fn code(self) -> u16 {
        match self {
            Self::BadRequest => 400,
            Self::Unauthorized => 401,
            Self::Forbidden => 403,
            Self::NotFound => 404,
            Self::MethodNotAllowed => 405,
            Self::NotAcceptable => 406,
            Self::AlreadyExists | Self::Conflict => 409,
            Self::Gone | Self::Expired => 410,
            Self::RequestEntityTooLarge => 413,
            Self::UnsupportedMediaType => 415,
            Self::Invalid => 422,
            Self::TooManyRequests => 429,
            Self::InternalError | Self::Unknown => 500,
            Self::ServiceUnavailable => 503,
            Self::Timeout => 504,
        }
    }

    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unauthorized => "Unauthorized",
            Self::Forbidden => "Forbidden",
            Self::NotFound => "NotFound",
            Self::AlreadyExists => "AlreadyExists",
            Self::Conflict => "Conflict",
            Self::Gone => "Gone",
            Self::Expired => "Expired",
            Self::Invalid => "Invalid",
            Self::BadRequest => "BadRequest",
            Self::MethodNotAllowed => "MethodNotAllowed",
            Self::NotAcceptable => "NotAcceptable",
            Self::RequestEntityTooLarge => "RequestEntityTooLarge",
            Self::UnsupportedMediaType => "UnsupportedMediaType",
            Self::TooManyRequests => "TooManyRequests",
            Self::InternalError => "InternalError",
            Self::ServiceUnavailable => "ServiceUnavailable",
            Self::Timeout => "Timeout",
            Self::Unknown => "",
        }
    }
}

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
    pub fn not_found(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {} not found", quoted(name));
        Self::about(Reason::NotFound, resource, name, message)
    }

    /// No such resource, version or path under `/apis`.
    pub fn no_such_resource() -> Self {
        let message = "the server could not find the requested resource";
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::NotFound, message)
        }
    }

    pub fn already_exists(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!("{resource} {} already exists", quoted(name));
        Self::about(Reason::AlreadyExists, resource, name, message)
    }

    /// Every generated name was taken.
    pub fn generate_name_conflict(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quoted(name)
        );
        Self::about(Reason::AlreadyExists, resource, name, message).retry_after(1)
    }

    /// The resourceVersion sent is not the stored one.
    pub fn conflict(resource: GroupResource<'_>, name: &str) -> Self {
        Self::conflict_because(
            resource,
            name,
            "the object has been modified; please apply your changes to the latest version and try again",
        )
    }

    pub fn conflict_because(resource: GroupResource<'_>, name: &str, why: &str) -> Self {
        let message = format!(
            "Operation cannot be fulfilled on {resource} {}: {why}",
            quoted(name)
        );
        Self::about(Reason::Conflict, resource, name, message)
    }

    /// The uid in the body of an update is another object's.
    pub fn uid_mismatch(
        resource: GroupResource<'_>,
        name: &str,
        wanted: &str,
        stored: &str,
    ) -> Self {
        let why = format!(
            "Precondition failed: UID in precondition: {wanted}, UID in object meta: {stored}"
        );
        Self::conflict_because(resource, name, &why)
    }

    /// `preconditions.uid` of a deletion is another object's. Names the kind, as in the original.
    pub fn uid_precondition(kind: GroupKind<'_>, name: &str, wanted: &str, stored: &str) -> Self {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({stored}). The object might have been deleted and then recreated"
        );
        Self::precondition(kind, name, &why)
    }

    /// `preconditions.resourceVersion` of a deletion is not the stored one.
    pub fn version_precondition(
        kind: GroupKind<'_>,
        name: &str,
        wanted: &str,
        stored: &str,
    ) -> Self {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record ({stored}). The object might have been modified"
        );
        Self::precondition(kind, name, &why)
    }

    fn precondition(kind: GroupKind<'_>, name: &str, why: &str) -> Self {
        let kind = GroupResource {
            group: kind.group,
            resource: kind.kind,
        };
        Self::conflict_because(kind, name, why)
    }

    /// Server-side apply met fields of other managers. Carries no name, as in the original.
    pub fn apply_conflict(causes: Vec<Cause>, message: impl Into<String>) -> Self {
        let details = Details {
            causes,
            ..Details::default()
        };
        Self {
            details: Some(Box::new(details)),
            ..Self::new(Reason::Conflict, message)
        }
    }

    /// 422 with one cause per violation.
    pub fn invalid(kind: GroupKind<'_>, name: &str, violations: &[Violation]) -> Self {
        let texts: Vec<String> = violations.iter().map(ToString::to_string).collect();
        let list = match texts.as_slice() {
            [one] => one.clone(),
            many => format!("[{}]", many.join(", ")),
        };
        let details = Details {
            name: name.to_owned(),
            group: kind.group.to_owned(),
            kind: kind.kind.to_owned(),
            causes: violations.iter().map(Cause::from).collect(),
            ..Details::default()
        };
        let message = format!("{kind} {} is invalid: {list}", quoted(name));
        Self {
            details: Some(Box::new(details)),
            ..Self::new(Reason::Invalid, message)
        }
    }

    /// 422 for a patch that cannot be applied to the object it names. Says no more, as the original.
    pub fn unprocessable_patch() -> Self {
        let message = "the server rejected our request due to an error in our request";
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::Invalid, message)
        }
    }

    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(Reason::BadRequest, message)
    }

    /// `Pod in version "v1" cannot be handled as a Pod: <why>`: undecodable or strictly refused.
    pub fn undecodable(kind: &str, version: &str, why: &str) -> Self {
        let version = quoted(version);
        Self::bad_request(format!(
            "{kind} in version {version} cannot be handled as a {kind}: {why}"
        ))
    }

    pub fn unauthorized() -> Self {
        Self::new(Reason::Unauthorized, "Unauthorized")
    }

    /// Refused for a rule of the server, e.g. a namespace that is being terminated.
    pub fn forbidden(resource: GroupResource<'_>, name: &str, why: &str) -> Self {
        let message = if resource.resource.is_empty() {
            format!("forbidden: {why}")
        } else if name.is_empty() {
            format!("{resource} is forbidden: {why}")
        } else {
            format!("{resource} {} is forbidden: {why}", quoted(name))
        };
        Self::about(Reason::Forbidden, resource, name, message)
    }

    /// Refused because `user` may not.
    pub fn forbidden_to(denied: &Denied<'_>) -> Self {
        let Denied {
            user,
            verb,
            resource,
            subresource,
            namespace,
            name,
        } = *denied;
        let what = if subresource.is_empty() {
            resource.resource.to_owned()
        } else {
            format!("{}/{subresource}", resource.resource)
        };
        let wher = if namespace.is_empty() {
            "at the cluster scope".to_owned()
        } else {
            format!("in the namespace {}", quoted(namespace))
        };
        let why = format!(
            "User {} cannot {verb} resource {} in API group {} {wher}",
            quoted(user),
            quoted(&what),
            quoted(resource.group),
        );
        Self::forbidden(resource, name, &why)
    }

    pub fn gone(message: impl Into<String>) -> Self {
        Self::new(Reason::Gone, message)
    }

    /// A watch or list from a revision that has been compacted away.
    pub fn too_old_resource_version(wanted: u64, oldest: u64) -> Self {
        let message = format!("too old resource version: {wanted} ({oldest})");
        Self::new(Reason::Expired, message)
    }

    /// A `continue` token that is too old to go on from.
    pub fn expired_continue_token() -> Self {
        Self::new(
            Reason::Expired,
            "The provided continue parameter is too old to display a consistent list result. You can start a new list without the continue parameter.",
        )
    }

    pub fn method_not_allowed(resource: GroupResource<'_>, action: &str) -> Self {
        let message = format!(
            "{action} is not supported on resources of kind {}",
            quoted(&resource.to_string())
        );
        Self::about(Reason::MethodNotAllowed, resource, "", message)
    }

    /// A method that the path does not take at all.
    pub fn method_unknown_here() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::MethodNotAllowed, message)
        }
    }

    /// A patch in a language that is none.
    pub fn unsupported_patch() -> Self {
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::UnsupportedMediaType, "415: Unsupported Media Type")
        }
    }

    /// No representation the client accepts.
    pub fn not_acceptable(served: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            served.join(", ")
        );
        Self::new(Reason::NotAcceptable, message)
    }

    /// A body of a type that cannot be read.
    pub fn unsupported_media_type(accepted: &[&str]) -> Self {
        let message = format!(
            "the body of the request was in an unknown format - accepted media types include: {}",
            accepted.join(", ")
        );
        Self::new(Reason::UnsupportedMediaType, message)
    }

    pub fn request_entity_too_large(why: &str) -> Self {
        Self::new(
            Reason::RequestEntityTooLarge,
            format!("Request entity is too large: {why}"),
        )
    }

    pub fn too_many_requests(message: impl Into<String>, retry_after_seconds: u32) -> Self {
        Self::new(Reason::TooManyRequests, message).retry_after(retry_after_seconds)
    }

    pub fn internal(why: impl fmt::Display) -> Self {
        let why = why.to_string();
        let message = format!("Internal error occurred: {why}");
        let cause = Cause {
            reason: String::new(),
            message: why,
            field: String::new(),
        };
        let details = Details {
            causes: vec![cause],
            ..Details::default()
        };
        Self {
            details: Some(Box::new(details)),
            ..Self::new(Reason::InternalError, message)
        }
    }

    pub fn service_unavailable(message: impl Into<String>) -> Self {
        Self::new(Reason::ServiceUnavailable, message)
    }

    pub fn timeout(message: impl fmt::Display) -> Self {
        Self::new(Reason::Timeout, format!("Timeout: {message}"))
    }

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

    /// Asks the client to come back later; the server also sends a `Retry-After` header.
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

    /// What a delete answers when the object is gone at once.
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

/// Who was refused what; empty strings for what does not apply.
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

#[cfg(test)]
mod tests {
    use super::*;

    const VMS: GroupResource<'static> = GroupResource {
        group: "kubevirt.io",
        resource: "virtualmachines",
    };
    const PODS: GroupResource<'static> = GroupResource {
        group: "",
        resource: "pods",
    };

    #[test]
    fn errors_read_as_those_of_kube_apiserver() {
        let denied = Denied {
            user: "u",
            verb: "get",
            resource: VMS,
            subresource: "status",
            namespace: "n",
            name: "x",
        };
        let cases = [
            (
                Status::not_found(VMS, "x"),
                404,
                r#"virtualmachines.kubevirt.io "x" not found"#,
            ),
            (
                Status::already_exists(PODS, "x"),
                409,
                r#"pods "x" already exists"#,
            ),
            (
                Status::conflict(PODS, "x"),
                409,
                r#"Operation cannot be fulfilled on pods "x": the object has been modified; please apply your changes to the latest version and try again"#,
            ),
            (
                Status::forbidden(PODS, "x", "no"),
                403,
                r#"pods "x" is forbidden: no"#,
            ),
            (
                Status::forbidden_to(&denied),
                403,
                r#"virtualmachines.kubevirt.io "x" is forbidden: User "u" cannot get resource "virtualmachines/status" in API group "kubevirt.io" in the namespace "n""#,
            ),
            (
                Status::too_old_resource_version(3, 9),
                410,
                "too old resource version: 3 (9)",
            ),
            (
                Status::method_not_allowed(VMS, "patch"),
                405,
                r#"patch is not supported on resources of kind "virtualmachines.kubevirt.io""#,
            ),
            (Status::internal("x"), 500, "Internal error occurred: x"),
            (
                Status::undecodable(
                    "Pod",
                    "v1",
                    r#"strict decoding error: unknown field "spec.foo""#,
                ),
                400,
                r#"Pod in version "v1" cannot be handled as a Pod: strict decoding error: unknown field "spec.foo""#,
            ),
        ];
        for (status, code, message) in cases {
            assert_eq!((status.code(), status.message()), (code, message));
            assert_eq!(status.to_value()["code"], code);
        }
    }

    #[test]
    fn an_invalid_object_lists_its_causes() {
        let kind = GroupKind {
            group: "kubevirt.io",
            kind: "VirtualMachine",
        };
        let one = Violation::required("spec.template", "");
        let two = Violation::not_supported("spec.runStrategy", "x", ["Always", "Halted"]);
        let status = Status::invalid(kind, "x", std::slice::from_ref(&one));
        assert_eq!(
            status.message(),
            r#"VirtualMachine.kubevirt.io "x" is invalid: spec.template: Required value"#
        );
        let status = Status::invalid(kind, "x", &[one, two]);
        assert_eq!(
            status.to_value(),
            json!({
                "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
                "message": "VirtualMachine.kubevirt.io \"x\" is invalid: [spec.template: Required value, spec.runStrategy: Unsupported value: \"x\": supported values: \"Always\", \"Halted\"]",
                "reason": "Invalid",
                "details": {"name": "x", "group": "kubevirt.io", "kind": "VirtualMachine", "causes": [
                    {"reason": "FieldValueRequired", "message": "Required value", "field": "spec.template"},
                    {"reason": "FieldValueNotSupported", "field": "spec.runStrategy",
                        "message": "Unsupported value: \"x\": supported values: \"Always\", \"Halted\""},
                ]},
                "code": 422,
            })
        );
    }

    #[test]
    fn retry_and_success_carry_details() {
        let busy = Status::too_many_requests("slow down", 2);
        assert_eq!(busy.to_value()["details"], json!({"retryAfterSeconds": 2}));
        let gone = Status::deleted(VMS, "x", "u");
        assert_eq!(gone["details"]["uid"], "u");
        assert_eq!(gone["status"], "Success");
    }
}
