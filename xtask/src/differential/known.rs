//! Differences that are meant, each with its reason: `xtask/differential/known.yaml`.

use std::{fs, path::Path};

use anyhow::{Context as _, Result, ensure};
use serde::Deserialize;

use super::compare::Difference;
use crate::workspace::root;

/// Differences with one reason.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct Group {
    reason: String,
    differences: Vec<Difference>,
}

/// Differences that are not listed, and listed ones that did not occur.
pub(super) fn split(
    found: Vec<Difference>,
    is_complete: bool,
) -> Result<(Vec<Difference>, Vec<Difference>)> {
    let path = root().join("xtask/differential/known.yaml");
    let text = fs::read_to_string(&path).with_context(|| format!("read {}", path.display()))?;
    let groups: Vec<Group> =
        serde_saphyr::from_str(&text).with_context(|| format!("read {}", path.display()))?;
    for group in &groups {
        ensure!(!group.reason.trim().is_empty(), "a reason is empty");
    }
    let listed: Vec<Difference> = groups
        .into_iter()
        .flat_map(|group| group.differences)
        .collect();
    Ok(apart(found, &listed, is_complete))
}

fn apart(
    found: Vec<Difference>,
    listed: &[Difference],
    is_complete: bool,
) -> (Vec<Difference>, Vec<Difference>) {
    let vanished = listed
        .iter()
        .filter(|listed| is_complete && !found.contains(listed))
        .cloned()
        .collect();
    let unknown = found
        .into_iter()
        .filter(|found| !listed.contains(found))
        .collect();
    (unknown, vanished)
}

/// Writes differences as a group that still needs its reason.
pub(super) fn write(path: &Path, differences: &[Difference]) -> Result<()> {
    let shown = serde_json::json!([{"reason": "", "differences": differences}]);
    let text = serde_saphyr::to_string(&shown).context("render the differences")?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn listed_differences_count_when_they_vanish_only() {
        let difference = |at: &str| Difference {
            request: "r".into(),
            at: at.into(),
            ours: json!(1),
            theirs: json!(2),
        };
        let listed = [difference("/a"), difference("/b")];
        let found = vec![difference("/a"), difference("/c")];
        let (unknown, vanished) = apart(found.clone(), &listed, true);
        assert_eq!(unknown, [difference("/c")]);
        assert_eq!(vanished, [difference("/b")]);
        assert!(apart(found, &listed, false).1.is_empty());
    }
}
