//! What a host has on the machine: processes, mounts, interfaces, rules, control groups, files.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use crate::{eventually, leftovers::suffix, processes::processes};

/// Files that grow and shrink with what is written to them, not with what there is.
const OF_THE_DATABASE: [&str; 2] = ["api.db-wal", "api.db-shm"];
/// Trees that are kept under the digest of an image are counted, not walked.
const DEPTH_OF_IMAGES: usize = 2;
/// A kubelet looks for what to clear away every two seconds.
const REST: Duration = Duration::from_secs(5);

/// Each thing, and how many there are of it.
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
                inventory.note(format!("process {}", name.trim()));
            }
        }
        for line in lines(&fs::read_to_string("/proc/self/mounts").unwrap_or_default()) {
            if line.contains(&shown) {
                inventory.note(format!("mount {line}"));
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

    /// Of things that somebody else has found.
    pub(crate) fn start_counting(things: impl IntoIterator<Item = String>) -> Self {
        let mut inventory = Self::default();
        for thing in things {
            inventory.note(thing);
        }
        inventory
    }

    fn note(&mut self, thing: String) {
        *self.0.entry(thing).or_default() += 1;
    }

    /// The bridge, and what is plugged into it.
    fn interfaces(&mut self, bridge: &str) {
        for interface in entries(Path::new("/sys/class/net")) {
            let name = interface
                .file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned();
            let master = fs::read_link(interface.join("master")).unwrap_or_default();
            if name == bridge {
                self.note(format!("interface {name}"));
            } else if master.ends_with(bridge) {
                // The name is that of an address, which need not be the same again.
                self.note("interface on the bridge".to_owned());
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
            let words: Vec<&str> = ["list"].into_iter().chain(table.split(' ')).collect();
            for rule in lines(&nft(&words)) {
                let rule = without_what_changes(rule.trim());
                self.note(format!("rule {table}: {rule}"));
            }
        }
    }

    fn groups(&mut self, within: &Path, suffix: &str, depth: usize) {
        if within.to_string_lossy().contains(suffix) {
            self.note(format!("cgroup {}", within.display()));
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
            if OF_THE_DATABASE.iter().any(|name| path == Path::new(name)) {
                continue;
            }
            self.note(format!("file {}", path.display()));
            let depth = if path == Path::new("images") {
                DEPTH_OF_IMAGES
            } else {
                depth
            };
            if depth > 0 && entry.is_dir() && !entry.is_symlink() {
                self.files(base, &entry, depth.saturating_sub(1));
            }
        }
    }

    /// What there is more or less of than there was.
    fn against(&self, before: &Self) -> Vec<String> {
        let things = self
            .0
            .keys()
            .chain(before.0.keys().filter(|key| !self.0.contains_key(*key)));
        let differs = |thing: &String| {
            let count = |inventory: &Self| inventory.0.get(thing).copied().unwrap_or(0);
            let (now, then) = (count(self), count(before));
            (now != then).then(|| format!("census: {now} in place of {then}: {thing}"))
        };
        things.filter_map(differs).collect()
    }
}

/// A rule without its counters, and without the ports that each life of the host chooses anew.
fn without_what_changes(rule: &str) -> String {
    let mut words = rule.split(' ');
    let mut kept = Vec::new();
    while let Some(word) = words.next() {
        match word {
            // `packets N bytes N` follows.
            "counter" => drop(words.nth(3)),
            word if word.starts_with("127.0.0.1:") => kept.push("127.0.0.1"),
            word => kept.push(word),
        }
    }
    kept.join(" ")
}

/// What there is once nothing comes or goes any more: a pod is gone for its API server some time
/// before its node has cleared its files away.
pub async fn stable_inventory(count: impl Fn() -> Inventory) -> Inventory {
    let until = tokio::time::Instant::now() + crate::DEADLINE / 3;
    let mut ticks = tokio::time::interval(REST / 10);
    let mut found = count();
    let mut since = tokio::time::Instant::now();
    while since.elapsed() < REST && tokio::time::Instant::now() < until {
        ticks.tick().await;
        let now = count();
        if !now.against(&found).is_empty() {
            (found, since) = (now, tokio::time::Instant::now());
        }
    }
    found
}

/// What is not as it was, once it had time to end.
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
            without_what_changes(&format!("tcp dport 443 {counter} dnat to 127.0.0.1:{port}"))
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
            "census: 0 in place of 1: file node/pods/one",
            "census: 1 in place of 0: file node/pods/two",
        ];
        assert_eq!(differences, expected);
    }
}
