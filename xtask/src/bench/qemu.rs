//! The QEMU processes of our guests, found by the guest's name, and what their command lines say.

use std::{fs, path::PathBuf, process::Command};

use anyhow::{Context as _, Result, ensure};

use crate::workspace::run_quietly;

pub(super) const PROGRAM: &str = "qemu-system-x86_64";
/// A process name is cut after 15 characters.
const NAME: &str = "qemu-system-x86";
const PAGE: u64 = 4096;

#[derive(Debug, Clone)]
pub(super) struct Qemu {
    pub(super) pid: u32,
    arguments: Vec<String>,
}

impl Qemu {
    /// Those of a guest of the default namespace; two while it moves.
    pub(super) fn all_of(vm: &str) -> Result<Vec<Self>> {
        let name = format!("guest=default_{vm}");
        let mut found = Vec::new();
        for entry in fs::read_dir("/proc").context("list processes")? {
            let process = entry.context("list processes")?;
            let Some(pid) = process
                .file_name()
                .to_str()
                .and_then(|pid| pid.parse().ok())
            else {
                continue;
            };
            // It may have ended.
            let comm = fs::read_to_string(process.path().join("comm")).unwrap_or_default();
            if comm.trim() != NAME {
                continue;
            }
            let line = fs::read(process.path().join("cmdline")).unwrap_or_default();
            let arguments: Vec<String> = line
                .split(|byte| *byte == 0)
                .map(|part| String::from_utf8_lossy(part).into_owned())
                .collect();
            let qemu = Self { pid, arguments };
            let given = qemu
                .value("-name")
                .and_then(|value| value.split(',').next());
            if given == Some(name.as_str()) {
                found.push(qemu);
            }
        }
        Ok(found)
    }

    pub(super) fn of(vm: &str) -> Result<Self> {
        let mut all = Self::all_of(vm)?;
        ensure!(all.len() == 1, "{vm} has {} processes", all.len());
        Ok(all.remove(0))
    }

    fn value(&self, flag: &str) -> Option<&str> {
        let mut rest = self.arguments.iter().skip_while(|one| *one != flag);
        rest.nth(1).map(String::as_str)
    }

    /// Machine type, accelerator, CPU and number of CPUs, for a QEMU by hand.
    pub(super) fn machine(&self) -> Result<Vec<String>> {
        let mut machine = Vec::new();
        for flag in ["-machine", "-accel", "-cpu", "-smp"] {
            let value = self
                .value(flag)
                .with_context(|| format!("the guest's QEMU has no {flag}"))?;
            // What follows names objects of that command line.
            let value = match flag {
                "-machine" => value.split(',').next().unwrap_or(value),
                _ => value,
            };
            machine.extend([flag.to_owned(), value.to_owned()]);
        }
        Ok(machine)
    }

    /// How it reads and writes disk images.
    pub(super) fn aio(&self) -> &'static str {
        let has = |text: &str| self.arguments.iter().any(|one| one.contains(text));
        if has("\"aio\":\"native\"") {
            "native"
        } else if has("\"aio\":\"io_uring\"") {
            "io_uring"
        } else {
            "threads"
        }
    }

    pub(super) fn has_vhost(&self) -> bool {
        let vhost = ["\"vhost\":true", "vhost=on"];
        let has = |one: &String| vhost.iter().any(|text| one.contains(text));
        self.arguments.iter().any(has)
    }

    /// A file of its pod.
    pub(super) fn inside(&self, path: &str) -> PathBuf {
        let root = PathBuf::from(format!("/proc/{}/root", self.pid));
        let path = path.trim_start_matches('/');
        // A symbolic link with an absolute target would lead out of the pod.
        match path.strip_prefix("var/run/") {
            Some(rest) if root.join("var/run").is_symlink() => root.join("run").join(rest),
            _ => root.join(path),
        }
    }

    pub(super) fn console(&self, vmi_uid: &str) -> PathBuf {
        self.inside(&format!("var/run/kubevirt-private/{vmi_uid}/virt-serial0"))
    }

    /// The first line of its `--version`.
    pub(super) fn version(&self) -> Result<String> {
        let program = fs::read_link(format!("/proc/{}/exe", self.pid)).context("find QEMU")?;
        let mut asked = Command::new("chroot");
        asked.arg(self.inside("")).arg(program);
        first_line(asked.arg("--version"))
    }
}

/// The version of the host's QEMU, which runs guests by hand.
pub(super) fn version_of_host() -> Result<String> {
    first_line(Command::new(PROGRAM).arg("--version"))
}

fn first_line(command: &mut Command) -> Result<String> {
    let shown = String::from_utf8(run_quietly(command)?).context("read a version")?;
    Ok(shown.lines().next().unwrap_or_default().to_owned())
}

/// The bytes of a process that are in memory; none if it has ended.
pub(super) fn resident(pid: u32) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/statm")).ok()?;
    let pages: u64 = text.split_whitespace().nth(1)?.parse().ok()?;
    Some(pages * PAGE)
}
