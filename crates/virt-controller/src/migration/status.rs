//! The status of a migration, complete in every write.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::API_VERSION;
use kubevirt_api::conditions::{self, Condition as _, ConditionValue};
use kubevirt_api::migration_request::{
    VirtualMachineInstanceMigration, VirtualMachineInstanceMigrationConditionType as Type,
    VirtualMachineInstanceMigrationPhase as Phase,
    VirtualMachineInstanceMigrationPhaseTransitionTimestamp as Transition,
    VirtualMachineInstanceMigrationStatus as Status,
};
use kubevirt_api::vmi_status::VirtualMachineInstanceConditionType as VmiType;
use model::MigrationEnd;
use reasons::Reason;
use reconcile::{Fragment, Key};
use serde_json::json;

use super::decentralized;
use super::observe::Observed;
use super::steps::Plan;
use super::view::Migration;
use crate::MANAGER;

/// How far the copy is: on the VMI, by virt-handler, and on the migration.
const VMI_PROGRESS: &str = "MigrationProgress";
const PROGRESS: &str = "migrationProgress";
/// Attached volumes are not with the new pod yet.
const VOLUMES: &str = "waitsForVolumes";

/// What became of the step.
#[derive(Debug, Default)]
pub(super) struct Done {
    /// Why the pod was not created: a later attempt may succeed.
    pub(super) rejection: Option<String>,
    /// Why the migration ends.
    pub(super) failure: Option<String>,
}

pub(super) fn render(observed: &Observed, plan: &Plan, done: &Done) -> Status {
    let migration = observed.migration.as_ref();
    let mut status = migration.status.clone();
    let now = Time(observed.now);
    let phase = match &done.failure {
        Some(_) => Phase::Failed,
        None => plan.phase.clone(),
    };
    if migration.phase() != phase {
        status.phase = Some(phase.clone());
        status.phase_transition_timestamps.push(Transition {
            phase: Some(phase),
            phase_transition_timestamp: Some(now.clone()),
        });
    }
    let state = observed.vmi.as_deref();
    if let Some(state) = state.and_then(|vmi| vmi.migration(migration.uid())) {
        if state.abort_requested == Some(true) {
            let value = ConditionValue::holds();
            conditions::set(&mut status.conditions, Type::AbortRequested, &value, &now);
        }
        status.migration_state = Some(state.clone());
        set_progress(&mut status, observed, &now);
    }
    match &plan.blocked {
        Some((reason, message)) => {
            let value = ConditionValue {
                status: conditions::TRUE,
                reason: reason.as_str(),
                message,
            };
            let kind = Type::DecentralizedBlocked;
            conditions::set(&mut status.conditions, kind, &value, &now);
        }
        None => conditions::remove(&mut status.conditions, &Type::DecentralizedBlocked),
    }
    let volumes = Type::from(VOLUMES);
    match plan.waits.as_deref().filter(|_| done.failure.is_none()) {
        Some(message) => {
            let value = ConditionValue {
                status: conditions::TRUE,
                reason: Reason::VolumePending.as_str(),
                message,
            };
            conditions::set(&mut status.conditions, volumes, &value, &now);
        }
        None => conditions::remove(&mut status.conditions, &volumes),
    }
    if migration.end() == Some(MigrationEnd::Target) {
        status.synchronization_addresses = vec![decentralized::ADDRESS.to_owned()];
    }
    match &done.rejection {
        Some(message) => {
            let value = ConditionValue {
                status: conditions::TRUE,
                reason: Reason::FailedCreate.as_str(),
                message,
            };
            let kind = Type::RejectedByResourceQuota;
            conditions::set(&mut status.conditions, kind, &value, &now);
        }
        None => conditions::remove(&mut status.conditions, &Type::RejectedByResourceQuota),
    }
    status
}

/// Shows how far the copy is, as the VMI does.
fn set_progress(status: &mut Status, observed: &Observed, now: &Time) {
    let kind = Type::from(PROGRESS);
    let vmi = observed.vmi.as_deref();
    let all = vmi
        .map(|vmi| &vmi.status.conditions[..])
        .unwrap_or_default();
    match conditions::find(all, &VmiType::from(VMI_PROGRESS)) {
        Some(shown) => {
            let value = ConditionValue {
                status: shown.status(),
                reason: shown.reason(),
                message: shown.message(),
            };
            conditions::set(&mut status.conditions, kind, &value, now);
        }
        None => conditions::remove(&mut status.conditions, &kind),
    }
}

/// The fragment to apply; `None` if nothing changed.
pub(super) fn fragment<'a>(
    migration: &Migration,
    key: &'a Key,
    status: &Status,
) -> Option<Fragment<'a>> {
    if migration.status == *status {
        return None;
    }
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachineInstanceMigration::KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": migration.metadata.resource_version,
        },
        "status": status,
    });
    Some(Fragment::of_status(MANAGER, key, body))
}
