//! Snapshots, and what is in them.

use kubevirt_api::snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent};

use super::{Asked, Check, Fault, Kind, behind, duration, fixed, references};
use crate::rules::Rule;

type Question<'a> = Asked<'a, VirtualMachineSnapshot>;

impl Kind for VirtualMachineSnapshot {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "snapshot.gate",
            "4",
            "snapshots need the gate Snapshot",
            |asked| behind(asked, "Snapshot"),
        ),
        Rule::new(
            "snapshot.source-group",
            "4",
            "the source's group is kubevirt.io",
            |asked| references::group_of_vm("spec.source", &asked.new.spec.source),
        ),
        Rule::new(
            "snapshot.source-kind",
            "4",
            "the source is a VirtualMachine",
            |asked| references::kind_of_vm("spec.source", &asked.new.spec.source),
        ),
        Rule::new(
            "snapshot.deadline",
            "4",
            "failureDeadline is a duration",
            |asked| {
                duration(
                    "spec.failureDeadline",
                    asked.new.spec.failure_deadline.as_ref(),
                )
            },
        ),
        Rule::new(
            "snapshot.fixed",
            "4",
            "the spec is fixed once made",
            spec_is_fixed,
        ),
    ];
}

/// Made by a controller, which needs no rules; a person who makes one is told what becomes of it.
impl Kind for VirtualMachineSnapshotContent {
    const RULES: &'static [Rule<Check<Self>>] = &[];
}

fn spec_is_fixed(asked: &Question<'_>) -> Vec<Fault> {
    let old = asked.old.map(|old| &old.spec);
    fixed(old, &asked.new.spec, "snapshot")
}
