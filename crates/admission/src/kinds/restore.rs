//! Restores.

use std::collections::BTreeSet;

use kubevirt_api::restore::{
    VirtualMachineRestore, VirtualMachineRestoreSpec, VolumeOwnershipPolicy, VolumeRestorePolicy,
};
use model::KeptState;
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    patches, references,
    refusals::{immutable, is_empty, requires_gate},
    related::Lookup,
};

type Request<'a> = TypedRequest<'a, VirtualMachineRestore>;

/// The paths that patches may change.
pub(super) const PATCHABLE: &[&str] = &["/spec/", "/metadata/labels/", "/metadata/annotations/"];

impl Kind for VirtualMachineRestore {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "restore.gate",
            Subject::Restore,
            "restores need the gate Snapshot",
            |request| requires_gate(request, "Snapshot"),
        ),
        Rule::new(
            "restore.target-group",
            Subject::Restore,
            "the target's group is kubevirt.io",
            |request| references::group_of_vm("spec.target", &request.new.spec.target),
        ),
        Rule::new(
            "restore.target-kind",
            Subject::Restore,
            "the target is a VirtualMachine",
            |request| references::kind_of_vm("spec.target", &request.new.spec.target),
        ),
        Rule::new(
            "restore.patches",
            Subject::Restore,
            "patches are JSON patch operations",
            |request| patches::are_operations("spec.patches", &request.new.spec.patches),
        ),
        Rule::new(
            "restore.patched-paths",
            Subject::Restore,
            "patches stay below spec, labels and annotations",
            |request| patches::stay_below("spec.patches", &request.new.spec.patches, PATCHABLE),
        ),
        Rule::new(
            "restore.override-volume",
            Subject::Restore,
            "an override names its volume",
            override_volume,
        ),
        Rule::new(
            "restore.override-content",
            Subject::Restore,
            "an override is not empty",
            override_content,
        ),
        Rule::new(
            "restore.volume-policy",
            Subject::Restore,
            "volumeRestorePolicy is known",
            volume_policy,
        ),
        Rule::new(
            "restore.ownership-policy",
            Subject::Restore,
            "volumeOwnershipPolicy is known",
            ownership_policy,
        ),
        Rule::new(
            "restore.backend-storage",
            Subject::Restore,
            "a guest with persistent TPM or firmware state is restored into its own VM only",
            backend_storage,
        ),
        Rule::new(
            "restore.alone",
            Subject::Restore,
            "no other unfinished restore has the same target",
            is_only_restore,
        ),
        Rule::new(
            "restore.fixed",
            Subject::Restore,
            "the spec is immutable",
            spec_is_immutable,
        ),
    ];

    fn lookups(request: &Request<'_>) -> Vec<Lookup> {
        if !request.is_create() {
            return Vec::new();
        }
        let namespace = request.new.metadata.namespace.clone().unwrap_or_default();
        let snapshot = request.new.spec.virtual_machine_snapshot_name.clone();
        vec![
            Lookup::Restores {
                namespace: namespace.clone(),
            },
            Lookup::Vm {
                namespace: namespace.clone(),
                name: request.new.spec.target.name.clone(),
            },
            Lookup::Snapshot {
                namespace: namespace.clone(),
                name: snapshot,
            },
            Lookup::Content { namespace },
        ]
    }
}

fn override_volume(request: &Request<'_>) -> Vec<Problem> {
    let overrides = request.new.spec.volume_restore_overrides.iter().enumerate();
    let nameless = overrides.filter(|(_, one)| is_empty(one.volume_name.as_deref()));
    let problems = nameless.map(|(i, _)| {
        let field = format!("spec.volumeRestoreOverrides[{i}].volumeName");
        Violation::required(field, "empty; name the volume of the VM").into()
    });
    problems.collect()
}

