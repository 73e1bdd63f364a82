//! Names and numbers of the kernel's capabilities.

use std::fs;

use rustix::thread::CapabilitySet;

/// The capabilities that this process can grant: a container that requests another fails to start.
pub(crate) fn bounding_set() -> u64 {
    fs::read_to_string("/proc/self/status")
        .ok()
        .and_then(|text| {
            let line = text.lines().find_map(|line| line.strip_prefix("CapBnd:"))?;
            u64::from_str_radix(line.trim(), 16).ok()
        })
        .unwrap_or(0)
}

/// By the kernel's numbers.
const CAPABILITIES: &[&str] = &[
    "CHOWN",
    "DAC_OVERRIDE",
    "DAC_READ_SEARCH",
    "FOWNER",
    "FSETID",
    "KILL",
    "SETGID",
    "SETUID",
    "SETPCAP",
    "LINUX_IMMUTABLE",
    "NET_BIND_SERVICE",
    "NET_BROADCAST",
    "NET_ADMIN",
    "NET_RAW",
    "IPC_LOCK",
    "IPC_OWNER",
    "SYS_MODULE",
    "SYS_RAWIO",
    "SYS_CHROOT",
    "SYS_PTRACE",
    "SYS_PACCT",
    "SYS_ADMIN",
    "SYS_BOOT",
    "SYS_NICE",
    "SYS_RESOURCE",
    "SYS_TIME",
    "SYS_TTY_CONFIG",
    "MKNOD",
    "LEASE",
    "AUDIT_WRITE",
    "AUDIT_CONTROL",
    "SETFCAP",
    "MAC_OVERRIDE",
    "MAC_ADMIN",
    "SYSLOG",
    "WAKE_ALARM",
    "BLOCK_SUSPEND",
    "AUDIT_READ",
    "PERFMON",
    "BPF",
    "CHECKPOINT_RESTORE",
];

/// Every capability of the kernel, as `CAP_…`.
pub fn all() -> Vec<String> {
    CAPABILITIES
        .iter()
        .map(|name| format!("CAP_{name}"))
        .collect()
}

/// Whether the set contains the capability with this name.
pub(crate) fn contains(set: u64, name: &str) -> bool {
    capability_number(name).is_some_and(|number| set >> number & 1 == 1)
}

/// The capabilities with these names; a name that the kernel does not know is none.
pub(crate) fn set_of(names: &[String]) -> CapabilitySet {
    let numbers = names.iter().filter_map(|name| capability_number(name));
    numbers.fold(CapabilitySet::empty(), |set, number| {
        set | CapabilitySet::from_bits_retain(1 << number)
    })
}

fn capability_number(name: &str) -> Option<usize> {
    let name = name.strip_prefix("CAP_")?;
    CAPABILITIES.iter().position(|one| *one == name)
}
