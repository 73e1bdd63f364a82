//! Exports.

use kubevirt_api::{
    GROUP, VirtualMachine, backup::VirtualMachineBackup, export::VirtualMachineExport,
    snapshot::VirtualMachineSnapshot,
};
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Kind, Problem, TypedRequest},
    refusals::{duration, immutable},
};

type Request<'a> = TypedRequest<'a, VirtualMachineExport>;

const CLAIM: &str = "PersistentVolumeClaim";
const TEMPLATE: &str = "VirtualMachineTemplate";

/// The kinds that can be exported, with their API group.
const SOURCES: &[(&str, &str)] = &[
    (CLAIM, ""),
    (VirtualMachineSnapshot::KIND, VirtualMachineSnapshot::GROUP),
    (VirtualMachine::KIND, GROUP),
    (VirtualMachineBackup::KIND, VirtualMachineBackup::GROUP),
    (TEMPLATE, "template.kubevirt.io"),
];

impl Kind for VirtualMachineExport {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "export.source-kind",
            Subject::Export,
            "the source is of a kind that can be exported",
            source_kind,
        ),
        Rule::new(
            "export.source-group",
            Subject::Export,
            "the source's group matches its kind",
            source_group,
        ),
        Rule::new(
            "export.source-name",
            Subject::Export,
            "the source has a name",
            source_name,
        ),
        Rule::new(
            "export.template",
            Subject::Export,
            "templates cannot be exported",
            template,
        ),
        Rule::new(
            "export.ttl",
            Subject::Export,
            "ttlDuration is a duration",
            |request| duration("spec.ttlDuration", request.new.spec.ttl_duration.as_ref()),
        ),
        Rule::new(
            "export.fixed",
            Subject::Export,
            "the spec is immutable",
            spec_is_immutable,
        ),
    ];
}

fn source_kind(request: &Request<'_>) -> Vec<Problem> {
    let kind = request.new.spec.source.kind.as_str();
    if SOURCES.iter().any(|(known, _)| *known == kind) {
        return Vec::new();
    }
    let known: Vec<&str> = SOURCES
        .iter()
        .map(|(kind, _)| *kind)
        .filter(|kind| *kind != TEMPLATE)
        .collect();
    let detail = format!(
        "{kind:?} cannot be exported; use one of {}",
        known.join(", ")
    );
    vec![Violation::invalid("spec.source.kind", detail).into()]
}

fn source_group(request: &Request<'_>) -> Vec<Problem> {
    let source = &request.new.spec.source;
    let given = source.api_group.as_deref().unwrap_or_default();
    let Some((kind, group)) = SOURCES.iter().find(|(kind, _)| *kind == source.kind) else {
        return Vec::new();
    };
    if given == *group {
        return Vec::new();
    }
    let detail = match *group {
        "" => format!("{given:?} is wrong for a {kind}; leave it empty"),
        group => format!("{given:?} is wrong for a {kind}; use {group}"),
    };
    vec![Violation::invalid("spec.source.apiGroup", detail).into()]
}

fn source_name(request: &Request<'_>) -> Vec<Problem> {
    if !request.new.spec.source.name.is_empty() {
        return Vec::new();
    }
    let detail = "empty; name the object to export";
    vec![Violation::invalid("spec.source.name", detail).into()]
}

/// The template API belongs to another project; see the decision note on API groups.
fn template(request: &Request<'_>) -> Vec<Problem> {
    if request.new.spec.source.kind != TEMPLATE {
        return Vec::new();
    }
    let detail = if request.config.has_gate("OCIExport") {
        "this version cannot export templates; export the VirtualMachine instead"
    } else {
        "feature gate OCIExport is off; export the VirtualMachine instead"
    };
    vec![Violation::invalid("spec.source.kind", detail).into()]
}

fn spec_is_immutable(request: &Request<'_>) -> Vec<Problem> {
    let old = request.old.map(|old| &old.spec);
    immutable(old, &request.new.spec, "export")
}
