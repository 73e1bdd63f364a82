//! Finds processes of a pod by control group, kills them, and limits their memory.

use std::{fs, path::Path};

use rustix::process::{Pid, Signal, kill_process};

/// All PIDs of this host.
pub(crate) fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("read /proc");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
}

/// The command line of a process; empty if it is gone.
pub(crate) fn command_line(pid: i32) -> Vec<String> {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.split_terminator('\0').map(str::to_owned).collect()
}

/// The start time of a process that is not a zombie, which distinguishes it from a later one with the
/// same PID.
pub(crate) fn start_time(pid: i32) -> Option<String> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name before may contain anything; it ends at the last parenthesis.
    let mut fields = stat.rsplit_once(')')?.1.split_whitespace();
    let is_zombie = fields.next()? == "Z";
    let birth = fields.nth(18)?;
    (!is_zombie).then(|| birth.to_owned())
}

/// The processes in control groups below `group`.
pub(crate) fn processes_below(group: &str) -> Vec<i32> {
    let is_below = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(group))
            && start_time(*pid).is_some()
    };
    processes().into_iter().filter(is_below).collect()
}

/// `kill -9` of a process that may have ended already.
pub fn kill_if_alive(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process has a number above zero");
    match kill_process(pid, Signal::KILL) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => {}
        Err(error) => panic!("kill {pid:?}: {error}"),
    }
}

/// The processes of the pod with this UID, by name.
pub fn processes_of_pod(uid: &str) -> Vec<(i32, String)> {
    let group = format!("pod{uid}");
    let of_pod = |pid: &i32| {
        fs::read_to_string(format!("/proc/{pid}/cgroup")).is_ok_and(|text| text.contains(&group))
    };
    let named = |pid: i32| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).ok()?;
        Some((pid, name.trim().to_owned()))
    };
    processes()
        .into_iter()
        .filter(of_pod)
        .filter_map(named)
        .collect()
}

/// `kill -9` of the one process of that name in the pod.
#[track_caller]
pub fn kill_in_pod(uid: &str, name: &str) -> i32 {
    let pid = find_in_pod(uid, name);
    kill(pid);
    pid
}

/// `kill -STOP` of the processes with these names in the pod: they exist and do nothing.
pub fn suspend_in_pod(uid: &str, names: &[&str]) {
    for (process, name) in processes_of_pod(uid) {
        if names.contains(&name.as_str()) {
            let process = Pid::from_raw(process).expect("a process has a number above zero");
            kill_process(process, Signal::STOP).expect("suspend a process of ours");
        }
    }
}

/// The one process of that name in the pod.
#[track_caller]
pub fn find_in_pod(uid: &str, name: &str) -> i32 {
    let all = processes_of_pod(uid);
    let found: Vec<i32> = all
        .iter()
        .filter(|(_, own)| own == name)
        .map(|(pid, _)| *pid)
        .collect();
    let [pid] = found[..] else {
        panic!("looking for one {name} among {all:?}")
    };
    pid
}

/// `kill -9`.
pub fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process has a number above zero");
    kill_process(pid, Signal::KILL).expect("kill a process of ours");
}

/// Leaves all processes that share a process's control group so much memory beside what they hold.
pub fn limit_memory(pid: i32, more: u64) {
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).expect("a process is in groups");
    let of = |wanted: &str| {
        let found = groups.lines().find_map(|line| {
            let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
            let is_it = controllers.split(',').any(|one| one == wanted);
            is_it.then(|| group.trim_start_matches('/').to_owned())
        });
        found.map(|group| Path::new("/sys/fs/cgroup").join(wanted).join(group))
    };
    // The older version has a tree for memory, the newer one only one tree.
    let (group, limit, held) = match of("memory") {
        Some(group) => (group, "memory.limit_in_bytes", ["total_rss", "total_shmem"]),
        None => (
            of("").expect("some version of control groups"),
            "memory.max",
            ["anon", "shmem"],
        ),
    };
    let counted = fs::read_to_string(group.join("memory.stat")).expect("read what is held");
    let held: u64 = counted
        .lines()
        .filter_map(|line| line.split_once(' '))
        .filter(|(name, _)| held.contains(name))
        .filter_map(|(_, bytes)| bytes.parse::<u64>().ok())
        .sum();
    fs::write(group.join(limit), (held + more).to_string()).expect("set a limit of memory");
}
