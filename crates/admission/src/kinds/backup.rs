//! Backups and their trackers.

use kubevirt_api::backup::{VirtualMachineBackup, VirtualMachineBackupTracker};
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    references,
    refusals::{duration, immutable, is_empty, requires_gate},
    related::Lookup,
};

type Request<'a> = TypedRequest<'a, VirtualMachineBackup>;

const GATE: &str = "IncrementalBackup";

impl Kind for VirtualMachineBackup {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "backup.gate",
            Subject::Backup,
            "backups need the gate IncrementalBackup",
            |request| requires_gate(request, GATE),
        ),
        Rule::new(
            "backup.name",
            Subject::Backup,
            "no other backup has the name",
            name_is_free,
        ),
        Rule::new(
            "backup.alone",
            Subject::Backup,
            "no other unfinished backup has the same source",
            is_only_backup,
        ),
        Rule::new(
            "backup.claim",
            Subject::Backup,
            "a PVC is named in every mode",
            claim,
        ),
        Rule::new(
            "backup.token",
            Subject::Backup,
            "mode Pull needs a token secret",
            token,
        ),
        Rule::new(
            "backup.source",
            Subject::Backup,
            "the source is a VM or a tracker, and has a name",
            source,
        ),
        Rule::new(
            "backup.ttl",
            Subject::Backup,
            "ttlDuration is a duration",
            |request| duration("spec.ttlDuration", request.new.spec.ttl_duration.as_ref()),
        ),
        Rule::new(
            "backup.fixed",
            Subject::Backup,
            "the spec is immutable",
            |request| {
                immutable(
                    request.old.map(|old| &old.spec),
                    &request.new.spec,
                    "backup",
                )
            },
        ),
    ];

    fn lookups(request: &Request<'_>) -> Vec<Lookup> {
        let namespace = request.new.metadata.namespace.clone().unwrap_or_default();
        let backups = request.is_create().then_some(Lookup::Backups { namespace });
        backups.into_iter().collect()
    }
}

impl Kind for VirtualMachineBackupTracker {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "backup-tracker.gate",
            Subject::Backup,
            "trackers need the gate IncrementalBackup",
            |request| requires_gate(request, GATE),
        ),
        Rule::new(
            "backup-tracker.source",
            Subject::Backup,
            "the source is a VM and has a name",
            tracked,
        ),
        Rule::new(
            "backup-tracker.fixed",
            Subject::Backup,
            "the spec is immutable",
            |request| {
                immutable(
                    request.old.map(|old| &old.spec),
                    &request.new.spec,
                    "tracker",
                )
            },
        ),
    ];
}

fn name_is_free(request: &Request<'_>) -> Vec<Problem> {
    let own = request.new.metadata.name.as_deref().unwrap_or_default();
    let is_taken = request.is_create()
        && !own.is_empty()
        && request
            .related
            .backups
            .iter()
            .any(|other| other.metadata.name.as_deref() == Some(own));
    if !is_taken {
        return Vec::new();
    }
    let detail = format!("backup {own:?} exists; choose another name or delete it first");
    vec![Violation::invalid("metadata.name", detail).into()]
}

fn is_only_backup(request: &Request<'_>) -> Vec<Problem> {
    if !request.is_create() {
        return Vec::new();
    }
    let own = request.new.metadata.name.as_deref();
    let others = request.related.backups.iter().filter(|other| {
        !is_finished(other)
            && other.metadata.name.as_deref() != own
            && references::same(&other.spec.source, &request.new.spec.source)
    });
    let problems = others.map(|other| {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        let detail =
            format!("backup {name:?} of this source is in progress; wait for it or delete it");
        Violation::invalid("spec.source", detail).into()
    });
    problems.collect()
}

/// Whether a backup has completed or failed.
fn is_finished(backup: &VirtualMachineBackup) -> bool {
    let conditions = backup.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| ["Complete", "Failed"].contains(&condition.type_.as_str()))
        .any(|condition| condition.status == "True")
}

fn claim(request: &Request<'_>) -> Vec<Problem> {
    if !is_empty(request.new.spec.pvc_name.as_deref()) {
        return Vec::new();
    }
    let detail = "missing; name the PVC to write to, which both modes need";
    vec![Violation::invalid("spec.pvcName", detail).into()]
}

fn token(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let is_pull = spec
        .mode
        .as_ref()
        .is_some_and(|mode| mode.as_str() == "Pull");
    if !is_pull || !is_empty(spec.token_secret_ref.as_deref()) {
        return Vec::new();
    }
    let detail = "missing; mode Pull needs a Secret whose key token is the password";
    vec![Violation::invalid("spec.tokenSecretRef", detail).into()]
}

fn source(request: &Request<'_>) -> Vec<Problem> {
    let source = &request.new.spec.source;
    let tracker = VirtualMachineBackupTracker::KIND;
    if references::is(source, VirtualMachineBackupTracker::GROUP, tracker) {
        return named(&source.name);
    }
    let mut found = references::group_of_vm("spec.source", source);
    if found.is_empty() {
        found = references::kind_of_vm("spec.source", source);
    }
    found.extend(named(&source.name));
    found
}

fn tracked(request: &TypedRequest<'_, VirtualMachineBackupTracker>) -> Vec<Problem> {
    let source = &request.new.spec.source;
    let mut found = references::group_of_vm("spec.source", source);
    found.extend(references::kind_of_vm("spec.source", source));
    found.extend(named(&source.name));
    found
}

fn named(name: &str) -> Vec<Problem> {
    if !name.is_empty() {
        return Vec::new();
    }
    vec![Violation::invalid("spec.source.name", "empty; name the source").into()]
}
