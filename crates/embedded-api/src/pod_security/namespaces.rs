//! Labels of namespaces: they must be readable, and a stricter level warns about existing pods.

use std::collections::BTreeMap;

use apimachinery::{GroupKind, Status, meta};
use serde_json::Value;

use super::{
    EXEMPT_NAMESPACES, checks,
    policy::{self, Level, LevelVersion},
};
use crate::{
    api::Api,
    error::ApiError,
    store::{Collection, Scope},
};

/// Bounds the work of one update.
const MAX_PODS: usize = 3000;

/// Checks the labels of a new or changed namespace. Returns warnings.
pub(super) async fn admit(
    api: &Api,
    live: Option<&Value>,
    namespace: &Value,
) -> Result<Vec<String>, ApiError> {
    let (new, wrong) = policy::of(namespace);
    let old = live.map(policy::of);
    // A namespace with unreadable labels can still be changed otherwise.
    let is_new = old.as_ref().is_none_or(|(_, before)| *before != wrong);
    if !wrong.is_empty() && is_new {
        let kind = GroupKind {
            group: "",
            kind: "Namespace",
        };
        return Err(Status::invalid(kind, meta::name(namespace), &wrong).into());
    }
    let name = meta::name(namespace);
    match old {
        Some((old, _))
            if tightens(old.enforce, new.enforce) && !EXEMPT_NAMESPACES.contains(&name) =>
        {
            existing(api, name, new.enforce).await
        }
        _ => Ok(Vec::new()),
    }
}

/// Whether existing pods may violate the new level.
fn tightens(old: LevelVersion, new: LevelVersion) -> bool {
    let is_relaxed = old.version == new.version && new.level <= old.level;
    old != new && new.level != Level::Privileged && !is_relaxed
}

/// Warnings about pods that violate the level. They continue to run.
async fn existing(api: &Api, name: &str, level: LevelVersion) -> Result<Vec<String>, ApiError> {
    let scope = Scope {
        namespace: Some(name.to_owned()),
        ..Scope::all(Collection::new("", "pods"))
    };
    let page = api.store.list(&scope, None, Some(MAX_PODS)).await?;
    let mut pods_by_finding: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for stored in &page.items {
        let pod = stored.parse()?;
        let found = checks::evaluate(level, &pod);
        if !found.is_empty() {
            let pods = pods_by_finding.entry(found.reasons()).or_default();
            pods.push(meta::name(&pod).to_owned());
        }
    }
    let mut warnings = Vec::new();
    if page.more.is_some() {
        warnings.push(format!(
            "new PodSecurity enforce level only checked against the first {MAX_PODS} existing pods"
        ));
    }
    if !pods_by_finding.is_empty() {
        warnings.push(format!(
            "existing pods in namespace {name:?} violate the new PodSecurity enforce level \"{level}\""
        ));
    }
    let mut lines: Vec<String> = pods_by_finding
        .iter()
        .map(|(reasons, pods)| format!("{}: {reasons}", first_of(pods)))
        .collect();
    lines.sort();
    warnings.extend(lines);
    Ok(warnings)
}

/// The first pod by name, and the number of the others.
fn first_of(pods: &[String]) -> String {
    let first = pods.iter().min().map_or("", String::as_str);
    match pods.len().saturating_sub(1) {
        0 => first.to_owned(),
        1 => format!("{first} (and 1 other pod)"),
        others => format!("{first} (and {others} other pods)"),
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::policy::Version::{self, Latest, Minor},
        Level::{Baseline, Privileged, Restricted},
        *,
    };

    #[test]
    fn only_stricter_levels_concern_existing_pods() {
        let check = |old: (Level, Version), new: (Level, Version), expected: bool| {
            let [old, new] = [old, new].map(|(level, version)| LevelVersion { level, version });
            assert_eq!(tightens(old, new), expected, "{old} to {new}");
        };
        check((Baseline, Latest), (Baseline, Latest), false);
        check((Baseline, Latest), (Restricted, Latest), true);
        check((Restricted, Latest), (Baseline, Latest), false);
        check((Restricted, Latest), (Privileged, Minor(3)), false);
        check((Restricted, Minor(20)), (Baseline, Latest), true);
    }

    #[test]
    fn first_pod_stands_for_all() {
        let pods = |names: &[&str]| names.iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(first_of(&pods(&["b"])), "b");
        assert_eq!(first_of(&pods(&["b", "a"])), "a (and 1 other pod)");
        assert_eq!(first_of(&pods(&["b", "a", "c"])), "a (and 2 other pods)");
    }
}
