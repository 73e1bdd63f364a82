//! Control groups of version 1 and 2 through their files: enter, list, kill, remove, count OOM
//! kills, choose CPUs.
//!
//! A path means the same group in every hierarchy. `libcontainer` writes the limits of a new container;
//! only its CPUs change later.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use rustix::process::{Pid, Signal, kill_process};

/// The type of a file system of version 2, as `statfs` returns it.
const CGROUP2_MAGIC: rustix::fs::FsWord = 0x6367_7270;
const ROOT: &str = "/sys/fs/cgroup";

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

#[derive(Debug)]
struct Hierarchy {
    mount: PathBuf,
    version: Version,
    /// Mount options of the file system, which name the controllers of version 1.
    options: String,
}

/// Moves this process into `path` in every hierarchy, and creates the group where it is missing.
pub fn enter(path: &str) -> io::Result<()> {
    let me = std::process::id().to_string();
    for hierarchy in hierarchies()? {
        let dir = hierarchy.create(path)?;
        fs::write(dir.join("cgroup.procs"), &me)?;
    }
    Ok(())
}

/// All processes in `path` and below it.
pub fn pids(path: &str) -> io::Result<Vec<i32>> {
    let mut found = Vec::new();
    for hierarchy in hierarchies()? {
        collect_pids(&hierarchy.dir(path), &mut found);
    }
    found.sort_unstable();
    found.dedup();
    Ok(found)
}

