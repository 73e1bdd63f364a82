//! One constructor per error of the API, with the wording of kube-apiserver.

use std::fmt;

use super::{Cause, Denied, Details, Reason, Status};
use crate::{GroupKind, GroupResource, Violation, violation::quoted};

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

    /// Every generated name was already taken.
    pub fn generate_name_conflict(resource: GroupResource<'_>, name: &str) -> Self {
        let message = format!(
            "{resource} {} already exists, the server was not able to generate a unique name for the object",
            quoted(name)
        );
        Self::about(Reason::AlreadyExists, resource, name, message).retry_after(1)
    }

    /// The request's resourceVersion is not the stored one.
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

    /// The uid in the body of an update belongs to another object.
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

    /// `preconditions.uid` of a deletion belongs to another object. Names the kind, as
    /// kube-apiserver does.
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

    /// Server-side apply conflicts with fields of other managers. Carries no name, as in
    /// kube-apiserver.
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

    /// 422 for a patch that cannot be applied to its target. Carries no details, as in
    /// kube-apiserver.
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

    /// `Pod in version "v1" cannot be handled as a Pod: <why>`: undecodable or rejected by strict
    /// validation.
    pub fn undecodable(kind: &str, version: &str, why: &str) -> Self {
        let version = quoted(version);
        Self::bad_request(format!(
            "{kind} in version {version} cannot be handled as a {kind}: {why}"
        ))
    }

    pub fn unauthorized() -> Self {
        Self::new(Reason::Unauthorized, "Unauthorized")
    }

    /// Forbidden by a rule of the server, e.g. a namespace that is being terminated.
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

    /// Forbidden because `user` lacks the permission.
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

    /// A watch from a revision that the server has not reached, of another history for example.
    /// The code makes every client list again; kube-apiserver does not answer such a watch at all.
    pub fn too_large_resource_version(wanted: u64, latest: u64) -> Self {
        let message = format!("too large resource version: {wanted}, current: {latest}");
        Self::new(Reason::Expired, message)
    }

    /// A `continue` token that has expired.
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

    /// A method that the path does not support at all.
    pub fn method_unknown_here() -> Self {
        let message = "the server does not allow this method on the requested resource";
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::MethodNotAllowed, message)
        }
    }

    /// An unknown patch content type.
    pub fn unsupported_patch() -> Self {
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::UnsupportedMediaType, "415: Unsupported Media Type")
        }
    }

    /// None of the client's accepted media types is served in this place.
    pub fn not_acceptable(served: &[&str]) -> Self {
        let message = format!(
            "only the following media types are accepted: {}",
            served.join(", ")
        );
        Self::new(Reason::NotAcceptable, message)
    }

    /// None of the client's accepted media types is known.
    pub fn no_representation() -> Self {
        let known = [
            "application/json",
            "application/yaml",
            "application/vnd.kubernetes.protobuf",
            "application/json;stream=watch",
            "application/vnd.kubernetes.protobuf;stream=watch",
        ];
        let message = format!(
            "406: Not Acceptable\n\nAvailable representations: {}",
            known.join(", ")
        );
        Self {
            details: Some(Box::default()),
            ..Self::new(Reason::NotAcceptable, message)
        }
    }

    /// A body of an unsupported media type.
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
}
