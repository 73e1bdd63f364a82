//! Memory of processes, from the kernel's sums over their mappings.

use std::{collections::BTreeMap, fs, path::Path};

use anyhow::{Context as _, Result, ensure};

use super::figures::{Figure, as_f64, mean};

/// The processes of a pod that its VM costs besides QEMU.
const OF_POD: [&str; 3] = ["virt-launcher-monitor", "virt-launcher", "libvirtd"];
/// Outside of the pod's namespaces, one for each pod.
const SUPERVISOR: &str = "pod-supervisor";
const QEMU: &str = "qemu-system-x86_64";

/// What one process takes, in KiB.
#[derive(Debug, Clone, Copy, Default)]
struct Taken {
    /// Pages shared with others counted by share.
    pss: u64,
    anonymous: u64,
}

type Measure = fn(&Taken) -> u64;

/// Memory per VM on a host of ours, by process and in sum. `pods` are the UIDs of the VMs' pods.
pub(super) fn per_vm(pods: &[String]) -> Result<Vec<Figure>> {
    of_vms(pods, &[SUPERVISOR])
}

/// The same on a cluster, where containerd runs the pods.
pub(super) fn in_pods(pods: &[String]) -> Result<Vec<Figure>> {
    of_vms(pods, &[])
}

/// `outside` are processes per VM outside of its pod.
fn of_vms(pods: &[String], outside: &[&str]) -> Result<Vec<Figure>> {
    let mut taken: BTreeMap<String, Vec<Taken>> = BTreeMap::new();
    for (pod, pid) in processes(pods)? {
        let Some(name) = program(pid) else {
            continue;
        };
        let rollup = fs::read_to_string(format!("/proc/{pid}/smaps_rollup"))
            .with_context(|| format!("read the memory of {name} of pod {pod}"))?;
        let one = Taken {
            pss: kib(&rollup, "Pss:").context("find Pss in smaps_rollup")?,
            anonymous: kib(&rollup, "Anonymous:").context("find Anonymous in smaps_rollup")?,
        };
        taken.entry(name).or_default().push(one);
    }
    for name in OF_POD.iter().chain(outside).chain([&QEMU]) {
        let found = taken.get(*name).map_or(0, Vec::len);
        ensure!(
            found == pods.len(),
            "{found} processes {name} in {} pods",
            pods.len()
        );
    }
    let mut figures = Vec::new();
    for (measure, value) in [
        ("pss", (|one| one.pss) as Measure),
        ("anonymous", |one| one.anonymous),
    ] {
        let of = |name: &str| {
            let all = taken.get(name).into_iter().flatten();
            let all: Vec<f64> = all.map(value).map(mib).collect();
            mean(&all).unwrap_or_default()
        };
        let pod: f64 = OF_POD.into_iter().map(of).sum();
        let parts = OF_POD.map(|name| (name, of(name)));
        let beside: f64 = outside.iter().map(|name| of(name)).sum();
        let mut sums = vec![("pod", pod), ("total", pod + beside), ("qemu", of(QEMU))];
        sums.extend(outside.iter().map(|name| (*name, of(name))));
        figures.extend(
            parts.into_iter().chain(sums).map(|(name, value)| {
                Figure::new(format!("vm.memory.{measure}.{name}"), value, "MiB")
            }),
        );
    }
    Ok(figures)
}

/// Memory of one process that is ours alone.
pub(super) fn of_process(pid: u32) -> Result<Vec<Figure>> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))
        .with_context(|| format!("read the memory of process {pid}"))?;
    let figure = |name: &str, field: &str| -> Result<Figure> {
        let kib = kib(&status, field).with_context(|| format!("find {field}"))?;
        // Promised in MB of a million bytes.
        let value = as_f64(kib) * 1024.0 / 1e6;
        Ok(Figure::new(format!("host.memory.{name}"), value, "MB"))
    };
    Ok(vec![
        figure("resident", "VmRSS:")?,
        figure("anonymous", "RssAnon:")?,
    ])
}

/// Resident memory of some processes together, in MB of a million bytes.
pub(super) fn resident(pids: &[u32]) -> Result<f64> {
    let mut sum = 0;
    for pid in pids {
        let status = fs::read_to_string(format!("/proc/{pid}/status"))
            .with_context(|| format!("read the memory of process {pid}"))?;
        sum += kib(&status, "VmRSS:").context("find VmRSS")?;
    }
    Ok(as_f64(sum) * 1024.0 / 1e6)
}

fn mib(kib: u64) -> f64 {
    as_f64(kib) / 1024.0
}

pub(super) fn kib(text: &str, field: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(field))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Processes in the pods' cgroups and their supervisors, each with the UID of its pod.
fn processes(pods: &[String]) -> Result<Vec<(String, u32)>> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").context("list processes")? {
        let entry = entry.context("list processes")?;
        let Some(pid) = entry
            .file_name()
            .to_str()
            .and_then(|name| name.parse().ok())
        else {
            continue;
        };
        // A process that has exited has no files.
        let cgroup = fs::read_to_string(entry.path().join("cgroup")).unwrap_or_default();
        let arguments = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let arguments = String::from_utf8_lossy(&arguments);
        let pod = pods.iter().find(|uid| {
            cgroup.contains(&format!("pod{uid}"))
                || arguments.contains(SUPERVISOR) && arguments.contains(uid.as_str())
        });
        found.extend(pod.map(|uid| (uid.clone(), pid)));
    }
    Ok(found)
}

/// The name a process was started under; `None` if it has ended.
fn program(pid: u32) -> Option<String> {
    let arguments = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
    let first = arguments.split(|byte| *byte == 0).next()?;
    let path = std::str::from_utf8(first).ok()?;
    let name = Path::new(path).file_name()?.to_str()?;
    Some(name.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_whole() {
        let text = "Rss:   9 kB\nPss:      1234 kB\nPss_Anon:  5 kB\nAnonymous:   7 kB\n";
        assert_eq!(kib(text, "Pss:"), Some(1234));
        assert_eq!(kib(text, "Anonymous:"), Some(7));
        assert_eq!(kib(text, "Swap:"), None);
    }
}