/// Sends SIGKILL to all processes in `path` and below it.
pub fn kill(path: &str) -> io::Result<()> {
    for pid in pids(path)? {
        if let Some(pid) = Pid::from_raw(pid) {
            match kill_process(pid, Signal::KILL) {
                Ok(()) | Err(rustix::io::Errno::SRCH) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }
    Ok(())
}

/// Removes `path` and all groups below it from every hierarchy. Fails if they have processes.
pub fn remove(path: &str) -> io::Result<()> {
    let mut first_error = None;
    for hierarchy in hierarchies()? {
        if let Err(error) = remove_tree(&hierarchy.dir(path)) {
            first_error.get_or_insert(error);
        }
    }
    first_error.map_or(Ok(()), Err)
}

/// Removes `path` where it has neither processes nor groups.
pub fn remove_empty(path: &str) -> io::Result<()> {
    for hierarchy in hierarchies()? {
        match fs::remove_dir(hierarchy.dir(path)) {
            Err(error)
                if !matches!(
                    error.kind(),
                    io::ErrorKind::NotFound
                        | io::ErrorKind::ResourceBusy
                        | io::ErrorKind::DirectoryNotEmpty
                ) =>
            {
                return Err(error);
            }
            _ => {}
        }
    }
    Ok(())
}

/// Whether the group exists in any hierarchy.
pub fn exists(path: &str) -> io::Result<bool> {
    Ok(hierarchies()?
        .iter()
        .any(|hierarchy| hierarchy.dir(path).exists()))
}

/// The directory of `path` on a host that has only version 2, which `libcontainer` then uses as well.
pub(crate) fn unified_dir(path: &str) -> io::Result<Option<PathBuf>> {
    if rustix::fs::statfs(ROOT)?.f_type != CGROUP2_MAGIC {
        return Ok(None);
    }
    let all = hierarchies()?;
    let found = all.iter().find(|one| one.version == Version::V2);
    let hierarchy = found.ok_or(io::ErrorKind::NotFound)?;
    Ok(Some(hierarchy.dir(path)))
}

/// How many processes of this group the OOM killer has killed.
pub(crate) fn oom_kills(path: &str) -> u64 {
    let Ok(all) = hierarchies() else { return 0 };
    all.iter()
        .filter_map(|hierarchy| {
            let file = match hierarchy.version {
                Version::V1 => "memory.oom_control",
                Version::V2 => "memory.events",
            };
            let text = fs::read_to_string(hierarchy.dir(path).join(file)).ok()?;
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix("oom_kill "))?;
            line.trim().parse::<u64>().ok()
        })
        .sum()
}

/// Moves the groups directly in `path` to the CPUs, as a list of the kernel, that `cpus` returns for a group's name.
pub fn set_cpus<'a>(path: &str, cpus: impl Fn(&str) -> &'a str) -> io::Result<()> {
    for hierarchy in hierarchies()? {
        if hierarchy.version == Version::V1 && !hierarchy.has("cpuset") {
            continue;
        }
        for dir in children(&hierarchy.dir(path)) {
            let Some(name) = dir.file_name().and_then(|name| name.to_str()) else {
                continue;
            };
            let (file, wanted) = (dir.join("cpuset.cpus"), cpus(name));
            match fs::read_to_string(&file) {
                Ok(current) if current.trim() != wanted => fs::write(&file, wanted)?,
                // The group has ended, or this hierarchy of version 2 does not have the controller.
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
    }
    Ok(())
}

impl Hierarchy {
    fn dir(&self, path: &str) -> PathBuf {
        self.mount.join(path.trim_start_matches('/'))
    }

    fn create(&self, path: &str) -> io::Result<PathBuf> {
        let mut dir = self.mount.clone();
        for part in Path::new(path.trim_start_matches('/')) {
            let parent = dir.clone();
            dir.push(part);
            match fs::create_dir(&dir) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => return Err(error),
            }
            // A new cpuset group has neither CPUs nor memory nodes, and accepts no process without.
            if self.version == Version::V1 && self.has("cpuset") {
                for file in ["cpuset.cpus", "cpuset.mems"] {
                    if fs::read_to_string(dir.join(file))?.trim().is_empty() {
                        fs::write(dir.join(file), fs::read_to_string(parent.join(file))?)?;
                    }
                }
            }
        }
        Ok(dir)
    }

    fn has(&self, controller: &str) -> bool {
        self.options.split(',').any(|option| option == controller)
    }
}

fn hierarchies() -> io::Result<Vec<Hierarchy>> {
    Ok(parse_mounts(&fs::read_to_string("/proc/self/mountinfo")?))
}

fn parse_mounts(mountinfo: &str) -> Vec<Hierarchy> {
    let mut found: Vec<Hierarchy> = Vec::new();
    for line in mountinfo.lines() {
        let Some((front, back)) = line.split_once(" - ") else {
            continue;
        };
        let mut back = back.split(' ');
        let version = match back.next() {
            Some("cgroup") => Version::V1,
            Some("cgroup2") => Version::V2,
            _ => continue,
        };
        let options = back.nth(1).unwrap_or_default().to_owned();
        let Some(mount) = front.split(' ').nth(4) else {
            continue;
        };
        // A hierarchy may be mounted more than once.
        if found
            .iter()
            .any(|one| one.version == version && one.options == options)
        {
            continue;
        }
        found.push(Hierarchy {
            mount: PathBuf::from(mount),
            version,
            options,
        });
    }
    found
}

fn collect_pids(dir: &Path, found: &mut Vec<i32>) {
    let Ok(text) = fs::read_to_string(dir.join("cgroup.procs")) else {
        return;
    };
    found.extend(text.lines().filter_map(|line| line.parse::<i32>().ok()));
    for child in children(dir) {
        collect_pids(&child, found);
    }
}

fn children(dir: &Path) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else {
        return Vec::new();
    };
    entries
        .filter_map(Result::ok)
        .filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir()))
        .map(|entry| entry.path())
        .collect()
}

fn remove_tree(dir: &Path) -> io::Result<()> {
    for child in children(dir) {
        remove_tree(&child)?;
    }
    match fs::remove_dir(dir) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hierarchies_are_read_from_mountinfo() {
        let found = parse_mounts(
            "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw,mode=755\n\
             34 31 0:31 / /sys/fs/cgroup/cpuset rw,relatime shared:4 - cgroup cgroup rw,cpuset\n\
             41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n\
             42 31 0:38 / /elsewhere rw - cgroup2 cgroup2 rw\n",
        );
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].mount, Path::new("/sys/fs/cgroup/cpuset"));
        assert!(found[0].has("cpuset"));
        assert_eq!(found[1].version, Version::V2);
        assert_eq!(
            found[1].dir("/a/b"),
            Path::new("/sys/fs/cgroup/unified/a/b")
        );
    }
}
