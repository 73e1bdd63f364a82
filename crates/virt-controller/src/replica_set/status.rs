//! What is said about a set.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Selector;
use kubevirt_api::API_VERSION;
use kubevirt_api::conditions::{self, ConditionValue};
use kubevirt_api::replica_set::{
    VirtualMachineInstanceReplicaSetConditionType as Type,
    VirtualMachineInstanceReplicaSetStatus as Status,
};
use reasons::Reason;
use reconcile::Key;
use serde_json::{Value, json};

use super::KIND;
use super::observe::Observed;
use super::plan::Plan;
use crate::view::ReplicaSet;

/// Reason and message of what went wrong.
pub(super) type Failure = (Reason, String);

pub(super) fn render(seen: &Observed, plan: &Plan, failure: Option<&Failure>) -> Status {
    let now = Time(seen.now);
    let mut all = seen.set.status().conditions.clone();
    if seen.set.spec.paused == Some(true) {
        let says = ConditionValue {
            reason: Reason::Paused.as_str(),
            message: "the set is paused: no instance is made or removed",
            ..ConditionValue::holds()
        };
        conditions::set(&mut all, Type::ReplicaPaused, &says, &now);
    } else {
        conditions::remove(&mut all, &Type::ReplicaPaused);
    }
    match failure {
        Some((reason, message)) => {
            let says = ConditionValue {
                reason: reason.as_str(),
                message,
                ..ConditionValue::holds()
            };
            conditions::set(&mut all, Type::ReplicaFailure, &says, &now);
        }
        None => conditions::remove(&mut all, &Type::ReplicaFailure),
    }
    let selector = Selector::try_from(seen.set.spec.selector.clone());
    Status {
        replicas: i32::try_from(plan.replicas).ok(),
        ready_replicas: i32::try_from(plan.ready).ok(),
        conditions: all,
        label_selector: selector.ok().map(|selector| selector.to_string()),
    }
}

/// The status to apply, or nothing when it is there already.
pub(super) fn fragment(set: &ReplicaSet, key: &Key, status: &Status) -> Option<Value> {
    if *set.status() == *status {
        return None;
    }
    Some(json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": set.metadata.resource_version,
        },
        "status": status,
    }))
}
