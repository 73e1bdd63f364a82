//! Authorization by roles and bindings.
//!
//! - `attributes` extracts verb and target of a request;
//! - `snapshot` holds the rules of all roles and their subjects;
//! - `escalation` prevents granting permissions that the writer does not have;
//! - `impersonation` lets permitted users act as another user;
//! - `bootstrap` creates the default roles of every cluster.
//!
//! Invariants: no rule, no permission, except for `system:masters`; a write of a role or binding
//! invalidates the snapshot before the write returns.

mod attributes;
pub(crate) mod bootstrap;
pub(crate) mod escalation;
mod impersonation;
mod snapshot;

use apimachinery::{GroupResource, Status, rbac::Rule};

pub(crate) use attributes::{Attributes, ResourceTarget, Target};
pub(crate) use impersonation::impersonate;
pub(crate) use snapshot::Current;

use crate::{api::Api, auth::Identity, error::ApiError};

pub(crate) const GROUP: &str = "rbac.authorization.k8s.io";
/// Has all permissions, regardless of roles.
const MASTERS: &str = "system:masters";

/// The result of an authorization check.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub allowed: bool,
    /// The rule that allowed the action, or problems with the roles that might have.
    pub reason: String,
}

/// Authorizes an action of `identity`.
pub(crate) async fn decide(
    api: &Api,
    identity: &Identity,
    wanted: &Attributes,
) -> Result<Decision, ApiError> {
    if identity.groups.iter().any(|group| group == MASTERS) {
        return Ok(Decision {
            allowed: true,
            reason: String::new(),
        });
    }
    let snapshot = api.access.get(api).await?;
    Ok(snapshot.decide(identity, wanted))
}

/// 403 unless `identity` may perform the action.
pub(crate) async fn authorize(
    api: &Api,
    identity: &Identity,
    wanted: &Attributes,
) -> Result<(), ApiError> {
    let decision = decide(api, identity, wanted).await?;
    if decision.allowed {
        return Ok(());
    }
    Err(refusal(identity, wanted, &decision.reason).into())
}

/// All permissions of `identity` in a namespace, or without one in the whole cluster.
pub(crate) async fn rules_of(
    api: &Api,
    identity: &Identity,
    namespace: &str,
) -> Result<Vec<Rule>, ApiError> {
    Ok(api.access.get(api).await?.rules_of(identity, namespace))
}

fn refusal(identity: &Identity, wanted: &Attributes, reason: &str) -> Status {
    let mut why = format!("User {:?} {}", identity.user, wanted.cannot());
    if !reason.is_empty() {
        why = format!("{why}: {reason}");
    }
    match &wanted.target {
        Target::Path(_) => {
            let nothing = GroupResource {
                group: "",
                resource: "",
            };
            Status::forbidden(nothing, "", &why)
        }
        Target::Resource(resource) => {
            let about = GroupResource {
                group: &resource.group,
                resource: &resource.resource,
            };
            Status::forbidden(about, &resource.name, &why)
        }
    }
}
