//! Finds what a host left behind, by the names derived from its state directory.

use std::{fs, path::Path};

use sha2::{Digest, Sha256};

use crate::processes::processes;

/// Everything that belongs to the host in `state_dir`: processes, mounts, interfaces, cgroups, files.
pub fn leftovers(state_dir: &Path) -> Vec<String> {
    let shown = state_dir.to_string_lossy().into_owned();
    let mut found = Vec::new();
    for process in processes() {
        let process = Path::new("/proc").join(process.to_string());
        let command = fs::read(process.join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        if command.contains(&shown) {
            found.push(format!("process {}: {command}", process.display()));
        }
    }
    let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    found.extend(
        mounts
            .lines()
            .filter(|line| line.contains(&shown))
            .map(str::to_owned),
    );
    let suffix = suffix(state_dir);
    let bridge = format!("fv-{suffix}");
    if Path::new("/sys/class/net").join(&bridge).exists() {
        found.push(format!("interface {bridge}"));
    }
    let mut groups = Vec::new();
    find_groups(
        Path::new("/sys/fs/cgroup"),
        &format!("ferrovirt-{suffix}"),
        2,
        &mut groups,
    );
    found.extend(groups);
    let tables = std::process::Command::new("nft")
        .args(["list", "tables"])
        .output()
        .map(|output| output.stdout)
        .unwrap_or_default();
    let tables = String::from_utf8_lossy(&tables).into_owned();
    found.extend(
        tables
            .lines()
            .filter(|line| line.contains(&suffix))
            .map(str::to_owned),
    );
    if state_dir.exists() {
        found.push(format!("files in {shown}"));
    }
    found
}

/// The suffix of this host's names. Computed here independently of the program, so that a name the
/// program forgets is still found.
pub(crate) fn suffix(state_dir: &Path) -> String {
    let digest = Sha256::digest(state_dir.as_os_str().as_encoded_bytes());
    hex::encode(&digest[..4])
}

/// Control groups of that name; with cgroup v1, one for each controller.
fn find_groups(within: &Path, name: &str, depth: u32, found: &mut Vec<String>) {
    for entry in fs::read_dir(within).into_iter().flatten().flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        if entry.file_name().as_encoded_bytes() == name.as_bytes() {
            found.push(format!("cgroup {}", entry.path().display()));
        } else if depth > 1 {
            find_groups(&entry.path(), name, depth - 1, found);
        }
    }
}
