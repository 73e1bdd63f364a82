//! Causes that the backups of the VM show.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubevirt_api::{
    backup::{ConditionType as Type, VirtualMachineBackup},
    conditions::{self, Condition as _},
};
use reasons::Reason;

use crate::{Finding, Observed};

pub(crate) fn failed(observed: &Observed) -> Vec<Finding> {
    let all = observed.backups.iter();
    let last = all.max_by_key(|one| one.metadata.creation_timestamp.clone());
    let Some((backup, condition)) = last.and_then(|one| holds(one, &Type::Failed)) else {
        return Vec::new();
    };
    let reason = Reason::VirtualMachineBackupFailed;
    let sentence = format!("The last backup of the VM, {}, failed.", name(backup));
    vec![found(observed, backup, condition, reason, sentence)]
}

pub(crate) fn waits(observed: &Observed) -> Vec<Finding> {
    let reason = Reason::Initializing;
    let waiting = observed.backups.iter().filter_map(|backup| {
        let (backup, condition) = holds(backup, &Type::Progressing)?;
        (condition.reason() == reason.as_str()).then_some((backup, condition))
    });
    waiting
        .map(|(backup, condition)| {
            let sentence = format!("The backup {} has not begun.", name(backup));
            found(observed, backup, condition, reason, sentence)
        })
        .collect()
}

pub(crate) fn offered(observed: &Observed) -> Vec<Finding> {
    let sentence = |backup: &VirtualMachineBackup, reason: Reason| {
        let name = name(backup);
        match reason {
            Reason::ExportReady => format!(
                "The disks of the VM are offered by backup {name}, which waits for the client that reads them."
            ),
            _ => format!(
                "The disks of the VM are offered by backup {name}, and its export is not ready."
            ),
        }
    };
    let holding = observed.backups.iter();
    let holding = holding.filter_map(|backup| holds(backup, &Type::Progressing));
    let mut findings = Vec::new();
    for (backup, condition) in holding {
        let mut reasons = [Reason::PreparingExport, Reason::ExportReady].into_iter();
        let reason = reasons.find(|reason| condition.reason() == reason.as_str());
        if let Some(reason) = reason {
            let sentence = sentence(backup, reason);
            findings.push(found(observed, backup, condition, reason, sentence));
        }
    }
    findings
}

/// The condition, if it is true.
fn holds<'a>(
    backup: &'a VirtualMachineBackup,
    kind: &Type,
) -> Option<(&'a VirtualMachineBackup, &'a Condition)> {
    let all = &backup.status.as_ref()?.conditions;
    let found = conditions::find(all, &kind.as_str().to_owned())?;
    (found.status() == conditions::TRUE).then_some((backup, found))
}

fn name(backup: &VirtualMachineBackup) -> &str {
    backup.metadata.name.as_deref().unwrap_or_default()
}

fn found(
    observed: &Observed,
    backup: &VirtualMachineBackup,
    condition: &Condition,
    reason: Reason,
    sentence: String,
) -> Finding {
    let name = name(backup);
    Finding::new(sentence)
        .because(reason)
        .evidence(
            format!("vmbackup/{name}"),
            format!("status.conditions[{}]", condition.type_),
            reason.without_advice(condition.message()),
        )
        .next(observed.kubectl(&format!("describe vmbackup {name}")))
}
