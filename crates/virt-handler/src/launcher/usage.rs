//! What a guest uses of this node, from the kernel's records of QEMU.

use std::io;

use kubevirt_api::usage::VirtualMachineInstanceUsage;
use rustix::{
    param::clock_ticks_per_second,
    process::Pid,
    time::{ClockId, clock_gettime},
};

use super::{Peer, container::read_file};

/// The beginning of the name of QEMU's process.
const QEMU: &str = "qemu-system";
/// The beginning of the names of the guest's interfaces in the pod.
const TAP: &str = "tap";

/// The counters of one process.
#[derive(Debug, Default, PartialEq, Eq)]
struct Process {
    cpu_ticks: u64,
    memory_bytes: u64,
    disk: Option<(u64, u64)>,
}

impl Peer {
    /// The usage of the guest; `None` while it does not run.
    pub(crate) fn usage(&self) -> io::Result<Option<VirtualMachineInstanceUsage>> {
        let Some(qemu) = self.qemu()? else {
            return Ok(None);
        };
        let io = read_file(qemu, "io").ok();
        let Some(process) = process(
            &read_file(qemu, "stat")?,
            &read_file(qemu, "status")?,
            io.as_deref(),
        ) else {
            return Err(io::Error::other(
                "the kernel's records of QEMU are malformed",
            ));
        };
        let (received, sent) = network(&self.read("net/dev")?);
        let clock = clock_gettime(ClockId::Boottime);
        let since_boot: std::time::Duration = clock.try_into().unwrap_or_default();
        let ticks = clock_ticks_per_second().max(1);
        Ok(Some(VirtualMachineInstanceUsage {
            clock_milliseconds: u64::try_from(since_boot.as_millis()).unwrap_or(u64::MAX),
            cpu_milliseconds: process.cpu_ticks.saturating_mul(1000) / ticks,
            memory_bytes: process.memory_bytes,
            disk_read_bytes: process.disk.map(|(read, _)| read),
            disk_written_bytes: process.disk.map(|(_, written)| written),
            network_received_bytes: received,
            network_sent_bytes: sent,
        }))
    }

    /// Whether QEMU runs with this address on the vsock.
    pub(crate) fn has_vsock(&self, address: u32) -> io::Result<bool> {
        let Some(qemu) = self.qemu()? else {
            return Ok(false);
        };
        Ok(has_vsock(&read_file(qemu, "cmdline")?, address))
    }

    /// The child of process 1 that is QEMU. A process of the tenant could take its name, and would be
    /// counted in its place.
    fn qemu(&self) -> io::Result<Option<Pid>> {
        let is_qemu = |pid: &Pid| read_file(*pid, "comm").is_ok_and(|name| name.starts_with(QEMU));
        Ok(self.children()?.into_iter().find(is_qemu))
    }
}

/// Whether a command line of QEMU has a device with this address.
fn has_vsock(command_line: &str, address: u32) -> bool {
    let mut devices = command_line
        .split('\0')
        .filter_map(|word| word.split_once("\"guest-cid\":").map(|(_, rest)| rest));
    devices.any(|rest| {
        let end = rest.find(|c: char| !c.is_ascii_digit());
        let digits = rest.get(..end.unwrap_or(rest.len())).unwrap_or_default();
        digits.parse() == Ok(address)
    })
}

/// From the files of the process in `/proc`.
fn process(stat: &str, status: &str, io: Option<&str>) -> Option<Process> {
    // The name may contain anything; the fields are counted behind it.
    let (_, fields) = stat.rsplit_once(')')?;
    let mut fields = fields.split_whitespace().skip(11);
    let mut ticks = || fields.next()?.parse::<u64>().ok();
    let (user, system) = (ticks()?, ticks()?);
    let kibibytes = value(status, "VmRSS:").unwrap_or(0);
    let disk = io.and_then(|io| Some((value(io, "read_bytes:")?, value(io, "write_bytes:")?)));
    Some(Process {
        cpu_ticks: user.saturating_add(system),
        memory_bytes: kibibytes.saturating_mul(1024),
        disk,
    })
}

fn value(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Bytes that the guest received and sent. What the pod sends to an interface of the guest is what the
/// guest receives.
fn network(devices: &str) -> (u64, u64) {
    let counters = devices.lines().filter_map(|line| {
        let (name, counters) = line.trim_start().split_once(':')?;
        let mut counters = counters
            .split_whitespace()
            .map(|text| text.parse::<u64>().unwrap_or(0));
        let received_by_pod = counters.next()?;
        let sent_by_pod = counters.nth(7)?;
        name.starts_with(TAP)
            .then_some((sent_by_pod, received_by_pod))
    });
    counters.fold((0, 0), |(received, sent), (more, other)| {
        (
            u64::saturating_add(received, more),
            u64::saturating_add(sent, other),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn vsock_address_is_found_in_the_command_line() {
        let line = "qemu-system-x86_64\0-device\0{\"driver\":\"vhost-vsock-pci\",\"id\":\"vsock0\",\
                    \"guest-cid\":31,\"vhostfd\":\"30\"}\0-name\0\"guest-cid\":";
        assert!(has_vsock(line, 31));
        for other in [3, 310, 30] {
            assert!(!has_vsock(line, other), "{other}");
        }
        assert!(!has_vsock("qemu-system-x86_64", 31));
    }

    const STAT: &str = "9 (qemu) system) S 1 9 9 0 -1 4194624 100 0 0 0 250 50 7 8 20 0 5 0 77 1 2";

    #[test]
    fn counters_of_a_process_are_read() {
        let status = "Name:\tqemu-system-x86\nVmPeak:\t 900 kB\nVmRSS:\t    2048 kB\n";
        let io = "rchar: 5\nwchar: 6\nread_bytes: 4096\nwrite_bytes: 8192\ncancelled: 0\n";
        let found = process(STAT, status, Some(io)).unwrap();
        let expected = Process {
            cpu_ticks: 300,
            memory_bytes: 2 << 20,
            disk: Some((4096, 8192)),
        };
        assert_eq!(found, expected);
        assert_eq!(process(STAT, status, None).unwrap().disk, None);
        for malformed in [
            "",
            "9 (qemu)",
            "9 (qemu) S 1 9 9 0 -1 4194624 100 0 0 0 x y",
        ] {
            assert_eq!(process(malformed, status, None), None, "{malformed}");
        }
    }

    #[test]
    fn guest_receives_what_its_pod_sends_to_it() {
        let devices = "Inter-|   Receive                            |  Transmit\n \
             face |bytes    packets errs drop fifo frame compressed multicast|bytes packets\n    \
             lo:     100       1    0    0    0     0          0         0      100       1    0\n  \
             tap0:    3000      10    0    0    0     0          0         0     5000      12    0\n  \
             tap1: 1 1 0 0 0 0 0 0 2 1 0\n  eth0: 9 1 0 0 0 0 0 0 9 1 0\n";
        assert_eq!(network(devices), (5002, 3001));
        assert_eq!(network("nonsense"), (0, 0));
    }
}