fn override_content(request: &Request<'_>) -> Vec<Problem> {
    let overrides = request.new.spec.volume_restore_overrides.iter().enumerate();
    let idle = overrides.filter(|(_, one)| {
        is_empty(one.restore_name.as_deref()) && one.labels.is_empty() && one.annotations.is_empty()
    });
    let problems = idle.map(|(i, _)| {
        let field = format!("spec.volumeRestoreOverrides[{i}]");
        let detail = "overrides nothing; give restoreName, labels or annotations, or leave it out";
        Violation::required(field, detail).into()
    });
    problems.collect()
}

fn volume_policy(request: &Request<'_>) -> Vec<Problem> {
    let policy = request.new.spec.volume_restore_policy.as_ref();
    let value = policy.map(VolumeRestorePolicy::as_str);
    unknown_value(
        "spec.volumeRestorePolicy",
        value,
        VolumeRestorePolicy::KNOWN,
    )
}

fn ownership_policy(request: &Request<'_>) -> Vec<Problem> {
    let policy = request.new.spec.volume_ownership_policy.as_ref();
    let value = policy.map(VolumeOwnershipPolicy::as_str);
    unknown_value(
        "spec.volumeOwnershipPolicy",
        value,
        VolumeOwnershipPolicy::KNOWN,
    )
}

pub(super) fn unknown_value(field: &str, value: Option<&str>, known: &[&str]) -> Vec<Problem> {
    match value {
        Some(value) if !value.is_empty() && !known.contains(&value) => {
            let detail = format!("{value:?} is unknown; use one of {}", known.join(", "));
            vec![Violation::invalid(field, detail).into()]
        }
        _ => Vec::new(),
    }
}

/// Guest state outside the disks stays with the VM of the snapshot. A snapshot that does not exist yet
/// is not a problem: the restore waits for it.
fn backend_storage(request: &Request<'_>) -> Vec<Problem> {
    let among = request.related;
    let (Some(snapshot), Some(content)) = (&among.snapshot, &among.content) else {
        return Vec::new();
    };
    let source = content.spec.source.virtual_machine.as_ref();
    let needs_storage = source
        .and_then(|vm| vm.spec.as_ref()?.template.spec.as_ref())
        .is_some_and(|guest| KeptState::is_bound_to_vm(&guest.domain));
    let source_uid = snapshot
        .status
        .as_ref()
        .and_then(|status| status.source_uid.as_ref());
    let target_uid = among.vm.as_ref().and_then(|vm| vm.metadata.uid.as_ref());
    if !request.is_create() || !needs_storage || (target_uid.is_some() && target_uid == source_uid)
    {
        return Vec::new();
    }
    let detail = format!(
        "the guest has persistent TPM or firmware state, which belongs to VirtualMachine {:?}; \
         restore into that VM",
        snapshot.spec.source.name
    );
    vec![Violation::invalid("spec.target", detail).into()]
}

fn is_only_restore(request: &Request<'_>) -> Vec<Problem> {
    if !request.is_create() {
        return Vec::new();
    }
    let is_complete = |restore: &&VirtualMachineRestore| {
        let status = restore.status.as_ref();
        status.is_some_and(|status| status.complete == Some(true))
    };
    let own = request.new.metadata.name.as_deref().unwrap_or_default();
    let others: BTreeSet<&str> = request
        .related
        .restores
        .iter()
        .filter(|other| !is_complete(other) && same_target(&other.spec, &request.new.spec))
        .filter_map(|other| other.metadata.name.as_deref())
        .filter(|name| *name != own)
        .collect();
    let problems = others.into_iter().map(|name| {
        let detail =
            format!("restore {name:?} of this target is in progress; wait for it or delete it");
        Violation::invalid("spec.target", detail).into()
    });
    problems.collect()
}

fn same_target(a: &VirtualMachineRestoreSpec, b: &VirtualMachineRestoreSpec) -> bool {
    references::same(&a.target, &b.target)
}

fn spec_is_immutable(request: &Request<'_>) -> Vec<Problem> {
    let old = request.old.map(|old| &old.spec);
    immutable(old, &request.new.spec, "restore")
}
