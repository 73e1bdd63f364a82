//! What runs in a pod, found by its control group, and ending it the hard way.

use std::fs;

use rustix::process::{Pid, Signal, kill_process};

/// The numbers of all processes of this machine.
pub(crate) fn processes() -> Vec<i32> {
    let entries = fs::read_dir("/proc").expect("read /proc");
    entries
        .flatten()
        .filter_map(|entry| entry.file_name().to_str()?.parse().ok())
        .collect()
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
    let all = processes_of_pod(uid);
    let found: Vec<i32> = all
        .iter()
        .filter(|(_, own)| own == name)
        .map(|(pid, _)| *pid)
        .collect();
    let [pid] = found[..] else {
        panic!("looking for one {name} among {all:?}")
    };
    kill(pid);
    pid
}

/// `kill -9`.
pub fn kill(pid: i32) {
    let pid = Pid::from_raw(pid).expect("a process has a number above zero");
    kill_process(pid, Signal::KILL).expect("kill a process of ours");
}
