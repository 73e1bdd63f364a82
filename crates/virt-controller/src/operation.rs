//! What the controllers of snapshots, restores and clones share: the form of a plan, finalizers, conditions of
//! one reason, and the write of a whole status.

use std::fmt::Debug;
use std::time::Duration;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::{Api, Resource};
use kubevirt_api::conditions::{self, Condition, ConditionValue};
use reasons::Reason;
use reconcile::{Fragment, Key, WriteError, merge};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::json;

use crate::MANAGER;

/// Requeue time while something is missing that triggers nothing.
pub(crate) const RETRY: Duration = Duration::from_secs(5);

/// The next step, or none, and what users see.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Plan<S, P> {
    pub(crate) step: Option<S>,
    pub(crate) progress: P,
    pub(crate) requeue_in: Option<Duration>,
}

impl<S, P> Plan<S, P> {
    pub(crate) fn step(step: S, progress: P) -> Self {
        Self {
            step: Some(step),
            ..Self::state(progress)
        }
    }

    pub(crate) fn state(progress: P) -> Self {
        Self {
            step: None,
            progress,
            requeue_in: None,
        }
    }

    /// A state to look at again after [`RETRY`].
    pub(crate) fn retried(progress: P) -> Self {
        Self {
            requeue_in: Some(RETRY),
            ..Self::state(progress)
        }
    }
}

/// Replaces the finalizers of an object, unless it has changed since it was observed.
pub(crate) async fn set_finalizers<K>(
    api: &Api<K>,
    key: &Key,
    observed: &ObjectMeta,
    all: &[String],
) -> Result<K, WriteError>
where
    K: Clone + DeserializeOwned + Debug,
{
    let body = json!({"metadata": {
        "resourceVersion": observed.resource_version,
        "finalizers": all,
    }});
    merge(api, MANAGER, key, &body).await
}

/// Sets conditions that have the reason and the message, with its remedy, in common.
pub(crate) fn set_conditions<C: Condition, const N: usize>(
    all: &mut Vec<C>,
    values: [(C::Type, bool); N],
    (reason, message): (Reason, &str),
    now: &Time,
) {
    let advised = reason.advise(message);
    for (kind, holds) in values {
        let value = ConditionValue {
            status: if holds {
                conditions::TRUE
            } else {
                conditions::FALSE
            },
            reason: reason.as_str(),
            message: &advised,
        };
        conditions::set(all, kind, &value, now);
    }
}

/// The status to apply, or `None` if nothing changed.
pub(crate) fn status_fragment<'a, K, S>(
    object: &K,
    before: Option<&S>,
    key: &'a Key,
    status: &S,
) -> Option<Fragment<'a>>
where
    K: Resource<DynamicType = ()>,
    S: PartialEq + Serialize,
{
    if before == Some(status) {
        return None;
    }
    let body = json!({
        "apiVersion": K::api_version(&()),
        "kind": K::kind(&()),
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": object.meta().resource_version,
        },
        "status": status,
    });
    Some(Fragment::of_status(MANAGER, key, body))
}
