//! Compares the list of failpoints with the sources: each name occurs once, none is missing, and a
//! test goes through all of them. Those tests fail for a failpoint that is not reached.

use std::collections::{BTreeMap, BTreeSet};

/// Which names of `sources` (paths and texts) are not in the list, and the other way round.
pub(crate) fn faults<'a>(list: &str, sources: &[(&'a str, &'a str)]) -> Vec<String> {
    let mut found: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (path, text) in sources.iter().copied() {
        for name in names(path, text) {
            found.entry(name).or_default().push(path);
        }
    }
    let mut faults = Vec::new();
    for (name, paths) in &found {
        if !list.lines().any(|line| line == *name) {
            let path = paths.first().copied().unwrap_or_default();
            faults.push(format!(
                "{path}: failpoint {name} is not in crates/failpoints/names.txt: write a test that reaches \
                 it, then add it"
            ));
        }
        if paths.len() > 1 {
            faults.push(format!("failpoint {name} is in {}", paths.join(" and ")));
        }
    }
    let gone = list.lines().filter(|name| !found.contains_key(name));
    faults.extend(gone.map(|name| format!("failpoint {name} is nowhere in the sources")));
    let owners: BTreeSet<&str> = list
        .lines()
        .filter_map(|name| name.split('/').next())
        .collect();
    let untold = owners.into_iter().filter(|owner| {
        let mut texts = sources.iter().map(|(_, text)| text);
        !texts.any(|text| walks(text, owner))
    });
    faults.extend(untold.map(|owner| format!("no test goes through the failpoints of {owner}")));
    faults
}

/// Whether this source reads the names of that crate from the list.
fn walks(text: &str, owner: &str) -> bool {
    let takes = text.contains("failpoints::NAMES") || text.contains("failpoints/names.txt");
    takes && text.contains(&format!("\"{owner}/"))
}

/// Texts of a crate's sources that begin with the crate's name, as failpoints do.
fn names<'a>(path: &str, text: &'a str) -> Vec<&'a str> {
    let mut parts = path.split('/');
    let (Some("crates"), Some(own), Some("src")) = (parts.next(), parts.next(), parts.next())
    else {
        return Vec::new();
    };
    if !text.contains("failpoints::") {
        return Vec::new();
    }
    let quoted = text.split('"').skip(1).step_by(2);
    let is_name = |text: &&str| {
        let rest = text
            .strip_prefix(own)
            .and_then(|rest| rest.strip_prefix('/'));
        let shape = |letter: char| letter.is_ascii_lowercase() || "/-".contains(letter);
        // Tests beside the code name beginnings of names.
        rest.is_some_and(|rest| !rest.is_empty() && !rest.ends_with('/') && rest.chars().all(shape))
    };
    quoted.filter(is_name).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_in_the_list_and_in_one_place() {
        let source = r#"fn f() { failpoints::after("virt-x/a/b"); log("virt-x/", "other/a"); }"#;
        let check = |list: &str, sources: &[(&str, &str)]| faults(list, sources).len();
        let path = "crates/virt-x/src/act.rs";
        let test = (
            "crates/virt-x/tests/t.rs",
            r#"failpoints::NAMES.filter("virt-x/a")"#,
        );
        assert_eq!(check("virt-x/a/b\n", &[(path, source), test]), 0);
        assert_eq!(check("virt-x/a/b\n", &[(path, source)]), 1);
        assert_eq!(check("", &[(path, source), test]), 1);
        assert_eq!(
            check("virt-x/a/b\nvirt-x/a/c\n", &[(path, source), test]),
            1
        );
        let other = ("crates/virt-x/src/b.rs", source);
        assert_eq!(check("virt-x/a/b\n", &[(path, source), other, test]), 1);
        // Tests name them, too.
        assert_eq!(check("", &[("crates/virt-x/tests/a.rs", source)]), 0);
    }
}
