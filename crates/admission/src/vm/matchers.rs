//! References of a VM to its instance type and its preference.

use kubevirt_api::vm::{InstancetypeMatcher, PreferenceMatcher};
use validation::Violation;

use super::input::Input;

/// The common fields of both kinds of matcher.
struct Matcher<'a> {
    path: &'static str,
    /// Valid kinds, in lower case.
    kinds: [&'static str; 4],
    name: &'a str,
    kind: &'a str,
    revision: &'a str,
    volume: &'a str,
    policy: &'a str,
}

fn instancetype(matcher: &InstancetypeMatcher) -> Matcher<'_> {
    Matcher {
        path: "spec.instancetype",
        kinds: [
            "virtualmachineinstancetype",
            "virtualmachineinstancetypes",
            "virtualmachineclusterinstancetype",
            "virtualmachineclusterinstancetypes",
        ],
        name: matcher.name.as_deref().unwrap_or_default(),
        kind: matcher.kind.as_deref().unwrap_or_default(),
        revision: matcher.revision_name.as_deref().unwrap_or_default(),
        volume: matcher.infer_from_volume.as_deref().unwrap_or_default(),
        policy: matcher
            .infer_from_volume_failure_policy
            .as_ref()
            .map_or("", |policy| policy.as_str()),
    }
}

fn preference(matcher: &PreferenceMatcher) -> Matcher<'_> {
    Matcher {
        path: "spec.preference",
        kinds: [
            "virtualmachinepreference",
            "virtualmachinepreferences",
            "virtualmachineclusterpreference",
            "virtualmachineclusterpreferences",
        ],
        name: matcher.name.as_deref().unwrap_or_default(),
        kind: matcher.kind.as_deref().unwrap_or_default(),
        revision: matcher.revision_name.as_deref().unwrap_or_default(),
        volume: matcher.infer_from_volume.as_deref().unwrap_or_default(),
        policy: matcher
            .infer_from_volume_failure_policy
            .as_ref()
            .map_or("", |policy| policy.as_str()),
    }
}

pub(super) fn matchers(input: &Input<'_>) -> Vec<Violation> {
    let spec = &input.vm.spec;
    let both = [
        spec.instancetype.as_ref().map(instancetype),
        spec.preference.as_ref().map(preference),
    ];
    both.iter().flatten().flat_map(problems).collect()
}

fn problems(matcher: &Matcher<'_>) -> Vec<Violation> {
    let path = matcher.path;
    let mut found = Vec::new();
    match (matcher.name, matcher.volume) {
        ("", "") => {
            let detail = "neither name nor inferFromVolume; give one";
            found.push(Violation::not_found(path, detail));
        }
        ("", _) | (_, "") => {}
        (_, _) => {
            let detail = "name and inferFromVolume are both set; choose one";
            found.push(Violation::invalid(format!("{path}.name"), detail));
        }
    }
    if !matcher.kind.is_empty() && !matcher.volume.is_empty() {
        let detail = "not supported with inferFromVolume, which determines the kind";
        found.push(Violation::invalid(format!("{path}.kind"), detail));
    }
    if !["", "Reject", "Ignore"].contains(&matcher.policy) {
        let detail = format!("{:?} is unknown; use Reject or Ignore", matcher.policy);
        let field = format!("{path}.inferFromVolumeFailurePolicy");
        found.push(Violation::invalid(field, detail));
    }
    let kind = matcher.kind.to_ascii_lowercase();
    if !kind.is_empty() && !matcher.kinds.contains(&&*kind) {
        let [own, _, cluster, _] = matcher.kinds;
        let detail = format!("{:?} is unknown; use {own} or {cluster}", matcher.kind);
        found.push(Violation::invalid(format!("{path}.kind"), detail));
    }
    found
}

/// A revision is a copy of the named object, so a new name with the old revision has no effect.
pub(super) fn revisions(input: &Input<'_>) -> Vec<Violation> {
    let Some(old) = input.old.map(|old| &old.spec) else {
        return Vec::new();
    };
    let new = &input.vm.spec;
    let pairs = [
        (
            old.instancetype.as_ref().map(instancetype),
            new.instancetype.as_ref().map(instancetype),
        ),
        (
            old.preference.as_ref().map(preference),
            new.preference.as_ref().map(preference),
        ),
    ];
    pairs
        .into_iter()
        .filter_map(|(old, new)| Some((old?, new?)))
        .filter(|(old, new)| {
            old.name != new.name && !new.revision.is_empty() && old.revision == new.revision
        })
        .map(|(_, new)| {
            let detail = "still the revision of the former name; leave it out, or give the new one";
            Violation::invalid(format!("{}.revisionName", new.path), detail)
        })
        .collect()
}
