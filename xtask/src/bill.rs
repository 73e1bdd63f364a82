//! What is in an image: a bill of materials in the form of `CycloneDX`, beside the image's layout.
//!
//! Crates are those that cargo links into the program for its target, packages those that at least
//! one kept file belongs to. The same image has the same bill.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::workspace::{cargo, root, run_quietly};

/// Licences of all packages are kept, also of those of which nothing else is.
const DOCUMENTS: &str = "usr/share/doc/";

/// One thing that went into an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Part {
    name: String,
    version: String,
    /// As a package address.
    address: String,
    licence: Option<String>,
}

/// The crates that a program is linked from.
pub(crate) fn crates(package: &str, target: Option<&str>) -> Result<Vec<Part>> {
    let mut command = Command::new(cargo());
    command
        .args(["tree", "--locked", "--edges=normal", "--prefix=none"])
        .args(["--format={p}\t{l}", "--package", package])
        .current_dir(root());
    if let Some(target) = target {
        command.args(["--target", target]);
    }
    let text = String::from_utf8(run_quietly(&mut command)?).context("read cargo's tree")?;
    let parts: BTreeSet<Part> = text.lines().filter_map(read_crate).collect();
    Ok(parts.into_iter().collect())
}

/// `name v1.2.3 (where from)`, a tab, and the licence.
fn read_crate(line: &str) -> Option<Part> {
    let (package, licence) = line.split_once('\t')?;
    let mut words = package.split(' ');
    let name = words.next()?;
    let version = words.next()?.strip_prefix('v')?;
    // Crates seen before are marked behind their licence.
    let licence = licence.trim_end_matches("(*)").trim();
    Some(Part {
        name: name.to_owned(),
        version: version.to_owned(),
        address: format!("pkg:cargo/{name}@{version}"),
        licence: Some(licence.to_owned()).filter(|text| !text.is_empty()),
    })
}

/// The Debian packages of a tree that these files belong to.
pub(crate) fn packages(tree: &Path, kept: &BTreeSet<String>) -> Result<Vec<Part>> {
    let database = tree.join("var/lib/dpkg");
    let mut query = Command::new("dpkg-query");
    query
        .arg("--admindir")
        .arg(&database)
        .args(["--show", "--showformat"])
        .arg("${Package}\t${Version}\t${Architecture}\n");
    let text = String::from_utf8(run_quietly(&mut query)?).context("read dpkg's list")?;
    let mut parts = Vec::new();
    for line in text.lines() {
        let [name, version, architecture] = line.split('\t').collect::<Vec<_>>()[..] else {
            continue;
        };
        let lists = [name.to_owned(), format!("{name}:{architecture}")]
            .map(|name| database.join(format!("info/{name}.list")));
        let files = lists.iter().find_map(|list| fs::read_to_string(list).ok());
        if owns(&files.unwrap_or_default(), tree, kept) {
            parts.push(Part {
                name: name.to_owned(),
                version: version.to_owned(),
                address: format!("pkg:deb/debian/{name}@{version}?arch={architecture}"),
                licence: None,
            });
        }
    }
    Ok(parts)
}

/// Whether one of a package's files is kept; directories and what is said about it do not count.
fn owns(files: &str, tree: &Path, kept: &BTreeSet<String>) -> bool {
    files.lines().any(|path| {
        let path = path.trim_start_matches('/');
        // Some packages still name files by the links that `/bin` and `/lib` are.
        let moved = format!("usr/{path}");
        [path, &moved].into_iter().any(|path| {
            kept.contains(path)
                && !path.starts_with(DOCUMENTS)
                && tree
                    .join(path)
                    .symlink_metadata()
                    .is_ok_and(|found| !found.is_dir())
        })
    })
}

/// Writes the bill of an image.
pub(crate) fn write(path: &Path, image: &str, digest: &str, parts: &[Part]) -> Result<()> {
    let text = serde_json::to_string_pretty(&bill(image, digest, parts))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn bill(image: &str, digest: &str, parts: &[Part]) -> Value {
    let component = |part: &Part| {
        let mut component = json!({
            "type": "library", "bom-ref": part.address, "purl": part.address,
            "name": part.name, "version": part.version,
        });
        if let Some(licence) = &part.licence {
            component["licenses"] = json!([{ "expression": licence.replace('/', " OR ") }]);
        }
        component
    };
    let components: Vec<Value> = parts.iter().map(component).collect();
    json!({
        "bomFormat": "CycloneDX", "specVersion": "1.6", "version": 1,
        "metadata": {"component": {
            "type": "container", "bom-ref": image, "name": image, "version": digest,
        }},
        "components": components,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn crates_are_read_with_their_licence() {
        let part =
            read_crate("anyhow v1.0.9 (proc-macro)\tMIT OR Apache-2.0 (*)").expect("a crate");
        assert_eq!(part.address, "pkg:cargo/anyhow@1.0.9");
        assert_eq!(part.licence.as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(read_crate(""), None);
    }

    #[test]
    fn a_package_counts_by_its_files_and_not_by_its_directories() {
        let tree = tempfile::tempdir().expect("a directory");
        fs::create_dir_all(tree.path().join("usr/lib")).expect("make a directory");
        fs::write(tree.path().join("usr/lib/x.so"), "").expect("write a file");
        let kept: BTreeSet<String> = ["usr", "usr/lib", "usr/lib/x.so"].map(str::to_owned).into();
        for (files, expected) in [
            ("/usr\n/usr/lib\n/usr/lib/x.so\n", true),
            ("/lib/x.so\n", true),
            ("/usr/share/doc/x\n", false),
            ("/usr\n/usr/lib\n/usr/lib/y.so\n", false),
        ] {
            assert_eq!(owns(files, tree.path(), &kept), expected, "{files}");
        }
    }

    #[test]
    fn a_bill_names_its_image_and_each_part() {
        let part = read_crate("a v1.0.0\tMIT/Apache-2.0").expect("a crate");
        let bill = bill("an/image:1", "sha256:0", &[part]);
        assert_eq!(bill["metadata"]["component"]["version"], "sha256:0");
        let licence = &bill["components"][0]["licenses"][0]["expression"];
        assert_eq!(licence, "MIT OR Apache-2.0");
    }
}
