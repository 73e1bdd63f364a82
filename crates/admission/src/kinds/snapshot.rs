//! Snapshots and their contents.

use kubevirt_api::snapshot::{VirtualMachineSnapshot, VirtualMachineSnapshotContent};
use validation::{Rule, Subject};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    references,
    refusals::{duration, immutable, requires_gate},
};

type Request<'a> = TypedRequest<'a, VirtualMachineSnapshot>;

impl Kind for VirtualMachineSnapshot {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "snapshot.gate",
            Subject::Snapshot,
            "snapshots need the gate Snapshot",
            |request| requires_gate(request, "Snapshot"),
        ),
        Rule::new(
            "snapshot.source-group",
            Subject::Snapshot,
            "the source's group is kubevirt.io",
            |request| references::group_of_vm("spec.source", &request.new.spec.source),
        ),
        Rule::new(
            "snapshot.source-kind",
            Subject::Snapshot,
            "the source is a VirtualMachine",
            |request| references::kind_of_vm("spec.source", &request.new.spec.source),
        ),
        Rule::new(
            "snapshot.deadline",
            Subject::Snapshot,
            "failureDeadline is a duration",
            |request| {
                duration(
                    "spec.failureDeadline",
                    request.new.spec.failure_deadline.as_ref(),
                )
            },
        ),
        Rule::new(
            "snapshot.fixed",
            Subject::Snapshot,
            "the spec is immutable",
            spec_is_immutable,
        ),
    ];
}

/// Only controllers create contents, so there are no rules.
impl Kind for VirtualMachineSnapshotContent {
    const RULES: &'static [Rule<Check<Self>>] = &[];
}

fn spec_is_immutable(request: &Request<'_>) -> Vec<Problem> {
    let old = request.old.map(|old| &old.spec);
    immutable(old, &request.new.spec, "snapshot")
}
