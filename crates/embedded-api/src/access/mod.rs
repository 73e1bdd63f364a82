//! Who may do what: roles, bindings, and the question whether a request is allowed.
//!
//! - `attributes` tells what a request wants to do;
//! - `snapshot` holds the rules of all roles and whom they are bound to;
//! - `escalation` keeps people from giving away more than they have;
//! - `impersonation` lets those who may act as somebody else;
//! - `bootstrap` makes the roles that every cluster has.
//!
//! Invariants: nothing is allowed that no rule allows, but to `system:masters`; a snapshot is
//! thrown away with each write of a role or binding, before that write is answered.

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
/// May do everything, whatever roles say.
const MASTERS: &str = "system:masters";

/// The answer to a wish.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Decision {
    pub allowed: bool,
    /// By what it is allowed, or what was wrong with the roles that might have.
    pub reason: String,
}

/// May `identity` do this?
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

/// 403 unless `identity` may do this.
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

/// All that `identity` may do in a namespace, or, with none, in the whole cluster.
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
