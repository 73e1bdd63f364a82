//! The status of a replica set.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Selector;
use kubevirt_api::API_VERSION;
use kubevirt_api::conditions::{self, ConditionValue};
use kubevirt_api::replica_set::{
    VirtualMachineInstanceReplicaSetConditionType as Type,
    VirtualMachineInstanceReplicaSetStatus as Status,
};
use reasons::Reason;
use reconcile::{Fragment, Key};
use serde_json::json;

use super::KIND;
use super::observe::Observed;
use super::plan::Plan;
use super::view::ReplicaSet;
use crate::MANAGER;

/// Why members could not be created or deleted.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
}

pub(super) fn render(observed: &Observed, plan: &Plan, failure: Option<&Failure>) -> Status {
    let now = Time(observed.now);
    let mut all = observed.set.status().conditions.clone();
    if observed.set.spec.paused == Some(true) {
        let value = ConditionValue {
            reason: Reason::Paused.as_str(),
            message: "the set is paused: no VMI is created or deleted",
            ..ConditionValue::holds()
        };
        conditions::set(&mut all, Type::ReplicaPaused, &value, &now);
    } else {
        conditions::remove(&mut all, &Type::ReplicaPaused);
    }
    match failure {
        Some(Failure { reason, message }) => {
            let value = ConditionValue {
                reason: reason.as_str(),
                message,
                ..ConditionValue::holds()
            };
            conditions::set(&mut all, Type::ReplicaFailure, &value, &now);
        }
        None => conditions::remove(&mut all, &Type::ReplicaFailure),
    }
    let selector = Selector::try_from(observed.set.spec.selector.clone());
    Status {
        replicas: i32::try_from(plan.replicas).ok(),
        ready_replicas: i32::try_from(plan.ready).ok(),
        conditions: all,
        label_selector: selector.ok().map(|selector| selector.to_string()),
    }
}

/// The status to apply, or `None` if nothing changed.
pub(super) fn fragment<'a>(
    set: &ReplicaSet,
    key: &'a Key,
    status: &Status,
) -> Option<Fragment<'a>> {
    if *set.status() == *status {
        return None;
    }
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": set.metadata.resource_version,
        },
        "status": status,
    });
    Some(Fragment::of_status(MANAGER, key, body))
}
