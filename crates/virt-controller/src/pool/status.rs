//! The status of a pool.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::core::Selector;
use kubevirt_api::conditions::{self, ConditionValue};
use kubevirt_api::pool::{
    VirtualMachinePoolConditionType as Type, VirtualMachinePoolStatus as Status,
};
use reasons::Reason;

use super::observe::Observed;
use super::plan::Plan;

/// Why the pool is not as it is to be.
#[derive(Debug)]
pub(super) struct Failure {
    pub(super) reason: Reason,
    pub(super) message: String,
}

impl Failure {
    pub(super) fn of_scale_out(text: &str) -> Self {
        Self {
            reason: Reason::FailedScaleOut,
            message: format!("error during scale out: {text}"),
        }
    }
}

pub(super) fn render(observed: &Observed, plan: &Plan, failure: Option<&Failure>) -> Status {
    let now = Time(observed.now);
    let mut all = observed.pool.status().conditions.clone();
    if observed.pool.spec.paused == Some(true) {
        let value = ConditionValue {
            reason: Reason::SuccessfulPaused.as_str(),
            message: "Pool controller is paused",
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
    let selector = Selector::try_from(observed.pool.spec.selector.clone());
    Status {
        replicas: i32::try_from(plan.replicas).ok(),
        ready_replicas: i32::try_from(plan.ready).ok(),
        conditions: all,
        label_selector: selector.ok().map(|selector| selector.to_string()),
    }
}
