//! Packs a scenario's script and programs for the machine, as an archive that is its second disk.

use std::{
    fs::File,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result};

use super::{
    power_cut,
    scenario::{Part, Scenario},
};
use crate::{cache, suites, workspace::root};

/// The suite of the pod supervisor.
const POD_TESTS: &str = "pod-supervisor/pods";
/// The suite of the pod network.
const NETWORK_TESTS: &str = "pod-network/network";

/// Writes the archive, with more files under their names. Tests that are not current are built.
pub(super) fn pack(scenario: &Scenario, more: &[(String, PathBuf)], to: &Path) -> Result<()> {
    let script = root().join("deploy/machine/scenarios").join(scenario.name);
    let mut files = vec![("scenario".to_owned(), script)];
    for part in scenario.parts {
        match part {
            Part::PodTests => files.extend(pod_tests()?),
            Part::NetworkTests => {
                files.push(("programs/deps/network".to_owned(), suite(NETWORK_TESTS)?));
            }
            Part::Ourselves => files.push(("programs/xtask".to_owned(), power_cut::program()?)),
            Part::Host => files.extend(host()?),
        }
    }
    files.extend_from_slice(more);
    write(&files, to)
}

/// An archive without files.
pub(super) fn pack_nothing(to: &Path) -> Result<()> {
    write(&[], to)
}

/// The program of a suite.
fn suite(name: &str) -> Result<PathBuf> {
    let suites = suites::build()?;
    let suite = suites.into_iter().find(|suite| suite.name == name);
    Ok(suite.with_context(|| format!("no suite {name}"))?.program)
}

/// The tests look for the program in the directory above their own.
fn pod_tests() -> Result<[(String, PathBuf); 2]> {
    let tests = suite(POD_TESTS)?;
    let directory = tests.ancestors().nth(2).context("a target directory")?;
    let program = built(directory, "pod-supervisor")?;
    Ok([
        ("programs/deps/pods".to_owned(), tests),
        ("programs/pod-supervisor".to_owned(), program),
    ])
}

/// What `ferrovirt up` needs beside it, and the clients.
fn host() -> Result<Vec<(String, PathBuf)>> {
    let ourselves = power_cut::program()?;
    let directory = ourselves.parent().context("a target directory")?;
    let mut files = Vec::new();
    for name in ["ferrovirt", "pod-supervisor", "virtctl"] {
        files.push((format!("programs/{name}"), built(directory, name)?));
    }
    files.push(("programs/kubectl".to_owned(), in_path("kubectl")?));
    files.push(("images".to_owned(), cache::directory()?.join("images")));
    Ok(files)
}

fn built(directory: &Path, name: &str) -> Result<PathBuf> {
    let program = directory.join(name);
    anyhow::ensure!(
        program.exists(),
        "{} is missing: run `cargo build --workspace --bins` first",
        program.display()
    );
    Ok(program)
}

/// The file itself, as a link may lead out of the archive.
fn in_path(name: &str) -> Result<PathBuf> {
    let path = std::env::var_os("PATH").context("PATH is not set")?;
    let found = std::env::split_paths(&path).find_map(|dir| dir.join(name).canonicalize().ok());
    found.with_context(|| format!("{name} is not in PATH"))
}

fn write(files: &[(String, PathBuf)], to: &Path) -> Result<()> {
    let file = File::create(to).with_context(|| format!("make {}", to.display()))?;
    let mut archive = tar::Builder::new(file);
    for (name, path) in files {
        let added = if path.is_dir() {
            archive.append_dir_all(name, path)
        } else {
            archive.append_path_with_name(path, name)
        };
        added.with_context(|| format!("add {}", path.display()))?;
    }
    archive.into_inner()?.sync_all()?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn archive_is_whole_sectors() {
        let directory = tempfile::tempdir().unwrap();
        let to = directory.path().join("parts.tar");
        let script = root().join("deploy/machine/scenarios/devices");
        write(&[("scenario".to_owned(), script)], &to).unwrap();
        assert_eq!(to.metadata().unwrap().len() % 512, 0);
        let mut archive = tar::Archive::new(File::open(&to).unwrap());
        assert_eq!(archive.entries().unwrap().count(), 1);
        pack_nothing(&to).unwrap();
        assert_eq!(to.metadata().unwrap().len(), 1024);
    }
}
