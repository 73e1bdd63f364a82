//! Causes that restores of backups show.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kubevirt_api::{
    annotations,
    backup::ConditionType as Type,
    backup_restore::{MarkState, RestoreMark, VirtualMachineBackupRestore as Restore},
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
            let (sentence, next) = explain(observed, claim, &mark);
            Finding::new(sentence)
                .because(Reason::ClaimBeingRestored)
                .evidence(
                    format!("pvc/{claim}"),
                    format!("metadata.annotations[{}]", annotations::BACKUP_RESTORE),
                    &mark.name,
                )
                .next(observed.kubectl(&next))
        })
        .collect()
}

/// A sentence, and what to do next.
fn explain(observed: &Observed, claim: &str, mark: &RestoreMark) -> (String, String) {
    let name = &mark.name;
    let is_reserved = mark.state == MarkState::Reserved;
    let mut all = observed.backup_restores.iter();
    let found = all.find(|one| one.metadata.uid.as_ref() == Some(&mark.uid));
    let describe = format!("describe vmbackuprestore {name}");
    let state = match found {
        Some(found) => {
            let status = found.status.clone().unwrap_or_default();
            let phase = status.phase.unwrap_or_default();
            let progress = status.progress.unwrap_or_default();
            format!("is {phase} ({progress})")
        }
        None if observed.was_not_read("vmbackuprestores") => "cannot be read".to_owned(),
        None if is_reserved => {
            // Nothing writes to it any more.
            let sentence = format!(
                "The claim {claim:?} is reserved by the restore {name}, which is gone: it has its old disk, and is free \
                 without the annotation."
            );
            let next = format!("annotate pvc {claim} {}-", annotations::BACKUP_RESTORE);
            return (sentence, next);
        }
        None => {
            let sentence = format!(
                "The claim {claim:?} has no complete disk: the restore {name}, which wrote to it, is gone. Make another \
                 one onto the claim."
            );
            return (sentence, "get vmbackuprestore".to_owned());
        }
    };
    let problem = if is_reserved {
        format!("is reserved by the restore {name}, which")
    } else {
        format!("has no complete disk: the restore {name} writes to it, and")
    };
    (format!("The claim {claim:?} {problem} {state}."), describe)
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
