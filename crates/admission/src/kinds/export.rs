//! Exports.

use kubevirt_api::{
    GROUP, VirtualMachine, backup::VirtualMachineBackup, export::VirtualMachineExport,
    snapshot::VirtualMachineSnapshot,
};

use super::{Asked, Check, Fault, Kind, duration, fixed};
use crate::{Violation, rules::Rule};

type Question<'a> = Asked<'a, VirtualMachineExport>;

const CLAIM: &str = "PersistentVolumeClaim";
const TEMPLATE: &str = "VirtualMachineTemplate";

/// Group of each kind that can be exported.
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
            "4",
            "the source is of a kind that can be exported",
            source_kind,
        ),
        Rule::new(
            "export.source-group",
            "4",
            "the source's group is that of its kind",
            source_group,
        ),
        Rule::new(
            "export.source-name",
            "4",
            "the source has a name",
            source_name,
        ),
        Rule::new(
            "export.template",
            "4",
            "templates need the gate OCIExport and their own server",
            template,
        ),
        Rule::new("export.ttl", "4", "ttlDuration is a duration", |asked| {
            duration("spec.ttlDuration", asked.new.spec.ttl_duration.as_ref())
        }),
        Rule::new(
            "export.fixed",
            "4",
            "the spec is fixed once made",
            spec_is_fixed,
        ),
    ];
}

fn source_kind(asked: &Question<'_>) -> Vec<Fault> {
    let kind = asked.new.spec.source.kind.as_str();
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

fn source_group(asked: &Question<'_>) -> Vec<Fault> {
    let source = &asked.new.spec.source;
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

fn source_name(asked: &Question<'_>) -> Vec<Fault> {
    if !asked.new.spec.source.name.is_empty() {
        return Vec::new();
    }
    let detail = "empty; name what is exported";
    vec![Violation::invalid("spec.source.name", detail).into()]
}

/// Templates are another project's: see the decision note on groups.
fn template(asked: &Question<'_>) -> Vec<Fault> {
    if asked.new.spec.source.kind != TEMPLATE {
        return Vec::new();
    }
    let detail = if asked.config.has_gate("OCIExport") {
        "templates have no server in this version; export the VirtualMachine instead"
    } else {
        "feature gate OCIExport is off; export the VirtualMachine instead"
    };
    vec![Violation::invalid("spec.source.kind", detail).into()]
}

fn spec_is_fixed(asked: &Question<'_>) -> Vec<Fault> {
    let old = asked.old.map(|old| &old.spec);
    fixed(old, &asked.new.spec, "export")
}
