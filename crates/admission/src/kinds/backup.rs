//! Backups and their trackers.

use kubevirt_api::backup::{VirtualMachineBackup, VirtualMachineBackupTracker};

use super::{Asked, Check, Fault, Kind, Need, behind, duration, fixed, is_empty, references};
use crate::{Violation, rules::Rule};

type Question<'a> = Asked<'a, VirtualMachineBackup>;

const GATE: &str = "IncrementalBackup";

impl Kind for VirtualMachineBackup {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "backup.gate",
            "4",
            "backups need the gate IncrementalBackup",
            |asked| behind(asked, GATE),
        ),
        Rule::new(
            "backup.name",
            "4",
            "no other backup has the name",
            name_is_free,
        ),
        Rule::new(
            "backup.alone",
            "4",
            "no other unfinished backup has the same source",
            is_alone,
        ),
        Rule::new("backup.claim", "4", "a claim is named in every mode", claim),
        Rule::new("backup.token", "4", "mode Pull needs a password", token),
        Rule::new(
            "backup.source",
            "4",
            "the source is a VM or a tracker, and has a name",
            source,
        ),
        Rule::new("backup.ttl", "4", "ttlDuration is a duration", |asked| {
            duration("spec.ttlDuration", asked.new.spec.ttl_duration.as_ref())
        }),
        Rule::new(
            "backup.fixed",
            "4",
            "the spec is fixed once made",
            |asked| fixed(asked.old.map(|old| &old.spec), &asked.new.spec, "backup"),
        ),
    ];

    fn needs(asked: &Question<'_>) -> Vec<Need> {
        let namespace = asked.new.metadata.namespace.clone().unwrap_or_default();
        let backups = asked.is_new().then_some(Need::Backups { namespace });
        backups.into_iter().collect()
    }
}

impl Kind for VirtualMachineBackupTracker {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "backup-tracker.gate",
            "4",
            "trackers need the gate IncrementalBackup",
            |asked| behind(asked, GATE),
        ),
        Rule::new(
            "backup-tracker.source",
            "4",
            "the source is a VM and has a name",
            tracked,
        ),
        Rule::new(
            "backup-tracker.fixed",
            "4",
            "the spec is fixed once made",
            |asked| fixed(asked.old.map(|old| &old.spec), &asked.new.spec, "tracker"),
        ),
    ];
}

fn name_is_free(asked: &Question<'_>) -> Vec<Fault> {
    let own = asked.new.metadata.name.as_deref().unwrap_or_default();
    let is_taken = asked.is_new()
        && !own.is_empty()
        && asked
            .among
            .backups
            .iter()
            .any(|other| other.metadata.name.as_deref() == Some(own));
    if !is_taken {
        return Vec::new();
    }
    let detail = format!("backup {own:?} exists; choose another name or delete it first");
    vec![Violation::invalid("metadata.name", detail).into()]
}

fn is_alone(asked: &Question<'_>) -> Vec<Fault> {
    if !asked.is_new() {
        return Vec::new();
    }
    let own = asked.new.metadata.name.as_deref();
    let others = asked.among.backups.iter().filter(|other| {
        !is_over(other)
            && other.metadata.name.as_deref() != own
            && references::same(&other.spec.source, &asked.new.spec.source)
    });
    let faults = others.map(|other| {
        let name = other.metadata.name.as_deref().unwrap_or_default();
        let detail =
            format!("backup {name:?} of this source is under way; wait for it or delete it");
        Violation::invalid("spec.source", detail).into()
    });
    faults.collect()
}

/// Whether a backup came to an end, good or bad.
fn is_over(backup: &VirtualMachineBackup) -> bool {
    let conditions = backup.status.iter().flat_map(|status| &status.conditions);
    conditions
        .filter(|condition| ["Complete", "Failed"].contains(&condition.type_.as_str()))
        .any(|condition| condition.status == "True")
}

fn claim(asked: &Question<'_>) -> Vec<Fault> {
    if !is_empty(asked.new.spec.pvc_name.as_deref()) {
        return Vec::new();
    }
    let detail = "missing; name the claim to write to, which both modes need";
    vec![Violation::invalid("spec.pvcName", detail).into()]
}

fn token(asked: &Question<'_>) -> Vec<Fault> {
    let spec = &asked.new.spec;
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

fn source(asked: &Question<'_>) -> Vec<Fault> {
    let source = &asked.new.spec.source;
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

fn tracked(asked: &Asked<'_, VirtualMachineBackupTracker>) -> Vec<Fault> {
    let source = &asked.new.spec.source;
    let mut found = references::group_of_vm("spec.source", source);
    found.extend(references::kind_of_vm("spec.source", source));
    found.extend(named(&source.name));
    found
}

fn named(name: &str) -> Vec<Fault> {
    if !name.is_empty() {
        return Vec::new();
    }
    vec![Violation::invalid("spec.source.name", "empty; name the source").into()]
}
