//! Clones.

use defaults::Environment;
use k8s_openapi::api::core::v1::TypedLocalObjectReference;
use kubevirt_api::{
    GROUP, VirtualMachine,
    clone::{VirtualMachineClone, VolumeNamePolicy},
    snapshot::VirtualMachineSnapshot,
};
use model::{InvalidFilter, KeyFilters};
use validation::{Rule, Subject, Violation};

use super::{
    kind::{Check, Fill, Kind, Problem, TypedRequest},
    patches, references,
    refusals::{is_empty, requires_gate},
    restore::{PATCHABLE, unknown_value},
};

type Request<'a> = TypedRequest<'a, VirtualMachineClone>;

/// Length of the random suffix of a generated name.
const SUFFIX_LENGTH: usize = 5;
/// Maximum length of an object's name.
const MAX_NAME: usize = 253;

impl Kind for VirtualMachineClone {
    const RULES: &'static [Rule<Check<Self>>] = &[
        Rule::new(
            "clone.gate",
            Subject::Clone,
            "clones need the gate Snapshot",
            |request| requires_gate(request, "Snapshot"),
        ),
        Rule::new(
            "clone.source-given",
            Subject::Clone,
            "the source has a group, a kind and a name",
            source_given,
        ),
        Rule::new(
            "clone.source-kind",
            Subject::Clone,
            "the source is a VM or a snapshot",
            source_kind,
        ),
        Rule::new(
            "clone.target-kind",
            Subject::Clone,
            "the target is a VM",
            target_kind,
        ),
        Rule::new(
            "clone.target-name",
            Subject::Clone,
            "a VM is not cloned onto itself",
            target_name,
        ),
        Rule::new(
            "clone.filters",
            Subject::Clone,
            "filters have ! only at the start and * only at the end",
            filters,
        ),
        Rule::new(
            "clone.filter-patterns",
            Subject::Clone,
            "filters are regular expressions, and not too many",
            filter_patterns,
        ),
        Rule::new(
            "clone.mac-addresses",
            Subject::Clone,
            "new MAC addresses are well formed",
            mac_addresses,
        ),
        Rule::new(
            "clone.patches",
            Subject::Clone,
            "patches are JSON patch operations",
            |request| patches::are_operations("spec.patches", &request.new.spec.patches),
        ),
        Rule::new(
            "clone.patched-paths",
            Subject::Clone,
            "patches stay below spec, labels and annotations",
            |request| patches::stay_below("spec.patches", &request.new.spec.patches, PATCHABLE),
        ),
        Rule::new(
            "clone.volume-policy",
            Subject::Clone,
            "volumeNamePolicy is known",
            volume_policy,
        ),
    ];

    const DEFAULTS: &'static [Rule<Fill<Self>>] = &[Rule::new(
        "clone.target",
        Subject::Clone,
        "the target is a VM with a generated name",
        fill_target,
    )];
}

fn source_given(request: &Request<'_>) -> Vec<Problem> {
    let source = &request.new.spec.source;
    let parts = [
        ("apiGroup", source.api_group.as_deref()),
        ("kind", Some(source.kind.as_str())),
        ("name", Some(source.name.as_str())),
    ];
    let missing = parts.into_iter().filter(|(_, value)| is_empty(*value));
    let problems = missing.map(|(part, _)| {
        let detail = "missing; name the VirtualMachine or VirtualMachineSnapshot to clone";
        Violation::invalid(format!("spec.source.{part}"), detail).into()
    });
    problems.collect()
}

