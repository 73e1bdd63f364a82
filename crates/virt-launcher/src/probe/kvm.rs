//! Whether KVM really runs a guest.
//!
//! A device that opens proves nothing: under some hypervisors `/dev/kvm` is there, makes virtual
//! machines, and fails at their first registers or instructions. So a guest is run: firmware of
//! some hundred bytes that goes from real mode to long mode, as every kernel does, and then ends
//! QEMU with a code of its own.

use std::fs::OpenOptions;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;

const DEVICE: &str = "/dev/kvm";
const QEMU: &str = "/usr/bin/qemu-system-x86_64";
/// It takes well under a second where it works.
const LIMIT: Duration = Duration::from_secs(5);
/// What the firmware writes to the exit device.
const PROOF: u8 = 0x2a;
/// How QEMU's exit device makes an exit code of a byte.
const PROVEN: i32 = ((PROOF as i32) << 1) | 1;
/// The end of the address space and of the first mebibyte, where firmware is seen.
const FIRMWARE_SIZE: usize = 64 << 10;
const RESET_VECTOR: usize = FIRMWARE_SIZE - 16;

/// What was found.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Kvm {
    Usable,
    /// No device, or one that is not for us.
    Absent {
        why: String,
    },
    /// A device that runs no guest.
    Broken {
        why: String,
    },
}

impl Kvm {
    /// libvirt's word for the way guests will run.
    pub(super) fn virt_type(&self) -> &'static str {
        match self {
            Self::Usable => "kvm",
            Self::Absent { .. } | Self::Broken { .. } => "qemu",
        }
    }

    pub(super) fn reason(&self) -> String {
        match self {
            Self::Usable => "a guest ran".to_owned(),
            Self::Absent { why } | Self::Broken { why } => why.clone(),
        }
    }
}

/// Runs the guest with KVM.
pub(super) async fn probe(work: &Path) -> Kvm {
    if let Err(err) = OpenOptions::new().read(true).write(true).open(DEVICE) {
        return Kvm::Absent {
            why: format!("{DEVICE} cannot be opened: {err}"),
        };
    }
    match run_guest(work, "kvm", "host").await {
        Ok(()) => Kvm::Usable,
        Err(why) => Kvm::Broken { why },
    }
}

/// Runs the firmware; an error says in words what happened instead of the proof.
async fn run_guest(work: &Path, accelerator: &str, cpu: &str) -> Result<(), String> {
    let path = work.join("firmware");
    std::fs::write(&path, firmware())
        .map_err(|err| format!("no firmware could be written: {err}"))?;
    let output = Command::new(QEMU)
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
        .output();
    let output = match tokio::time::timeout(LIMIT, output).await {
        Ok(Ok(output)) => output,
        Ok(Err(err)) => return Err(format!("QEMU cannot be run: {err}")),
        Err(_) => {
            return Err(format!(
                "a test guest did not come to its end within {LIMIT:?}"
            ));
        }
    };
    if output.status.code() == Some(PROVEN) {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said
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
    Err(format!("a test guest failed ({how}): {said}"))
}

/// An image of which the processor runs the last sixteen bytes first.
fn firmware() -> Vec<u8> {
    let mut image = vec![0; FIRMWARE_SIZE];
    image[..CODE.len()].copy_from_slice(CODE);
    // ljmp $0xf000, $0
    image[RESET_VECTOR..RESET_VECTOR + 5].copy_from_slice(&[0xea, 0x00, 0x00, 0x00, 0xf0]);
    image
}

/// At 0xf0000, as the assembler made it.
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
    0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00, 0x00,       // 0x78: the table of segments: null
    0xff, 0xff, 0x00, 0x00, 0x00, 0x9a, 0xaf, 0x00,       // 0x80: 64-bit code
    0x0f, 0x00, 0x78, 0x00, 0x0f, 0x00,                   // 0x88: its limit and address
];

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_firmware_proves_itself_under_emulation() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(run_guest(dir.path(), "tcg", "qemu64").await, Ok(()));
    }

    #[tokio::test]
    async fn a_guest_that_does_not_get_there_is_told_with_qemus_words() {
        let dir = tempfile::tempdir().unwrap();
        let why = run_guest(dir.path(), "tcg", "no-such-model")
            .await
            .unwrap_err();
        assert!(why.contains("no-such-model"), "{why}");
    }
}
