//! The status of a restore.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::conditions::{self, ConditionValue};
use kubevirt_api::restore::{
    VirtualMachineRestore, VirtualMachineRestoreStatus as Status, VolumeRestore,
};
use kubevirt_api::snapshot::ConditionType as Type;
use reasons::Reason;
use reconcile::{Fragment, Key};
use serde_json::json;

use super::observe::Observed;
use super::plan::Progress;
use crate::MANAGER;

pub(super) fn render(observed: &Observed, progress: &Progress) -> Status {
    let mut status = observed.restore.status.clone().unwrap_or_default();
    if !observed.disks.is_empty() {
        let one = |disk: &super::observe::Disk| VolumeRestore {
            volume_name: disk.backup.volume_name.clone(),
            persistent_volume_claim: disk.name.clone(),
            volume_snapshot_name: disk.backup.volume_snapshot_name.clone().unwrap_or_default(),
            data_volume_name: None,
        };
        status.restores = observed.disks.iter().map(one).collect();
    }
    let now = Time(observed.now);
    match progress {
        Progress::Ended => {}
        Progress::Restoring => set(&mut status, Reason::RestoreInProgress, "", &now),
        Progress::Waits { reason, message } => set(&mut status, *reason, message, &now),
        Progress::Failed { reason, message } => {
            set(&mut status, *reason, message, &now);
            end(&mut status, *reason, message, &now);
        }
    }
    status
}

/// The status of a restore that is complete.
pub(super) fn complete(observed: &Observed) -> Status {
    let now = Time(observed.now);
    let mut status = render(observed, &Progress::Restoring);
    status.complete = Some(true);
    status.restore_time = Some(now.clone());
    let reason = Reason::VirtualMachineRestoreComplete.as_str();
    let value = |holds: bool| ConditionValue {
        status: if holds {
            conditions::TRUE
        } else {
            conditions::FALSE
        },
        reason,
        message: "",
    };
    conditions::set(&mut status.conditions, Type::Ready, &value(true), &now);
    conditions::set(
        &mut status.conditions,
        Type::Progressing,
        &value(false),
        &now,
    );
    status
}

fn set(status: &mut Status, reason: Reason, message: &str, now: &Time) {
    let advised = reason.advise(message);
    let value = |status: &'static str| ConditionValue {
        status,
        reason: reason.as_str(),
        message: &advised,
    };
    status.complete = Some(false);
    let all = &mut status.conditions;
    conditions::set(all, Type::Ready, &value(conditions::FALSE), now);
    conditions::set(all, Type::Progressing, &value(conditions::TRUE), now);
}

fn end(status: &mut Status, reason: Reason, message: &str, now: &Time) {
    let advised = reason.advise(message);
    let value = |status: &'static str| ConditionValue {
        status,
        reason: reason.as_str(),
        message: &advised,
    };
    let all = &mut status.conditions;
    conditions::set(all, Type::Progressing, &value(conditions::FALSE), now);
    conditions::set(all, Type::Failure, &value(conditions::TRUE), now);
}

/// The status to apply, or `None` if nothing changed.
pub(super) fn fragment<'a>(
    restore: &VirtualMachineRestore,
    key: &'a Key,
    status: &Status,
) -> Option<Fragment<'a>> {
    if restore.status.as_ref() == Some(status) {
        return None;
    }
    let body = json!({
        "apiVersion": VirtualMachineRestore::API_VERSION,
        "kind": VirtualMachineRestore::KIND,
        "metadata": {
            "name": key.name,
            "namespace": key.namespace,
            "resourceVersion": restore.metadata.resource_version,
        },
        "status": status,
    });
    Some(Fragment::of_status(MANAGER, key, body))
}
