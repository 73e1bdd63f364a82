//! An inventory of a host's processes, mounts, interfaces, rules, control groups and files, for leak
//! checks.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{eventually, leftovers::suffix, processes::processes};

/// Database files whose presence depends on recent writes.
const DATABASE_FILES: [&str; 2] = ["api.db-wal", "api.db-shm"];
/// Unpacked images are counted, not walked.
const IMAGE_DEPTH: usize = 2;
/// Longer than a kubelet's cleanup interval of two seconds.
const STABLE_FOR: Duration = Duration::from_secs(5);

/// Items and their counts.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Inventory(BTreeMap<String, usize>);

impl Inventory {
    pub fn of(state_dir: &Path) -> Self {
        let mut inventory = Self::default();
        let suffix = suffix(state_dir);
        let shown = state_dir.to_string_lossy().into_owned();
        for process in processes() {
            let at = Path::new("/proc").join(process.to_string());
            let read = |name: &str| fs::read(at.join(name)).unwrap_or_default();
            let command = String::from_utf8_lossy(&read("cmdline")).into_owned();
            let group = String::from_utf8_lossy(&read("cgroup")).into_owned();
            if command.contains(&shown) || group.contains(&suffix) {
                let name = String::from_utf8_lossy(&read("comm")).into_owned();
                inventory.add(format!("process {}", name.trim()));
            }
        }
        for line in lines(&fs::read_to_string("/proc/self/mounts").unwrap_or_default()) {
            if line.contains(&shown) {
                inventory.add(format!("mount {line}"));
            }
        }
        inventory.interfaces(&format!("fv-{suffix}"));
        inventory.rules(&suffix);
        for hierarchy in entries(Path::new("/sys/fs/cgroup")) {
            inventory.groups(&hierarchy, &suffix, 3);
        }
        inventory.files(state_dir, state_dir, usize::MAX);
        inventory
    }

    /// The inventory of the given items.
    pub(crate) fn start_counting(things: impl IntoIterator<Item = String>) -> Self {
        let mut inventory = Self::default();
        for thing in things {
            inventory.add(thing);
        }
        inventory
    }

    fn add(&mut self, thing: String) {
        *self.0.entry(thing).or_default() += 1;
    }

    /// The bridge and its ports.
    fn interfaces(&mut self, bridge: &str) {
        for interface in entries(Path::new("/sys/class/net")) {
            let name = interface
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let master = fs::read_link(interface.join("master")).unwrap_or_default();
            if name == bridge {
                self.add(format!("interface {name}"));
            } else if master.ends_with(bridge) {
                // Its name depends on the pod's address, which varies.
                self.add("interface on the bridge".to_owned());
            }
        }
    }

    fn rules(&mut self, suffix: &str) {
        let nft = |arguments: &[&str]| {
            let output = Command::new("nft").args(arguments).output();
            let output = output.expect("run nft").stdout;
            String::from_utf8_lossy(&output).into_owned()
        };
        for table in lines(&nft(&["list", "tables"])) {
            if !table.contains(suffix) {
                continue;
            }
            let parts: Vec<&str> = ["list"].into_iter().chain(table.split(' ')).collect();
            for rule in lines(&nft(&parts)) {
                let rule = without_variable_parts(rule.trim());
                self.add(format!("rule {table}: {rule}"));
            }
        }
    }

    fn groups(&mut self, within: &Path, suffix: &str, depth: usize) {
        if within.to_string_lossy().contains(suffix) {
            self.add(format!("cgroup {}", within.display()));
        }
        if depth > 0 {
            for entry in entries(within) {
                if entry.is_dir() && !entry.is_symlink() {
                    self.groups(&entry, suffix, depth - 1);
                }
            }
        }
    }

