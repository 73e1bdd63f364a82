//! Checks that KVM can run a guest.
//!
//! A device that can be opened proves nothing: under some hypervisors `/dev/kvm` exists, creates
//! virtual machines, and fails at their first registers or instructions. So the probe runs a guest:
//! firmware of some hundred bytes that switches from real mode to long mode, as every kernel does,
//! and then ends QEMU with a special exit code.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

use super::attempts;

const DEVICE: &str = "/dev/kvm";
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// It takes well under a second where it works and the node is idle.
const LIMITS: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(30)];
/// What the firmware writes to the exit device.
const PROOF: u8 = 0x2a;
/// The exit code that QEMU's exit device derives from that byte.
const PROVEN: i32 = ((PROOF as i32) << 1) | 1;
/// Firmware is mapped at the end of the address space and at the end of the first mebibyte.
const FIRMWARE_SIZE: usize = 64 << 10;
const RESET_VECTOR: usize = FIRMWARE_SIZE - 16;

/// The result of the probe.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kvm {
    Usable,
    /// No device, or one that may not be opened.
    Absent {
        reason: String,
    },
    /// A device that runs no guest.
    Broken {
        reason: String,
    },
}

impl Kvm {
    /// libvirt's domain type for guests on this node.
    pub(super) fn virt_type(&self) -> &'static str {
        match self {
            Self::Usable => "kvm",
            Self::Absent { .. } | Self::Broken { .. } => "qemu",
        }
    }

    pub(super) fn reason(&self) -> String {
        match self {
            Self::Usable => "a test guest ran".to_owned(),
            Self::Absent { reason } | Self::Broken { reason } => reason.clone(),
        }
    }
}

/// Runs the guest with KVM.
pub(super) async fn probe(work: &Path) -> Kvm {
    if let Err(error) = OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Kvm::Absent {
            reason: format!("{DEVICE} cannot be opened: {error}"),
        };
    }
    match run_guest(work, "kvm", "host").await {
        Ok(()) => Kvm::Usable,
        Err(reason) => Kvm::Broken { reason },
    }
}

/// Runs the firmware; the error describes what happened instead of the expected exit.
async fn run_guest(work: &Path, accelerator: &str, cpu: &str) -> Result<(), String> {
    let path = work.join("firmware");
    std::fs::write(&path, firmware())
        .map_err(|error| format!("failed to write the firmware: {error}"))?;
    let attempt = async || {
        Command::new(QEMU)
            .args([
                "-accel",
                accelerator,
                "-cpu",
                cpu,
                "-machine",
                "q35",
                "-m",
                "16",
            ])
            .args([
                "-nodefaults",
                "-no-user-config",
                "-display",
                "none",
                "-no-reboot",
            ])
            .args(["-device", "isa-debug-exit,iobase=0xf4,iosize=4", "-bios"])
            .arg(&path)
            .stdin(Stdio::null())
            .kill_on_drop(true)
            .output()
            .await
    };
    let output = attempts::repeat("the test guest", LIMITS, attempt)
        .await
        .map_err(|error| error.to_string())?
        .map_err(|error| format!("failed to run QEMU: {error}"))?;
    if output.status.code() == Some(PROVEN) {
        return Ok(());
    }
    let message = String::from_utf8_lossy(&output.stderr);
    let message = message
        .lines()
        .next()
        .unwrap_or("no message")
        .chars()
        .take(200)
        .collect::<String>();
    let how = output.status.signal().map_or_else(
        || format!("code {}", output.status.code().unwrap_or_default()),
        |signal| format!("signal {signal}"),
    );
    Err(format!("a test guest failed ({how}): {message}"))
}

/// An image whose last sixteen bytes the CPU executes first.
fn firmware() -> Vec<u8> {
    let mut image = vec![0; FIRMWARE_SIZE];
    image[..CODE.len()].copy_from_slice(CODE);
    // ljmp $0xf000, $0
    image[RESET_VECTOR..RESET_VECTOR + 5].copy_from_slice(&[0xea, 0x00, 0x00, 0x00, 0xf0]);
    image
}

/// Assembled for 0xf0000.
#[rustfmt::skip]
const CODE: &[u8] = &[
    0xfa, 0xfc,                                           // cli; cld
    0x66, 0x31, 0xc0, 0x8e, 0xd8, 0x8e, 0xc0,             // eax, ds, es = 0
    0xbf, 0x00, 0x10, 0xb9, 0x00, 0x0c, 0x66, 0xf3, 0xab, // zero 0x1000..0x4000
    0x66, 0xc7, 0x06, 0x00, 0x10, 0x03, 0x20, 0x00, 0x00, // level 4 at 0x1000 -> 0x2000
    0x66, 0xc7, 0x06, 0x00, 0x20, 0x03, 0x30, 0x00, 0x00, // level 3 at 0x2000 -> 0x3000
    0x66, 0xc7, 0x06, 0x00, 0x30, 0x83, 0x00, 0x00, 0x00, // level 2: 2 MiB, identity
    0x2e, 0x66, 0x0f, 0x01, 0x16, 0x88, 0x00,             // lgdt cs:0x88
    0x66, 0xb8, 0x20, 0x00, 0x00, 0x00, 0x0f, 0x22, 0xe0, // cr4 = PAE
    0x66, 0xb8, 0x00, 0x10, 0x00, 0x00, 0x0f, 0x22, 0xd8, // cr3 = 0x1000
    0x66, 0xb9, 0x80, 0x00, 0x00, 0xc0, 0x0f, 0x32,       // rdmsr EFER
    0x66, 0x0d, 0x00, 0x01, 0x00, 0x00, 0x0f, 0x30,       // LME; wrmsr
    0x0f, 0x20, 0xc0, 0x66, 0x0d, 0x01, 0x00, 0x00, 0x80, // cr0 with PE and PG
    0x0f, 0x22, 0xc0,
    0x66, 0xea, 0x6a, 0x00, 0x0f, 0x00, 0x08, 0x00,       // ljmp 8:0xf006a
    0xb0, PROOF, 0xe6, 0xf4,                              // out 0xf4
    0xf4, 0xeb, 0xfd,                                     // hlt for ever
    0x0f, 0x1f, 0x80, 0x00, 0x00, 0x00, 0x00,             // padding
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,       // 0x78: segment descriptors: null
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9a, 0xaf, 0x00,       // 0x80: 64-bit code
    0x0f, 0x00, 0x78, 0x00, 0x0f, 0x00,                   // 0x88: its limit and address
];

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn firmware_runs_under_emulation() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(run_guest(dir.path(), "tcg", "qemu64").await, Ok(()));
    }

    #[tokio::test]
    async fn failed_test_guest_is_explained_with_qemus_message() {
        let dir = tempfile::tempdir().unwrap();
        let reason = run_guest(dir.path(), "tcg", "no-such-model")
            .await
            .unwrap_err();
        assert!(reason.contains("no-such-model"), "{reason}");
    }
}
