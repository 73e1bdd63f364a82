//! libvirt's own schema accepts the golden domains.
//!
//! The schema is that of this computer's libvirt, or of the directory in `FERROVIRT_LIBVIRT_SCHEMAS`. The
//! launcher image has libvirt 11.3; an older schema does not know all of it.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{rendered, rows};

const VARIABLE: &str = "FERROVIRT_LIBVIRT_SCHEMAS";
const USUAL: &str = "/usr/share/libvirt/schemas";

/// Rows that libvirt 11.3 does not accept either, with what it lacks.
const UNKNOWN: [(&str, &str); 1] = [("tdx", "trust domains of Intel processors come with 11.6")];

/// Rows that libvirt 11.3 accepts and earlier versions do not, with what these lack.
const NEW: [(&str, &str); 7] = [
    ("acpi-tables", "the table of type msdm"),
    ("disk-blocks-of-volume", "discard_granularity of a disk"),
    ("disk-tuned", "discard_granularity of a disk"),
    ("hyperv-off", "direct and extended flushes"),
    ("hyperv-on", "direct and extended flushes"),
    ("io-threads-pool", "several I/O threads of a disk"),
    ("snp", "launch security of type sev-snp"),
];

/// Only a schema that knows the rows of `NEW` contains this.
const SIGN: &str = "<value>msdm</value>";

fn schemas() -> PathBuf {
    std::env::var_os(VARIABLE).map_or_else(|| USUAL.into(), PathBuf::from)
}

/// Whether the schema is that of libvirt 11.3 or later.
fn is_current(schemas: &Path) -> bool {
    let path = schemas.join("domaincommon.rng");
    let remedy = format!(
        "{}: install the package libvirt0 (scripts/setup.sh test), or set {VARIABLE}",
        path.display()
    );
    let text = fs::read_to_string(&path).expect(&remedy);
    text.contains(SIGN)
}

#[test]
fn golden_domains_are_valid_in_the_schema_of_libvirt() {
    let schemas = schemas();
    let is_current = is_current(&schemas);
    let dir = std::env::temp_dir().join(format!("ferrovirt-domains-{}", std::process::id()));
    fs::create_dir_all(&dir).unwrap();
    let rows = rows();
    let with_domain = rows.iter().filter(|row| row.error.is_none());
    let files: Vec<PathBuf> = with_domain
        .map(|row| {
            let file = dir.join(&row.name);
            fs::write(&file, rendered(row).unwrap()).unwrap();
            file
        })
        .collect();
    let output = Command::new("xmllint")
        .args(["--noout", "--relaxng"])
        .arg(schemas.join("domain.rng"))
        .args(&files)
        .output()
        .unwrap_or_else(|error| {
            panic!("xmllint: {error}; install the package libxml2-utils (scripts/setup.sh test)")
        });
    fs::remove_dir_all(&dir).unwrap();
    let report = String::from_utf8_lossy(&output.stderr).into_owned();
    let ends_with = |end: &str| -> BTreeSet<String> {
        let lines = report.lines().filter_map(|line| line.strip_suffix(end));
        let names = lines.filter_map(|path| Path::new(path).file_name()?.to_str());
        names.map(str::to_owned).collect()
    };
    let refused = ends_with(" fails to validate");
    let accepted = ends_with(" validates");
    assert_eq!(refused.len() + accepted.len(), files.len(), "{report}");
    let new = NEW.iter().filter(|_| !is_current);
    let expected: BTreeSet<String> = UNKNOWN
        .iter()
        .chain(new)
        .map(|(name, _)| (*name).to_owned())
        .collect();
    assert_eq!(
        refused, expected,
        "libvirt 11.3 or later: {is_current}\n{report}"
    );
}
