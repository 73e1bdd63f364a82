//! Causes that restores of backups show.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubevirt_api::{
    annotations,
    backup::ConditionType as Type,
    backup_restore::{RestoreMark, VirtualMachineBackupRestore as Restore},
    conditions::{self, Condition as _},
};
use reasons::Reason;

use crate::{Finding, Observed};

/// A claim of the VM without a complete disk, by its annotation.
pub(crate) fn claim_waits(observed: &Observed) -> Vec<Finding> {
    let claims = observed
        .claims
        .iter()
        .filter_map(|(name, claim)| Some((name, claim.as_ref()?)));
    let marked = claims.filter_map(|(name, claim)| {
        let all = claim.metadata.annotations.as_ref()?;
        let mark = RestoreMark::parse(all.get(annotations::BACKUP_RESTORE)?)?;
        mark.is_open().then_some((name, mark))
    });
    marked
        .map(|(claim, mark)| {
            let restore = &mark.name;
            let mut all = observed.backup_restores.iter();
            let found = all.find(|one| one.metadata.uid.as_ref() == Some(&mark.uid));
            let state = match found {
                None => "is gone".to_owned(),
                Some(found) => {
                    let status = found.status.clone().unwrap_or_default();
                    let phase = status.phase.unwrap_or_default();
                    let progress = status.progress.unwrap_or_default();
                    format!("is {phase} ({progress})")
                }
            };
            let sentence = format!(
                "The claim {claim:?} has no complete disk: the restore {restore} writes to it, and {state}."
            );
            Finding::new(sentence)
                .because(Reason::ClaimBeingRestored)
                .evidence(
                    format!("pvc/{claim}"),
                    format!("metadata.annotations[{}]", annotations::BACKUP_RESTORE),
                    restore,
                )
                .next(observed.kubectl(&format!("describe vmbackuprestore {restore}")))
        })
        .collect()
}

pub(crate) fn failed(observed: &Observed) -> Vec<Finding> {
    let all = observed.backup_restores.iter();
    let last = all.max_by_key(|one| one.metadata.creation_timestamp.clone());
    let Some((restore, condition)) = last.and_then(|one| holds(one, &Type::Failed)) else {
        return Vec::new();
    };
    let reason = Reason::VirtualMachineBackupRestoreFailed;
    let sentence = format!("The last restore of a backup, {}, failed.", name(restore));
    vec![found(observed, restore, condition, reason, sentence)]
}

pub(crate) fn waits(observed: &Observed) -> Vec<Finding> {
    let reason = Reason::BackupRestoreWaits;
    let waiting = observed.backup_restores.iter().filter_map(|restore| {
        let (restore, condition) = holds(restore, &Type::Progressing)?;
        (condition.reason() == reason.as_str()).then_some((restore, condition))
    });
    waiting
        .map(|(restore, condition)| {
            let sentence = format!("The restore {} waits.", name(restore));
            found(observed, restore, condition, reason, sentence)
        })
        .collect()
}

/// The condition, if it is true.
fn holds<'a>(restore: &'a Restore, kind: &Type) -> Option<(&'a Restore, &'a Condition)> {
    let all = &restore.status.as_ref()?.conditions;
    let found = conditions::find(all, &kind.as_str().to_owned())?;
    (found.status() == conditions::TRUE).then_some((restore, found))
}

fn name(restore: &Restore) -> &str {
    restore.metadata.name.as_deref().unwrap_or_default()
}

fn found(
    observed: &Observed,
    restore: &Restore,
    condition: &Condition,
    reason: Reason,
    sentence: String,
) -> Finding {
    let name = name(restore);
    // The condition has the remedy of its own reason.
    let message = Reason::ALL
        .iter()
        .find(|one| one.as_str() == condition.reason())
        .map_or(condition.message(), |one| {
            one.without_advice(condition.message())
        });
    Finding::new(sentence)
        .because(reason)
        .evidence(
            format!("vmbackuprestore/{name}"),
            format!("status.conditions[{}]", condition.type_),
            message,
        )
        .next(observed.kubectl(&format!("describe vmbackuprestore {name}")))
}
