//! Starting passt, which connects a guest's interface to the network of the pod without privileges.
//!
//! passt first moves into namespaces of its own. The container runtime's filter of system calls does not
//! permit that, and passt would not start. So this program starts it under a further filter, by which the
//! calls in question do nothing and succeed: passt then is confined by the pod and by its own
//! filter, as QEMU is.

#![expect(unsafe_code, reason = "no safe wrapper covers filters of system calls")]

use std::ffi::OsString;
use std::fs;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use launcher_channel::{PasstServer, PortRange};

use crate::monitor::own_program;

/// The argument that selects this mode.
pub(crate) const START_PASST: &str = "start-passt";
/// The first part of the name of each process.
pub(crate) const PROCESS: &str = "passt";
const PASST: &str = "/usr/bin/passt";
/// Opening all ports takes a while under load.
const TIMEOUT: Duration = Duration::from_secs(20);
/// Characters of passt's own message.
const MAX_MESSAGE: usize = 300;

/// The calls by which passt moves into namespaces of its own.
const IGNORED_CALLS: [libc::c_long; 4] = [
    libc::SYS_unshare,
    libc::SYS_mount,
    libc::SYS_pivot_root,
    libc::SYS_umount2,
];

/// Returns when passt listens on the socket and on the ports, as a process of that name.
pub(crate) async fn start(server: &PasstServer, name: &str) -> io::Result<()> {
    for path in [server.socket.clone(), repair_socket(&server.socket)] {
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
    }
    let mut command = tokio::process::Command::new(own_program()?);
    command
        .arg(START_PASST)
        .arg(name)
        .args(arguments(server))
        .env_clear()
        .stdin(Stdio::null())
        .kill_on_drop(true);
    let ended = tokio::time::timeout(TIMEOUT, command.output()).await;
    let ended = ended.map_err(|_| io::Error::from(io::ErrorKind::TimedOut))??;
    if ended.status.success() {
        tracing::info!(interface = server.name, "started passt");
        return Ok(());
    }
    let text = String::from_utf8_lossy(&ended.stderr);
    let last = text.lines().rfind(|line| !line.trim().is_empty());
    let printable = last.unwrap_or_default().chars();
    let printable = printable.filter(|char| !char.is_control());
    let message: String = printable.take(MAX_MESSAGE).collect();
    Err(io::Error::other(message))
}

/// passt makes a second socket beside the first one.
fn repair_socket(socket: &str) -> String {
    format!("{socket}.repair")
}

fn arguments(server: &PasstServer) -> Vec<String> {
    let (tcp, udp) = match &server.ports {
        None => ("all".to_owned(), "all".to_owned()),
        Some(ports) => (list(&ports.tcp), list(&ports.udp)),
    };
    let pairs = [
        ("--socket", server.socket.clone()),
        ("--log-file", format!("{}.log", server.socket)),
        ("--interface", server.pod_interface.clone()),
        ("--mtu", server.mtu.to_string()),
        ("--tcp-ports", tcp),
        ("--udp-ports", udp),
    ];
    let pairs = pairs.into_iter();
    // The gateway's address is that of the gateway, not of the pod's loopback.
    let flags = ["--vhost-user".to_owned(), "--no-map-gw".to_owned()];
    flags
        .into_iter()
        .chain(pairs.flat_map(|(flag, value)| [flag.to_owned(), value]))
        .collect()
}

fn list(ports: &[PortRange]) -> String {
    let range = |ports: &PortRange| match ports {
        PortRange { first, last } if first == last => first.to_string(),
        PortRange { first, last } => format!("{first}-{last}"),
    };
    let all: Vec<String> = ports.iter().map(range).collect();
    if all.is_empty() {
        return "none".to_owned();
    }
    all.join(",")
}

/// Becomes passt; returns only on failure. The first argument is the name of the process.
pub(crate) fn become_passt(arguments: &[OsString]) -> ExitCode {
    let Some((name, rest)) = arguments.split_first() else {
        return ExitCode::FAILURE;
    };
    if let Err(error) = ignore_calls() {
        tracing::error!(%error, "failed to prepare the start of passt");
        return ExitCode::FAILURE;
    }
    let error = Command::new(PASST).arg0(name).args(rest).exec();
    tracing::error!(%error, "failed to run {PASST}");
    ExitCode::FAILURE
}

/// Of two filters that answer a call with an error, the newer one chooses the error: here none.
fn ignore_calls() -> io::Result<()> {
    rustix::thread::set_no_new_privs(true)?;
    let mut program = filter();
    let length = u16::try_from(program.len()).map_err(io::Error::other)?;
    let program = libc::sock_fprog {
        len: length,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program and its instructions are alive during the call, which copies them.
    let result = unsafe {
        libc::prctl(
            libc::PR_SET_SECCOMP,
            libc::c_ulong::from(libc::SECCOMP_MODE_FILTER),
            &raw const program,
        )
    };
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

fn filter() -> Vec<libc::sock_filter> {
    let step = |code: u32, on_match: u8, value: u32| libc::sock_filter {
        code: u16::try_from(code).unwrap_or(u16::MAX),
        jt: on_match,
        jf: 0,
        k: value,
    };
    // The number of the call is the first member of what a filter sees.
    let mut all = vec![step(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0, 0)];
    let count = IGNORED_CALLS.len();
    for (at, call) in IGNORED_CALLS.into_iter().enumerate() {
        // Over the remaining comparisons and the permission.
        let distance = u8::try_from(count - at).unwrap_or(u8::MAX);
        let call = u32::try_from(call).unwrap_or(u32::MAX);
        let compare = libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K;
        all.push(step(compare, distance, call));
    }
    let answer = libc::BPF_RET | libc::BPF_K;
    all.push(step(answer, 0, libc::SECCOMP_RET_ALLOW));
    all.push(step(answer, 0, libc::SECCOMP_RET_ERRNO));
    all
}

#[cfg(test)]
mod tests {
    use launcher_channel::ForwardedPorts;

    use super::*;

    fn server(ports: Option<ForwardedPorts>) -> PasstServer {
        PasstServer {
            name: "default".to_owned(),
            socket: "/run/s".to_owned(),
            pod_interface: "eth0".to_owned(),
            mtu: 1450,
            ports,
        }
    }

    #[test]
    fn ports_follow_from_the_plan() {
        let range = |first, last| PortRange { first, last };
        let some = ForwardedPorts {
            tcp: vec![range(80, 80), range(8000, 8010)],
            udp: vec![],
        };
        for (ports, tcp, udp) in [(None, "all", "all"), (Some(some), "80,8000-8010", "none")] {
            let all = arguments(&server(ports)).join(" ");
            let expected = format!("--mtu 1450 --tcp-ports {tcp} --udp-ports {udp}");
            assert!(all.ends_with(&expected), "{all}");
        }
    }

    /// In a process of its own, because a filter stays.
    #[test]
    fn ignored_calls_succeed_without_effect() {
        let own = fs::read_link("/proc/self/ns/user").unwrap();
        let mut command = Command::new("/bin/sh");
        command.args(["-c", "unshare --user readlink /proc/self/ns/user"]);
        // SAFETY: only system calls between fork and exec.
        unsafe { command.pre_exec(ignore_calls) };
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let found = String::from_utf8(output.stdout).unwrap();
        assert_eq!(found.trim(), own.to_str().unwrap());
    }
}
