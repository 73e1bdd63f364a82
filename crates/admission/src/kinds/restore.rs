//! Restores.

use std::collections::BTreeSet;

use kubevirt_api::{
    restore::{
        VirtualMachineRestore, VirtualMachineRestoreSpec, VolumeOwnershipPolicy,
        VolumeRestorePolicy,
    },
    vm::VirtualMachineSpec,
};

use super::{Asked, Check, Fault, Kind, Need, behind, fixed, is_empty, patches, references};
use crate::{Violation, rules::Rule};

type Question<'a> = Asked<'a, VirtualMachineRestore>;

/// What patches may change.
const PATCHABLE: &[&str] = &["/spec/", "/metadata/labels/", "/metadata/annotations/"];

impl Kind for VirtualMachineRestore {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "restore.gate",
            "4",
            "restores need the gate Snapshot",
            |asked| behind(asked, "Snapshot"),
        ),
        Rule::new(
            "restore.target-group",
            "4",
            "the target's group is kubevirt.io",
            |asked| references::group_of_vm("spec.target", &asked.new.spec.target),
        ),
        Rule::new(
            "restore.target-kind",
            "4",
            "the target is a VirtualMachine",
            |asked| references::kind_of_vm("spec.target", &asked.new.spec.target),
        ),
        Rule::new(
            "restore.patches",
            "4",
            "patches are JSON patch operations",
            |asked| patches::are_operations("spec.patches", &asked.new.spec.patches),
        ),
        Rule::new(
            "restore.patched-paths",
            "4",
            "patches stay below spec, labels and annotations",
            |asked| patches::stay_below("spec.patches", &asked.new.spec.patches, PATCHABLE),
        ),
        Rule::new(
            "restore.override-volume",
            "4",
            "an override names its volume",
            override_volume,
        ),
        Rule::new(
            "restore.override-content",
            "4",
            "an override overrides something",
            override_content,
        ),
        Rule::new(
            "restore.volume-policy",
            "4",
            "volumeRestorePolicy is a known word",
            volume_policy,
        ),
        Rule::new(
            "restore.ownership-policy",
            "4",
            "volumeOwnershipPolicy is a known word",
            ownership_policy,
        ),
        Rule::new(
            "restore.backend-storage",
            "4",
            "a guest with a persistent TPM or firmware goes back into its own VM only",
            backend_storage,
        ),
        Rule::new(
            "restore.alone",
            "4",
            "no other unfinished restore has the same target",
            is_alone,
        ),
        Rule::new(
            "restore.fixed",
            "4",
            "the spec is fixed once made",
            spec_is_fixed,
        ),
    ];

    fn needs(asked: &Question<'_>) -> Vec<Need> {
        if !asked.is_new() {
            return Vec::new();
        }
        let namespace = asked.new.metadata.namespace.clone().unwrap_or_default();
        let snapshot = asked.new.spec.virtual_machine_snapshot_name.clone();
        vec![
            Need::Restores {
                namespace: namespace.clone(),
            },
            Need::Machine {
                namespace: namespace.clone(),
                name: asked.new.spec.target.name.clone(),
            },
            Need::Snapshot {
                namespace: namespace.clone(),
                name: snapshot,
            },
            Need::Content { namespace },
        ]
    }
}

fn override_volume(asked: &Question<'_>) -> Vec<Fault> {
    let overrides = asked.new.spec.volume_restore_overrides.iter().enumerate();
    let nameless = overrides.filter(|(_, one)| is_empty(one.volume_name.as_deref()));
    let faults = nameless.map(|(i, _)| {
        let field = format!("spec.volumeRestoreOverrides[{i}].volumeName");
        Violation::required(field, "empty; name the volume of the VM").into()
    });
    faults.collect()
}

fn override_content(asked: &Question<'_>) -> Vec<Fault> {
    let overrides = asked.new.spec.volume_restore_overrides.iter().enumerate();
    let idle = overrides.filter(|(_, one)| {
        is_empty(one.restore_name.as_deref()) && one.labels.is_empty() && one.annotations.is_empty()
    });
    let faults = idle.map(|(i, _)| {
        let field = format!("spec.volumeRestoreOverrides[{i}]");
        let detail = "overrides nothing; give restoreName, labels or annotations, or leave it out";
        Violation::required(field, detail).into()
    });
    faults.collect()
}

