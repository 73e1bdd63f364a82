//! The lock file of the fuzz targets, a workspace of its own, which no other check compiles.
//!
//! A crate of ours with a new dependency makes that file stale, and `cargo xtask fuzz` fails.

use std::collections::{BTreeMap, BTreeSet};

use crate::workspace::{Metadata, Package};

/// The dependencies of our crates that the lock file does not have.
pub(crate) fn faults(lock: &str, metadata: &Metadata) -> Vec<String> {
    let locked = locked(lock);
    let missing = |package: &Package| {
        let dependencies = locked.get(package.name.as_str())?;
        let needed = package.dependencies.iter();
        let needed = needed.filter(|one| one.kind.as_deref() != Some("dev") && !one.optional);
        let missing: BTreeSet<&str> = needed
            .map(|one| one.name.as_str())
            .filter(|name| !dependencies.contains(name))
            .collect();
        let missing: Vec<&str> = missing.into_iter().collect();
        (!missing.is_empty()).then(|| {
            format!(
                "fuzz/Cargo.lock: crate {} depends on {}; update the file: cargo update \
                 --workspace --manifest-path fuzz/Cargo.toml",
                package.name,
                missing.join(" and ")
            )
        })
    };
    metadata.members().filter_map(missing).collect()
}

/// The names of the dependencies of each package without a source: those of this tree.
fn locked(lock: &str) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut all = BTreeMap::new();
    for package in lock.split("[[package]]").skip(1) {
        let name = package.lines().find(|line| line.starts_with("name = "));
        let name = name.and_then(|line| line.split('"').nth(1));
        if let Some(name) = name
            && !package.lines().any(|line| line.starts_with("source = "))
        {
            // ` "serde",` or, where there are several versions, ` "serde 1.0.0",`.
            let entries = package.lines().filter_map(|line| line.strip_prefix(" \""));
            let names = entries.filter_map(|entry| entry.split([' ', '"']).next());
            all.insert(name, names.collect());
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    const LOCK: &str = r#"
[[package]]
name = "ours"
version = "0.1.0"
dependencies = [
 "one",
 "two 1.0.0",
]

[[package]]
name = "theirs"
version = "1.0.0"
source = "registry"
"#;

    #[test]
    fn missing_dependency_is_reported() {
        let dependency = |name: &str, kind: Option<&str>, optional: bool| json!({"name": name, "kind": kind, "optional": optional, "path": null});
        let metadata = |last| {
            let ours = json!({"id": "ours", "name": "ours", "manifest_path": "", "dependencies": [
                dependency("one", None, false), dependency("two", None, false),
                dependency("for-tests", Some("dev"), false), dependency("feature", None, true), last]});
            let theirs = json!({"id": "theirs", "name": "theirs", "manifest_path": "",
                                "dependencies": [dependency("unlisted", None, false)]});
            let all = json!({"packages": [ours, theirs], "workspace_members": ["ours", "theirs"],
                             "target_directory": ""});
            serde_json::from_value::<Metadata>(all).unwrap()
        };
        let found = faults(LOCK, &metadata(dependency("one", None, false)));
        assert_eq!(found, [""; 0]);
        let found = faults(LOCK, &metadata(dependency("new", None, false)));
        assert_eq!(found.len(), 1);
        assert!(found[0].contains("crate ours depends on new;"), "{found:?}");
    }

    #[test]
    fn lock_file_of_this_tree_is_complete() {
        let path = crate::workspace::root().join("fuzz/Cargo.lock");
        let lock = std::fs::read_to_string(path).unwrap();
        let metadata = crate::workspace::metadata().unwrap();
        assert!(locked(&lock).contains_key("kubevirt-api"));
        assert_eq!(faults(&lock, &metadata), [""; 0]);
    }
}
