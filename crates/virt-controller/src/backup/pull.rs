//! Backups of mode `Pull`: the guest offers its disks as they are at one moment, and an export of the name of the
//! backup lets clients read them, until the backup is deleted or its time is over.
//!
//! **Invariants**: nothing is offered after the time of the backup; the export belongs to the backup, and is deleted
//! before the claim leaves the guest.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use kubevirt_api::backup::{BackupVolumeInfo, VirtualMachineBackup};
use kubevirt_api::export::{
    ConditionType, ExportBackupEndpoint as Endpoint, VirtualMachineExport,
    VirtualMachineExportLink, VirtualMachineExportPhase as Phase,
};
use reasons::Reason;
use serde_json::{Value, json};

use super::observe::{Export, Observed};
use super::plan::{Plan, Progress, Step, failed, failure, has_failed};

/// How long disks are offered if the backup does not say so, as in `KubeVirt`.
const LIFETIME: SignedDuration = SignedDuration::from_hours(2);
/// The export outlives the offer, so that it is not created again at its end.
const SLACK: SignedDuration = SignedDuration::from_mins(5);

/// No client could read the disks.
pub(super) const TOO_LATE: &str =
    "its time was over before the disks were offered; set a longer spec.ttlDuration";

/// When the offer ends. It counts from the creation of the backup.
fn expiry(backup: &VirtualMachineBackup) -> Option<Timestamp> {
    let created = backup.metadata.creation_timestamp.as_ref()?.0;
    let lifetime = backup.spec.ttl_duration.as_ref();
    // Admission refuses what is no duration.
    let lifetime = lifetime.and_then(|text| text.parse().ok());
    let end = created.checked_add(lifetime.unwrap_or(LIFETIME));
    Some(end.unwrap_or(Timestamp::MAX))
}

/// `None` if the time of the backup is over.
pub(super) fn time_left(observed: &Observed) -> Option<Duration> {
    let Some(expiry) = expiry(&observed.backup) else {
        return Some(LIFETIME.unsigned_abs());
    };
    let left = observed.now.duration_until(expiry);
    left.is_positive().then(|| left.unsigned_abs())
}

/// Follows an offer that has begun.
pub(super) fn follow(observed: &Observed) -> Plan {
    let lost = || {
        let message = "the guest ended while its disks were offered";
        failed(Reason::SourceLost, message)
    };
    let Some(report) = observed.report() else {
        return lost();
    };
    let is_over = observed.guest.as_ref().is_none_or(|guest| guest.is_final());
    if report.completed != Some(true) {
        if is_over {
            return lost();
        }
        let Some(left) = time_left(observed) else {
            return leave(observed, Progress::Expired)
                .unwrap_or_else(|| Plan::state(Progress::Expired));
        };
        let mut plan = if report.volumes.is_empty() {
            let message = report.backup_msg.clone();
            let message = message.unwrap_or_else(|| "the disks are about to be offered".to_owned());
            Plan::state(Progress::Copying(message))
        } else {
            offer(observed)
        };
        plan.requeue_in = Some(left);
        return plan;
    }
    if observed.offer().is_some() {
        return Plan::step(Step::Withdraw, Progress::Kept);
    }
    if !is_over && let Some(plan) = leave(observed, Progress::Kept) {
        return plan;
    }
    if has_failed(report) {
        return failed(Reason::Failed, failure(report));
    }
    if !observed.is_copied() && time_left(observed).is_none() {
        return failed(Reason::Failed, TOO_LATE);
    }
    if !observed.is_copied() {
        // A virt-handler of an earlier version copies.
        let message = "the guest's node did not offer the disks; update virt-handler there";
        return failed(Reason::Failed, message);
    }
    Plan::state(Progress::Complete)
}

