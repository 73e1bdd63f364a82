//! Clones.

use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use kubevirt_api::{
    GROUP, VirtualMachine, clone::VirtualMachineClone, snapshot::VirtualMachineSnapshot,
};

use super::{Asked, Check, Fault, Fill, Kind, behind, is_empty, patches, references};
use crate::{Surroundings, Violation, rules::Rule};

type Question<'a> = Asked<'a, VirtualMachineClone>;

/// So many characters of chance end a made-up name.
const CHANCE: usize = 5;
/// Names of objects are at most that long.
const NAME: usize = 253;

impl Kind for VirtualMachineClone {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "clone.gate",
            "4",
            "clones need the gate Snapshot",
            |asked| behind(asked, "Snapshot"),
        ),
        Rule::new(
            "clone.source-given",
            "4",
            "the source has a group, a kind and a name",
            source_given,
        ),
        Rule::new(
            "clone.source-kind",
            "4",
            "the source is a VM or a snapshot",
            source_kind,
        ),
        Rule::new("clone.target-kind", "4", "the target is a VM", target_kind),
        Rule::new(
            "clone.target-name",
            "4",
            "a VM is not cloned onto itself",
            target_name,
        ),
        Rule::new(
            "clone.filters",
            "4",
            "filters have ! first and * last",
            filters,
        ),
        Rule::new(
            "clone.mac-addresses",
            "4",
            "new MAC addresses are MAC addresses",
            mac_addresses,
        ),
        Rule::new(
            "clone.patches",
            "4",
            "patches are JSON patch operations",
            |asked| patches::are_operations("spec.patches", &asked.new.spec.patches),
        ),
    ];

    const DEFAULTS: &'static [Rule<Fill<Self>>] = &[Rule::new(
        "clone.target",
        "D4",
        "the target is a VM, with a made-up name",
        fill_target,
    )];
}

fn source_given(asked: &Question<'_>) -> Vec<Fault> {
    let source = &asked.new.spec.source;
    let parts = [
        ("apiGroup", source.api_group.as_deref()),
        ("kind", Some(source.kind.as_str())),
        ("name", Some(source.name.as_str())),
    ];
    let missing = parts.into_iter().filter(|(_, value)| is_empty(*value));
    let faults = missing.map(|(part, _)| {
        let detail = "missing; name the VirtualMachine or VirtualMachineSnapshot to clone";
        Violation::invalid(format!("spec.source.{part}"), detail).into()
    });
    faults.collect()
}

fn source_kind(asked: &Question<'_>) -> Vec<Fault> {
    let source = &asked.new.spec.source;
    let fits = is_vm(source)
        || references::is(
            source,
            VirtualMachineSnapshot::GROUP,
            VirtualMachineSnapshot::KIND,
        );
    if fits || source.kind.is_empty() || is_empty(source.api_group.as_deref()) {
        return Vec::new();
    }
    let detail = format!(
        "{} of {} cannot be cloned; use VirtualMachine of {GROUP} or VirtualMachineSnapshot of {}",
        source.kind,
        source.api_group.as_deref().unwrap_or_default(),
        VirtualMachineSnapshot::GROUP
    );
    vec![Violation::invalid("spec.source.kind", detail).into()]
}

/// A target that is left out, in whole or in part, is filled in.
fn target_kind(asked: &Question<'_>) -> Vec<Fault> {
    let Some(target) = &asked.new.spec.target else {
        return Vec::new();
    };
    let group = target.api_group.as_deref();
    let fits = (is_empty(group) || group == Some(GROUP))
        && (target.kind.is_empty() || target.kind == VirtualMachine::KIND);
    if fits {
        return Vec::new();
    }
    let detail = format!(
        "{:?} cannot be made by cloning; use VirtualMachine of {GROUP}",
        target.kind
    );
    vec![Violation::invalid("spec.target.kind", detail).into()]
}

fn target_name(asked: &Question<'_>) -> Vec<Fault> {
    let spec = &asked.new.spec;
    let same = spec.target.as_ref().is_some_and(|target| {
        is_vm(&spec.source) && !target.name.is_empty() && target.name == spec.source.name
    });
    if !same {
        return Vec::new();
    }
    let detail = "is the source itself; choose another name, or leave it out to get one";
    vec![Violation::invalid("spec.target.name", detail).into()]
}

fn filters(asked: &Question<'_>) -> Vec<Fault> {
    let spec = &asked.new.spec;
    let mut lists = vec![
        ("spec.annotationFilters", &spec.annotation_filters),
        ("spec.labelFilters", &spec.label_filters),
    ];
    if let Some(template) = &spec.template {
        lists.push((
            "spec.template.annotationFilters",
            &template.annotation_filters,
        ));
        lists.push(("spec.template.labelFilters", &template.label_filters));
    }
    let filters = lists
        .into_iter()
        .flat_map(|(field, list)| list.iter().enumerate().map(move |(i, one)| (field, i, one)));
    let faults = filters.filter_map(|(field, i, filter)| {
        let fault = filter_fault(filter)?;
        Some(Violation::invalid(format!("{field}[{i}]"), format!("{filter:?} {fault}")).into())
    });
    faults.collect()
}

fn filter_fault(filter: &str) -> Option<&'static str> {
    if filter == "!" {
        Some("leaves out nothing; write the key after the !")
    } else if filter.chars().skip(1).any(|c| c == '!') {
        Some("has a ! inside; it may only stand in front")
    } else if filter.trim_end_matches('*').contains('*') {
        Some("has a * inside; it may only stand at the end")
    } else {
        None
    }
}

/// An empty address asks for a new one.
fn mac_addresses(asked: &Question<'_>) -> Vec<Fault> {
    let addresses = asked.new.spec.new_mac_addresses.iter();
    let wrong = addresses.filter(|(_, mac)| !mac.is_empty() && !is_mac(mac));
    let faults = wrong.map(|(interface, mac)| {
        let detail = format!("{mac:?} is no MAC address; write one such as 02:00:00:00:00:01");
        Violation::invalid(format!("spec.newMacAddresses[{interface}]"), detail).into()
    });
    faults.collect()
}

/// Six bytes in hexadecimal digits with one kind of separator.
fn is_mac(text: &str) -> bool {
    let separated = |separator: char| {
        let parts: Vec<&str> = text.split(separator).collect();
        let is_byte = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        parts.len() == 6 && parts.iter().all(is_byte)
    };
    separated(':') || separated('-')
}

fn fill_target(clone: &mut VirtualMachineClone, around: Surroundings<'_>) {
    let source = clone.spec.source.name.clone();
    let target = clone.spec.target.get_or_insert_default();
    if is_empty(target.api_group.as_deref()) {
        target.api_group = Some(GROUP.to_owned());
    }
    if target.kind.is_empty() {
        VirtualMachine::KIND.clone_into(&mut target.kind);
    }
    if target.name.is_empty() {
        let chance = (around.new_uuid)().simple().to_string();
        let chance: String = chance.chars().take(CHANCE).collect();
        let room = NAME - "clone--".len() - CHANCE;
        let source: String = source.chars().take(room).collect();
        target.name = format!("clone-{source}-{chance}");
    }
}

fn is_vm(reference: &TypedLocalObjectReference) -> bool {
    references::is(reference, GROUP, VirtualMachine::KIND)
}
