//! Renders one container as an OCI runtime specification for `libcontainer`. Pure.
//!
//! Network, IPC and UTS namespaces are omitted: the helper that creates the container is in the
//! pod's namespaces, and the container inherits them.

use std::path::Path;

use serde_json::{Value, json};

use crate::{
    launch::borrowed,
    model::{Access, ContainerSpec, Escalation, Isolation, Mount, Terminal},
    oom,
};

/// A device node with its numbers on this host.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Node<'a> {
    pub(crate) device: &'a crate::model::Device,
    pub(crate) kind: &'static str,
    pub(crate) major: u32,
    pub(crate) minor: u32,
}

impl Node<'_> {
    /// Root ignores the mode of a device node, but not the device filter.
    pub(crate) fn is_read_only(&self) -> bool {
        self.device.mode & 0o222 == 0
    }
}

/// Kernel files that expose or change more than the container.
const MASKED: &[&str] = &[
    "/proc/acpi",
    "/proc/asound",
    "/proc/interrupts",
    "/proc/kcore",
    "/proc/keys",
    "/proc/latency_stats",
    "/proc/sched_debug",
    "/proc/scsi",
    "/proc/timer_list",
    "/proc/timer_stats",
    "/sys/devices/virtual/powercap",
    "/sys/firmware",
];
const READ_ONLY: &[&str] = &[
    "/proc/bus",
    "/proc/fs",
    "/proc/irq",
    "/proc/sys",
    "/proc/sysrq-trigger",
];

/// The container's paths, and what the host can grant.
pub(crate) struct Context<'a> {
    /// The mounted root, absolute.
    pub(crate) root: &'a Path,
    pub(crate) cgroup: &'a str,
    pub(crate) termination_file: &'a Path,
    /// The OOM score of this process.
    pub(crate) own_oom_score: i32,
    /// Whether this process can grant a capability.
    pub(crate) available: &'a dyn Fn(&str) -> bool,
    /// The user namespace of a pod with users of its own.
    pub(crate) user_namespace: Option<&'a Path>,
    /// Whether a file or directory of the host is, or has, the host's device nodes.
    pub(crate) has_devices: &'a dyn Fn(&Path) -> bool,
}

