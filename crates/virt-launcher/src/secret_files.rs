//! The files of a mounted secret.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;

/// A secret holds at most 1 MiB.
const MAX_FILE: u64 = 1 << 20;

/// The texts of all files, by name, without surrounding blanks. The kubelet's own entries begin with
/// a dot.
pub(crate) fn read(directory: &Path) -> io::Result<BTreeMap<String, String>> {
    let mut all = BTreeMap::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if name.starts_with('.') {
            continue;
        }
        let mut text = String::new();
        File::open(entry.path())?
            .take(MAX_FILE)
            .read_to_string(&mut text)?;
        all.insert(name, text.trim().to_owned());
    }
    Ok(all)
}

/// The public keys in all files: one per line, without comments.
pub(crate) fn keys(directory: &Path) -> io::Result<Vec<String>> {
    let files = read(directory)?;
    let lines = files.values().flat_map(|text| text.lines());
    let keys = lines.map(str::trim);
    Ok(keys
        .filter(|key| !key.is_empty() && !key.starts_with('#'))
        .map(str::to_owned)
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_the_lines_of_all_files() {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("b"), "# mine\nssh-rsa B\n\n").unwrap();
        fs::write(dir.path().join("a"), "ssh-ed25519 A1\nssh-ed25519 A2").unwrap();
        fs::write(dir.path().join("..data"), "x").unwrap();
        let keys = keys(dir.path()).unwrap();
        assert_eq!(keys, ["ssh-ed25519 A1", "ssh-ed25519 A2", "ssh-rsa B"]);
        assert!(read(&dir.path().join("missing")).is_err());
    }
}