fn source_kind(request: &Request<'_>) -> Vec<Problem> {
    let source = &request.new.spec.source;
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

/// Defaults fill in missing fields of the target.
fn target_kind(request: &Request<'_>) -> Vec<Problem> {
    let Some(target) = &request.new.spec.target else {
        return Vec::new();
    };
    let group = target.api_group.as_deref();
    let fits = (is_empty(group) || group == Some(GROUP))
        && (target.kind.is_empty() || target.kind == VirtualMachine::KIND);
    if fits {
        return Vec::new();
    }
    let detail = format!(
        "{:?} cannot be created by cloning; use VirtualMachine of {GROUP}",
        target.kind
    );
    vec![Violation::invalid("spec.target.kind", detail).into()]
}

fn target_name(request: &Request<'_>) -> Vec<Problem> {
    let spec = &request.new.spec;
    let same = spec.target.as_ref().is_some_and(|target| {
        is_vm(&spec.source) && !target.name.is_empty() && target.name == spec.source.name
    });
    if !same {
        return Vec::new();
    }
    let detail = "is the source; choose another name, or leave it out to have one generated";
    vec![Violation::invalid("spec.target.name", detail).into()]
}

fn filters(request: &Request<'_>) -> Vec<Problem> {
    let filters = filter_lists(request)
        .into_iter()
        .flat_map(|(field, list)| list.iter().enumerate().map(move |(i, one)| (field, i, one)));
    let problems = filters.filter_map(|(field, i, filter)| {
        let problem = filter_problem(filter)?;
        Some(Violation::invalid(format!("{field}[{i}]"), format!("{filter:?} {problem}")).into())
    });
    problems.collect()
}

fn filter_lists<'a>(request: &Request<'a>) -> Vec<(&'static str, &'a [String])> {
    let spec = &request.new.spec;
    let mut lists = vec![
        ("spec.annotationFilters", spec.annotation_filters.as_slice()),
        ("spec.labelFilters", &spec.label_filters),
    ];
    if let Some(template) = &spec.template {
        lists.push((
            "spec.template.annotationFilters",
            &template.annotation_filters,
        ));
        lists.push(("spec.template.labelFilters", &template.label_filters));
    }
    lists
}

fn filter_patterns(request: &Request<'_>) -> Vec<Problem> {
    let problems = filter_lists(request)
        .into_iter()
        .filter_map(|(field, list)| {
            let error = KeyFilters::parse(list).err()?;
            let field = match &error {
                InvalidFilter::NotAPattern { index, .. } => format!("{field}[{index}]"),
                InvalidFilter::TooMany { .. } => field.to_owned(),
            };
            Some(Violation::invalid(field, error.to_string()).into())
        });
    problems.collect()
}

fn volume_policy(request: &Request<'_>) -> Vec<Problem> {
    let policy = request.new.spec.volume_name_policy.as_ref();
    let value = policy.map(VolumeNamePolicy::as_str);
    unknown_value("spec.volumeNamePolicy", value, VolumeNamePolicy::KNOWN)
}

fn filter_problem(filter: &str) -> Option<&'static str> {
    if filter == "!" {
        Some("excludes nothing; write a key after the !")
    } else if filter.chars().skip(1).any(|c| c == '!') {
        Some("contains a !, which is allowed only at the start")
    } else if filter.trim_end_matches('*').contains('*') {
        Some("contains a *, which is allowed only at the end")
    } else {
        None
    }
}

/// An empty address requests a generated one.
fn mac_addresses(request: &Request<'_>) -> Vec<Problem> {
    let addresses = request.new.spec.new_mac_addresses.iter();
    let wrong = addresses.filter(|(_, mac)| !mac.is_empty() && !is_mac(mac));
    let problems = wrong.map(|(interface, mac)| {
        let detail = format!("{mac:?} is not a MAC address; use the form 02:00:00:00:00:01");
        Violation::invalid(format!("spec.newMacAddresses[{interface}]"), detail).into()
    });
    problems.collect()
}

/// Whether a string is six hexadecimal bytes with one kind of separator.
fn is_mac(text: &str) -> bool {
    let separated = |separator: char| {
        let parts: Vec<&str> = text.split(separator).collect();
        let is_byte = |part: &&str| part.len() == 2 && part.bytes().all(|b| b.is_ascii_hexdigit());
        parts.len() == 6 && parts.iter().all(is_byte)
    };
    separated(':') || separated('-')
}

fn fill_target(clone: &mut VirtualMachineClone, env: Environment<'_>) {
    let source = clone.spec.source.name.clone();
    let target = clone.spec.target.get_or_insert_default();
    if is_empty(target.api_group.as_deref()) {
        target.api_group = Some(GROUP.to_owned());
    }
    if target.kind.is_empty() {
        VirtualMachine::KIND.clone_into(&mut target.kind);
    }
    if target.name.is_empty() {
        let random = (env.new_uuid)().simple().to_string();
        let suffix: String = random.chars().take(SUFFIX_LENGTH).collect();
        let max_source = MAX_NAME - "clone--".len() - SUFFIX_LENGTH;
        let source: String = source.chars().take(max_source).collect();
        target.name = format!("clone-{source}-{suffix}");
    }
}

fn is_vm(reference: &TypedLocalObjectReference) -> bool {
    references::is(reference, GROUP, VirtualMachine::KIND)
}