    fn files(&mut self, base: &Path, within: &Path, depth: usize) {
        for entry in entries(within) {
            let path = entry.strip_prefix(base).unwrap_or(&entry).to_owned();
            if DATABASE_FILES.iter().any(|name| path == Path::new(name)) {
                continue;
            }
            self.add(format!("file {}", path.display()));
            let depth = if path == Path::new("images") {
                IMAGE_DEPTH
            } else {
                depth
            };
            if depth > 0 && entry.is_dir() && !entry.is_symlink() {
                self.files(base, &entry, depth.saturating_sub(1));
            }
        }
    }

    /// Items whose count differs from an earlier inventory.
    fn against(&self, before: &Self) -> Vec<String> {
        let things = self
            .0
            .keys()
            .chain(before.0.keys().filter(|key| !self.0.contains_key(*key)));
        let differs = |thing: &String| {
            let count = |inventory: &Self| inventory.0.get(thing).copied().unwrap_or(0);
            let (now, then) = (count(self), count(before));
            (now != then).then(|| format!("leak check: {now} instead of {then}: {thing}"))
        };
        things.filter_map(differs).collect()
    }
}

/// A rule without its counters and without ports that change with every start of the host.
fn without_variable_parts(rule: &str) -> String {
    let mut parts = rule.split(' ');
    let mut kept = Vec::new();
    while let Some(part) = parts.next() {
        match part {
            // `packets N bytes N` follows.
            "counter" => drop(parts.nth(3)),
            part if part.starts_with("127.0.0.1:") => kept.push("127.0.0.1"),
            part => kept.push(part),
        }
    }
    kept.join(" ")
}

/// The inventory once it is stable: nodes clean up some time after the API server has forgotten a pod.
pub async fn stable_inventory(count: impl Fn() -> Inventory) -> Inventory {
    let until = tokio::time::Instant::now() + crate::DEADLINE / 3;
    let mut ticks = tokio::time::interval(STABLE_FOR / 10);
    let mut found = count();
    let mut since = tokio::time::Instant::now();
    while since.elapsed() < STABLE_FOR && tokio::time::Instant::now() < until {
        ticks.tick().await;
        let now = count();
        if !now.against(&found).is_empty() {
            (found, since) = (now, tokio::time::Instant::now());
        }
    }
    found
}

/// The differences from an earlier inventory that remain after a grace period.
pub async fn differences(count: impl Fn() -> Inventory, before: &Inventory) -> Vec<String> {
    let patience = crate::DEADLINE / 3;
    let until = tokio::time::Instant::now() + patience;
    eventually("as before", || {
        let found = count().against(before);
        let is_over = found.is_empty() || tokio::time::Instant::now() > until;
        if is_over { Ok(found) } else { Err(()) }
    })
    .await
}

pub(crate) fn lines(text: &str) -> Vec<String> {
    text.lines().map(str::to_owned).collect()
}

pub(crate) fn entries(within: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(within).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rule_counters_and_ports_are_ignored() {
        let rule = |packets: u32, port: u32| {
            let counter = format!("counter packets {packets} bytes 0");
            without_variable_parts(&format!("tcp dport 443 {counter} dnat to 127.0.0.1:{port}"))
        };
        assert_eq!(rule(0, 1), "tcp dport 443 dnat to 127.0.0.1");
        assert_eq!(rule(0, 1), rule(5, 2));
    }

    #[test]
    fn added_and_removed_files_are_reported() {
        let base = tempfile::tempdir().unwrap();
        let state = base.path().join("state");
        fs::create_dir_all(state.join("node/pods/one")).unwrap();
        fs::write(state.join("api.db-wal"), "").unwrap();
        let before = Inventory::of(&state);
        assert_eq!(before.against(&before), [""; 0]);
        fs::create_dir_all(state.join("node/pods/two")).unwrap();
        fs::remove_dir(state.join("node/pods/one")).unwrap();
        fs::remove_file(state.join("api.db-wal")).unwrap();
        let mut differences = Inventory::of(&state).against(&before);
        differences.sort();
        let expected = [
            "leak check: 0 instead of 1: file node/pods/one",
            "leak check: 1 instead of 0: file node/pods/two",
        ];
        assert_eq!(differences, expected);
    }
}
