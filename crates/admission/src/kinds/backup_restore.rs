//! Restores of backups.

use std::collections::BTreeSet;

use kubevirt_api::backup_restore::{
    BackupRestoreClaim, BackupRestoreVolume, TargetPolicy, VirtualMachineBackupRestore,
};
use kubevirt_api::quantity::Amount;
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    refusals::{immutable, is_empty, requires_gate},
};

type Request<'a> = TypedRequest<'a, VirtualMachineBackupRestore>;

const GATE: &str = "IncrementalBackup";

impl Kind for VirtualMachineBackupRestore {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "backup-restore.gate",
            Subject::Backup,
            "restores of backups need the gate IncrementalBackup",
            |request| requires_gate(request, GATE),
        ),
        Rule::new(
            "backup-restore.source",
            Subject::Backup,
            "the source is a backup, or a claim and a directory",
            source,
        ),
        Rule::new(
            "backup-restore.claims",
            Subject::Backup,
            "each volume and each claim is listed once, and the backup's claim is no target",
            claims,
        ),
        Rule::new(
            "backup-restore.overwrite",
            Subject::Backup,
            "targetPolicy Overwrite names every claim",
            overwrite,
        ),
        Rule::new(
            "backup-restore.size",
            Subject::Backup,
            "sizes of claims are positive quantities",
            sizes,
        ),
        Rule::new(
            "backup-restore.fixed",
            Subject::Backup,
            "the spec is immutable",
            |request| {
                immutable(
                    request.old.map(|old| &old.spec),
                    &request.new.spec,
                    "restore",
                )
            },
        ),
    ];
}

fn invalid(field: &str, detail: &str) -> Vec<Problem> {
    vec![Violation::invalid(field, detail).into()]
}

fn source(request: &Request<'_>) -> Vec<Problem> {
    let source = &request.new.spec.source;
    let has = |text: &Option<String>| !is_empty(text.as_deref());
    let given = (
        has(&source.backup_name),
        has(&source.pvc_name),
        has(&source.directory),
    );
    if matches!(given, (true, false, false) | (false, true, true)) {
        return Vec::new();
    }
    let detail = "name a VirtualMachineBackup in backupName, or a claim in pvcName and a directory of \
                  it in directory";
    invalid("spec.source", detail)
}

fn claims(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let own = request.new.metadata.name.as_deref().unwrap_or_default();
    let (mut names, mut targets) = (BTreeSet::new(), BTreeSet::new());
    let mut found = Vec::new();
    for (index, volume) in spec.volumes.iter().enumerate() {
        if !names.insert(volume.name.as_str()) {
            let detail = format!("volume {:?} is listed twice", volume.name);
            found.extend(invalid(&format!("spec.volumes[{index}].name"), &detail));
        }
        let default = || format!("{own}-{}", volume.name);
        let claim = volume.claim_name.clone().unwrap_or_else(default);
        let field = format!("spec.volumes[{index}].claimName");
        if spec.source.pvc_name.as_ref() == Some(&claim) {
            let detail = format!("claim {claim:?} has the backup; name another one");
            found.extend(invalid(&field, &detail));
        } else if !targets.insert(claim.clone()) {
            let detail = format!("claim {claim:?} gets another volume; name another one");
            found.extend(invalid(&field, &detail));
        }
    }
    found
}

fn overwrite(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    if spec.target_policy != Some(TargetPolicy::Overwrite) {
        return Vec::new();
    }
    let is_named = |one: &BackupRestoreVolume| {
        !is_empty(one.claim_name.as_deref()) && one.claim_template.is_none()
    };
    if !spec.volumes.is_empty() && spec.volumes.iter().all(is_named) {
        return Vec::new();
    }
    let detail = "targetPolicy Overwrite needs every volume with the claimName of an existing claim, \
                  and no claimTemplate";
    invalid("spec.volumes", detail)
}

fn sizes(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let common = ("spec.claimTemplate.size".to_owned(), &spec.claim_template);
    let volumes = spec.volumes.iter().enumerate();
    let own = volumes.map(|(index, volume)| {
        let field = format!("spec.volumes[{index}].claimTemplate.size");
        (field, &volume.claim_template)
    });
    let all = std::iter::once(common).chain(own);
    all.filter(|(_, template)| template.as_ref().is_some_and(has_no_size))
        .flat_map(|(field, _)| invalid(&field, "give a size such as 20Gi, or leave it out"))
        .collect()
}

/// Whether the size is given, and is none.
fn has_no_size(template: &BackupRestoreClaim) -> bool {
    let size = template.size.as_ref();
    size.is_some_and(|size| Amount::parse(size).map_or(0, Amount::units) == 0)
}
