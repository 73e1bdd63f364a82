//! ARCHITECTURE.md describes every crate, and its table has the dependencies of the manifests.

use std::collections::BTreeSet;
use std::path::Path;

use crate::workspace::{Metadata, Package, root};

/// What the document lacks or has differently.
pub(crate) fn faults(document: &str, metadata: &Metadata) -> Vec<String> {
    let table = document.split("## The crates").next().unwrap_or_default();
    let mut faults = Vec::new();
    for package in metadata.members() {
        let name = &package.name;
        let expected = format!("| `{name}` | {} |", dependencies(package));
        if !table.lines().any(|line| line == expected) {
            faults.push(format!("ARCHITECTURE.md: no line {expected:?}"));
        }
        let folder = package.manifest_path.parent().and_then(Path::parent);
        let is_crate = folder == Some(root().join("crates").as_path());
        if is_crate && !document.contains(&format!("**`{name}`**")) {
            faults.push(format!("ARCHITECTURE.md: no paragraph about crate {name}"));
        }
    }
    faults
}

/// The crates of this workspace that it depends on, except for its tests.
fn dependencies(package: &Package) -> String {
    let own = package.dependencies.iter();
    let own = own.filter(|one| one.path.is_some() && one.kind.is_none());
    let names: BTreeSet<&str> = own.map(|one| one.name.as_str()).collect();
    if names.is_empty() {
        return "none".to_owned();
    }
    let names: Vec<String> = names.iter().map(|name| format!("`{name}`")).collect();
    names.join(", ")
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_crate_has_its_line_and_its_paragraph() {
        let dependency = |name: &str, kind: Option<&str>, path: Option<&str>| json!({"name": name, "kind": kind, "optional": false, "path": path});
        let manifest = root().join("crates/one/Cargo.toml");
        let one = json!({"id": "one", "name": "one", "manifest_path": manifest, "dependencies": [
            dependency("two", None, Some("two")), dependency("serde", None, None),
            dependency("for-tests", Some("dev"), Some("for-tests"))]});
        let metadata =
            json!({"packages": [one], "workspace_members": ["one"], "target_directory": ""});
        let metadata: Metadata = serde_json::from_value(metadata).unwrap();
        let complete = "| `one` | `two` |\n## The crates\n**`one`**: first.\n";
        assert_eq!(faults(complete, &metadata), [""; 0]);
        for (from, to) in [("`two`", "none"), ("**`one`**", "`one`")] {
            let found = faults(&complete.replace(from, to), &metadata);
            assert_eq!(found.len(), 1, "{found:?}");
        }
    }
}
