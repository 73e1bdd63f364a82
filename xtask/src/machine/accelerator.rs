//! Whether QEMU can use KVM here. The device may exist and still be unable to run a guest, so a guest of a few
//! instructions tries it.

use std::{fs, path::Path, process::Command};

use anyhow::{Context as _, Result};

use crate::printer::Printer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    /// Software emulation.
    Tcg,
}

/// Written by the guest to QEMU's debug port; QEMU then ends with this times two plus one.
const SIGN: u8 = 0x31;
const PORT: u8 = 0xf4;
/// A working KVM ends the guest in a second.
const LIMIT: &str = "15";

impl Accelerator {
    /// As QEMU's `-accel` and `-cpu` take them.
    pub(super) fn arguments(self) -> [&'static str; 4] {
        match self {
            Self::Kvm => ["-accel", "kvm", "-cpu", "host"],
            // Newer instructions are slower to emulate than what programs use without them.
            Self::Tcg => ["-accel", "tcg", "-cpu", "qemu64"],
        }
    }
}

pub(super) fn choose(printer: &Printer) -> Result<Accelerator> {
    let accelerator = if Path::new("/dev/kvm").exists() && kvm_works()? {
        Accelerator::Kvm
    } else {
        Accelerator::Tcg
    };
    if accelerator == Accelerator::Tcg {
        printer.line("KVM does not work here: the machine is emulated, which is slow");
    }
    Ok(accelerator)
}

/// Boots a disk whose boot sector writes the sign.
fn kvm_works() -> Result<bool> {
    let disk = tempfile::NamedTempFile::new().context("make a disk")?;
    fs::write(disk.path(), boot_sector()).context("write a boot sector")?;
    let status = Command::new("timeout")
        .args(["--signal=KILL", LIMIT, "qemu-system-x86_64"])
        .args(Accelerator::Kvm.arguments())
        .args(["-display", "none", "-nodefaults", "-m", "16", "-device"])
        .arg(format!("isa-debug-exit,iobase={PORT:#x},iosize=1"))
        .arg("-drive")
        .arg(format!("file={},format=raw,if=ide", disk.path().display()))
        .output()
        .context("run qemu-system-x86_64: install qemu-system-x86")?
        .status;
    Ok(status.code() == Some(i32::from(SIGN) * 2 + 1))
}

/// 512 bytes that a BIOS loads and runs: `mov al, SIGN; out PORT, al; jmp $`.
fn boot_sector() -> [u8; 512] {
    let mut sector = [0; 512];
    let (code, end) = ([0xb0, SIGN, 0xe6, PORT, 0xeb, 0xfe], [0x55, 0xaa]);
    sector[..6].copy_from_slice(&code);
    sector[510..].copy_from_slice(&end);
    sector
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulation_runs_the_boot_sector() {
        let disk = tempfile::NamedTempFile::new().unwrap();
        fs::write(disk.path(), boot_sector()).unwrap();
        let status = Command::new("timeout")
            .args(["--signal=KILL", "60", "qemu-system-x86_64"])
            .args(Accelerator::Tcg.arguments())
            .args(["-display", "none", "-nodefaults", "-m", "16", "-device"])
            .arg("isa-debug-exit,iobase=0xf4,iosize=1")
            .arg("-drive")
            .arg(format!("file={},format=raw,if=ide", disk.path().display()))
            .status()
            .unwrap();
        assert_eq!(status.code(), Some(99));
    }
}