fn volume_policy(asked: &Question<'_>) -> Vec<Fault> {
    let policy = asked.new.spec.volume_restore_policy.as_ref();
    let word = policy.map(VolumeRestorePolicy::as_str);
    unknown_word("spec.volumeRestorePolicy", word, VolumeRestorePolicy::KNOWN)
}

fn ownership_policy(asked: &Question<'_>) -> Vec<Fault> {
    let policy = asked.new.spec.volume_ownership_policy.as_ref();
    let word = policy.map(VolumeOwnershipPolicy::as_str);
    unknown_word(
        "spec.volumeOwnershipPolicy",
        word,
        VolumeOwnershipPolicy::KNOWN,
    )
}

fn unknown_word(field: &str, word: Option<&str>, known: &[&str]) -> Vec<Fault> {
    match word {
        Some(word) if !word.is_empty() && !known.contains(&word) => {
            let detail = format!("{word:?} is unknown; use one of {}", known.join(", "));
            vec![Violation::invalid(field, detail).into()]
        }
        _ => Vec::new(),
    }
}

/// The guest's state outside its disks lives with the VM it was taken from, and nowhere else. A
/// snapshot that is not there yet is no fault: the restore waits for it.
fn backend_storage(asked: &Question<'_>) -> Vec<Fault> {
    let among = asked.among;
    let (Some(snapshot), Some(content)) = (&among.snapshot, &among.content) else {
        return Vec::new();
    };
    let source = content.spec.source.virtual_machine.as_ref();
    let needs_storage = source
        .and_then(|vm| vm.spec.as_ref())
        .is_some_and(keeps_state);
    let source_uid = snapshot
        .status
        .as_ref()
        .and_then(|status| status.source_uid.as_ref());
    let target_uid = among
        .machine
        .as_ref()
        .and_then(|vm| vm.metadata.uid.as_ref());
    if !asked.is_new() || !needs_storage || (target_uid.is_some() && target_uid == source_uid) {
        return Vec::new();
    }
    let detail = format!(
        "the guest keeps a TPM or firmware state, which stays with VirtualMachine {:?}; restore \
         into that one while it exists",
        snapshot.spec.source.name
    );
    vec![Violation::invalid("spec.target", detail).into()]
}

/// Whether a guest has state that outlives it besides its disks.
fn keeps_state(spec: &VirtualMachineSpec) -> bool {
    let Some(domain) = spec.template.spec.as_ref().map(|guest| &guest.domain) else {
        return false;
    };
    let tpm = domain.devices.tpm.as_ref();
    let efi = domain
        .firmware
        .as_ref()
        .and_then(|firmware| firmware.bootloader.as_ref())
        .and_then(|bootloader| bootloader.efi.as_ref());
    tpm.is_some_and(|tpm| tpm.enabled != Some(false) && tpm.persistent == Some(true))
        || efi.is_some_and(|efi| efi.persistent == Some(true))
}

fn is_alone(asked: &Question<'_>) -> Vec<Fault> {
    if !asked.is_new() {
        return Vec::new();
    }
    let is_complete = |restore: &&VirtualMachineRestore| {
        let status = restore.status.as_ref();
        status.is_some_and(|status| status.complete == Some(true))
    };
    let own = asked.new.metadata.name.as_deref().unwrap_or_default();
    let others: BTreeSet<&str> = asked
        .among
        .restores
        .iter()
        .filter(|other| !is_complete(other) && same_target(&other.spec, &asked.new.spec))
        .filter_map(|other| other.metadata.name.as_deref())
        .filter(|name| *name != own)
        .collect();
    let faults = others.into_iter().map(|name| {
        let detail =
            format!("restore {name:?} of this target is under way; wait for it or delete it");
        Violation::invalid("spec.target", detail).into()
    });
    faults.collect()
}

fn same_target(a: &VirtualMachineRestoreSpec, b: &VirtualMachineRestoreSpec) -> bool {
    references::same(&a.target, &b.target)
}

fn spec_is_fixed(asked: &Question<'_>) -> Vec<Fault> {
    let old = asked.old.map(|old| &old.spec);
    fixed(old, &asked.new.spec, "restore")
}
