//! The SBOM of an image in `CycloneDX` format, written beside the image's layout.
//!
//! It lists the crates that cargo links into the program for its target, and the Debian packages that
//! own at least one kept file. The same image has the same SBOM.

use std::{collections::BTreeSet, fs, path::Path, process::Command};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::workspace::{cargo, root, run_quietly};

/// Licence files of all packages are kept, even where no other file of the package is.
const DOCUMENTS: &str = "usr/share/doc/";

/// A component of an image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(crate) struct Part {
    name: String,
    version: String,
    /// The package URL (purl).
    address: String,
    licence: Option<String>,
}

/// The crates linked into a program.
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

/// Parses `name v1.2.3 (source)`, a tab, and the licence.
fn read_crate(line: &str) -> Option<Part> {
    let (package, licence) = line.split_once('\t')?;
    let mut parts = package.split(' ');
    let name = parts.next()?;
    let version = parts.next()?.strip_prefix('v')?;
    // cargo marks repeated crates behind their licence.
    let licence = licence.trim_end_matches("(*)").trim();
    Some(Part {
        name: name.to_owned(),
        version: version.to_owned(),
        address: format!("pkg:cargo/{name}@{version}"),
        licence: Some(licence.to_owned()).filter(|text| !text.is_empty()),
    })
}

/// The Debian packages of a tree that own these files.
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

/// Whether one of a package's files is kept; directories and documentation do not count.
fn owns(files: &str, tree: &Path, kept: &BTreeSet<String>) -> bool {
    files.lines().any(|path| {
        let path = path.trim_start_matches('/');
        // Some packages still list files below the symlinks `/bin` and `/lib`.
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

/// Writes the SBOM of an image.
pub(crate) fn write(path: &Path, image: &str, digest: &str, parts: &[Part]) -> Result<()> {
    let text = serde_json::to_string_pretty(&sbom(image, digest, parts))?;
    fs::write(path, text).with_context(|| format!("write {}", path.display()))
}

fn sbom(image: &str, digest: &str, parts: &[Part]) -> Value {
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
    fn crate_line_is_parsed_with_licence() {
        let part =
            read_crate("anyhow v1.0.9 (proc-macro)\tMIT OR Apache-2.0 (*)").expect("a crate");
        assert_eq!(part.address, "pkg:cargo/anyhow@1.0.9");
        assert_eq!(part.licence.as_deref(), Some("MIT OR Apache-2.0"));
        assert_eq!(read_crate(""), None);
    }

    #[test]
    fn package_is_listed_for_its_files_not_its_directories() {
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
    fn sbom_names_image_and_components() {
        let part = read_crate("a v1.0.0\tMIT/Apache-2.0").expect("a crate");
        let sbom = sbom("an/image:1", "sha256:0", &[part]);
        assert_eq!(sbom["metadata"]["component"]["version"], "sha256:0");
        let licence = &sbom["components"][0]["licenses"][0]["expression"];
        assert_eq!(licence, "MIT OR Apache-2.0");
    }
}