pub(crate) fn render(spec: &ContainerSpec, nodes: &[Node<'_>], context: &Context<'_>) -> Value {
    let confined = spec.security.isolation == Isolation::Confined;
    let mut namespaces = vec![json!({"type": "pid"}), json!({"type": "mount"})];
    if let Some(path) = context.user_namespace {
        namespaces.push(json!({"type": "user", "path": path}));
    }
    // In a user namespace device nodes cannot be made; those of the host are mounted instead.
    let made = match context.user_namespace {
        Some(_) => &[],
        None => nodes,
    };
    let mut process = process(spec, context.own_oom_score, context.available);
    if spec.terminal == Terminal::Own {
        add_terminal(&mut process, spec);
    }
    json!({
        "ociVersion": "1.1.0",
        "root": {
            "path": context.root,
            "readonly": spec.root_access == Access::ReadOnly,
        },
        "mounts": mounts(spec, context),
        "process": process,
        "linux": {
            "namespaces": namespaces,
            "cgroupsPath": context.cgroup,
            "devices": made.iter().map(|node| json!({
                "path": node.device.path,
                "type": node.kind,
                "major": node.major,
                "minor": node.minor,
                "fileMode": node.device.mode,
                "uid": node.device.uid,
                "gid": node.device.gid,
            })).collect::<Vec<_>>(),
            "resources": resources(spec, nodes),
            "maskedPaths": if confined { MASKED } else { &[] },
            "readonlyPaths": if confined { READ_ONLY } else { &[] },
        },
    })
}

/// The container's program, user and privileges.
pub(crate) fn process(
    spec: &ContainerSpec,
    own_oom_score: i32,
    available: &dyn Fn(&str) -> bool,
) -> Value {
    let own = spec.security.capabilities.iter().map(String::as_str);
    let capabilities: Vec<&str> = own
        .filter(|name| available(name))
        .chain(borrowed(&spec.security).map(|(name, _)| name))
        .collect();
    let none: [&str; 0] = [];
    json!({
        "terminal": false,
        "user": {
            "uid": spec.user.uid,
            "gid": spec.user.gid,
            "additionalGids": spec.user.groups,
        },
        "args": spec.args,
        "env": spec.env,
        "cwd": spec.cwd,
        "capabilities": {
            "bounding": capabilities,
            "effective": capabilities,
            "permitted": capabilities,
            "inheritable": none,
            "ambient": none,
        },
        "rlimits": spec.rlimits.iter().map(|limit| json!({
            "type": limit.kind, "soft": limit.soft, "hard": limit.hard,
        })).collect::<Vec<_>>(),
        "oomScoreAdj": oom::of_container(spec.oom_score, own_oom_score),
        "noNewPrivileges": spec.security.escalation == Escalation::Denied,
    })
}

/// Gives the program a terminal, and tells it its kind.
pub(crate) fn add_terminal(process: &mut Value, spec: &ContainerSpec) {
    process["terminal"] = json!(true);
    let mut env = spec.env.clone();
    if !env.iter().any(|one| one.starts_with("TERM=")) {
        env.push("TERM=xterm".to_owned());
    }
    process["env"] = json!(env);
}

fn resources(spec: &ContainerSpec, nodes: &[Node<'_>]) -> Value {
    let mut devices = vec![match spec.security.isolation {
        Isolation::Confined => json!({"allow": false, "access": "rwm"}),
        Isolation::Privileged => json!({"allow": true, "access": "rwm"}),
    }];
    devices.extend(nodes.iter().map(|node| {
        json!({
            "allow": true, "type": node.kind, "major": node.major, "minor": node.minor,
            "access": if node.is_read_only() { "rm" } else { "rwm" },
        })
    }));
    let mut resources = json!({"devices": devices});
    let wanted = &spec.resources;
    let mut cpu = json!({});
    if let Some(shares) = wanted.cpu_shares {
        cpu["shares"] = shares.into();
    }
    if let Some(quota) = wanted.cpu_quota {
        cpu["quota"] = quota.into();
        cpu["period"] = 100_000.into();
    }
    if let Some(cpus) = &wanted.cpus {
        cpu["cpus"] = cpus.as_str().into();
    }
    if cpu != json!({}) {
        resources["cpu"] = cpu;
    }
    if let Some(bytes) = wanted.memory_bytes {
        resources["memory"] = json!({"limit": bytes});
    }
    if let Some(limit) = wanted.pids {
        resources["pids"] = json!({"limit": limit});
    }
    resources
}

/// Device nodes work only in `/dev`, where the runtime makes those of the container, in `/dev/pts`, and in
/// what the pod mounts from the host's own `/dev`. The device filter applies there as well.
fn mounts(spec: &ContainerSpec, context: &Context<'_>) -> Vec<Value> {
    let sys = match spec.security.isolation {
        Isolation::Confined => "ro",
        Isolation::Privileged => "rw",
    };
    let mut all = vec![
        special("/proc", "proc", "proc", &["nosuid", "noexec", "nodev"]),
        special(
            "/dev",
            "tmpfs",
            "tmpfs",
            &["nosuid", "strictatime", "mode=755", "size=65536k"],
        ),
        special(
            "/dev/pts",
            "devpts",
            "devpts",
            &[
                "nosuid",
                "noexec",
                "newinstance",
                "ptmxmode=0666",
                "mode=0620",
                "gid=5",
            ],
        ),
        special(
            "/dev/mqueue",
            "mqueue",
            "mqueue",
            &["nosuid", "noexec", "nodev"],
        ),
        special(
            "/sys",
            "sysfs",
            "sysfs",
            &["nosuid", "noexec", "nodev", sys],
        ),
    ];
    if !spec
        .mounts
        .iter()
        .any(|mount| mount.destination == Path::new("/dev/shm"))
    {
        let options = ["nosuid", "noexec", "nodev", "mode=1777", "size=65536k"];
        all.push(special("/dev/shm", "tmpfs", "shm", &options));
    }
    // Sorted, so that a mount comes after the mounts that it is inside of.
    let mut wanted: Vec<&Mount> = spec.mounts.iter().collect();
    wanted.sort_by_key(|mount| mount.destination.components().count());
    all.extend(wanted.iter().map(|mount| {
        let keeps = spec.security.isolation == Isolation::Privileged
            || (context.has_devices)(&mount.source);
        bind(mount, keeps)
    }));
    if context.user_namespace.is_some() {
        all.extend(spec.devices.iter().map(|device| {
            let node = Mount {
                source: device.host_path.clone(),
                destination: device.path.clone(),
                access: Access::ReadWrite,
            };
            bind(&node, true)
        }));
    }
    let termination = Mount {
        source: context.termination_file.to_owned(),
        destination: spec.termination_message_path.clone(),
        access: Access::ReadWrite,
    };
    all.push(bind(&termination, false));
    all
}

fn special(destination: &str, kind: &str, source: &str, options: &[&str]) -> Value {
    json!({"destination": destination, "type": kind, "source": source, "options": options})
}

fn bind(mount: &Mount, keeps_devices: bool) -> Value {
    let mut options = vec!["rbind", "rprivate"];
    options.push(match mount.access {
        Access::ReadOnly => "ro",
        Access::ReadWrite => "rw",
    });
    if !keeps_devices {
        // Also for what is mounted inside of it.
        options.push("rnodev");
    }
    json!({
        "destination": mount.destination, "type": "bind", "source": mount.source,
        "options": options,
    })
}