/// Ends the offer: without its claim the guest cannot go on with it.
fn leave(observed: &Observed, progress: Progress) -> Option<Plan> {
    if observed.offer().is_some() {
        return Some(Plan::step(Step::Withdraw, progress));
    }
    if observed.is_attached() {
        return Some(Plan::step(Step::Detach, progress));
    }
    let is_leaving = observed.volume_status().is_some();
    is_leaving.then(|| Plan::state(progress))
}

/// The guest offers its disks.
fn offer(observed: &Observed) -> Plan {
    let name = observed.name();
    let waits = |message: String| Plan::state(Progress::Offering(message));
    let export = match &observed.export {
        Export::None => {
            let message = format!("VirtualMachineExport {name} is being created");
            return Plan::step(Step::Offer, Progress::Offering(message));
        }
        Export::Foreign => {
            return waits(format!(
                "VirtualMachineExport {name} does not belong to the backup; delete it"
            ));
        }
        Export::Own(export) => export,
    };
    if export.metadata.deletion_timestamp.is_some() {
        return waits(format!("VirtualMachineExport {name} is being deleted"));
    }
    if links(export).is_some() {
        return Plan::state(Progress::Offered);
    }
    let conditions = export.status.iter().flat_map(|status| &status.conditions);
    let ready = conditions
        .filter(|one| one.type_ == ConditionType::Ready)
        .find_map(|one| one.message.clone());
    waits(match ready.filter(|message| !message.is_empty()) {
        Some(message) => format!("VirtualMachineExport {name}: {message}"),
        None => format!("VirtualMachineExport {name} is starting"),
    })
}

/// The addresses of an export that is ready: those for clients outside of the cluster, if there are any.
pub(super) fn links(export: &VirtualMachineExport) -> Option<&VirtualMachineExportLink> {
    let status = export.status.as_ref()?;
    let links = status.links.as_ref()?;
    let has_disks = |link: &&VirtualMachineExportLink| !link.backups.is_empty();
    let external = links.external.as_ref().filter(has_disks);
    let found = external.or_else(|| links.internal.as_ref().filter(has_disks));
    found.filter(|_| status.phase == Some(Phase::Ready))
}

/// A disk of the backup, with its addresses.
pub(super) fn volume(name: &str, links: Option<&VirtualMachineExportLink>) -> BackupVolumeInfo {
    let mut disks = links.into_iter().flat_map(|link| &link.backups);
    let disk = disks.find(|disk| disk.name == name);
    let url = |kind: Endpoint| {
        let mut endpoints = disk.into_iter().flat_map(|disk| &disk.endpoints);
        let found = endpoints.find(|one| one.endpoint == kind);
        found.map(|one| one.url.clone())
    };
    BackupVolumeInfo {
        volume_name: name.to_owned(),
        data_endpoint: url(Endpoint::Data),
        map_endpoint: url(Endpoint::Map),
    }
}

/// The export of the backup.
pub(super) fn export(observed: &Observed) -> Value {
    let metadata = &observed.backup.metadata;
    let spec = &observed.backup.spec;
    let left = time_left(observed).unwrap_or_default();
    let lifetime = SLACK.unsigned_abs().saturating_add(left);
    json!({
        "apiVersion": VirtualMachineExport::API_VERSION,
        "kind": VirtualMachineExport::KIND,
        "metadata": {
            "name": metadata.name,
            "namespace": metadata.namespace,
            "ownerReferences": [{
                "apiVersion": VirtualMachineBackup::API_VERSION,
                "kind": VirtualMachineBackup::KIND,
                "name": metadata.name,
                "uid": metadata.uid,
                "controller": true,
                "blockOwnerDeletion": true,
            }],
        },
        "spec": {
            "source": {
                "apiGroup": VirtualMachineBackup::GROUP,
                "kind": VirtualMachineBackup::KIND,
                "name": metadata.name,
            },
            "tokenSecretRef": spec.token_secret_ref,
            "ttlDuration": format!("{}s", lifetime.as_secs()),
        },
    })
}
