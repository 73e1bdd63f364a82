//! Whether QEMU can use KVM here. The device may exist and still be unable to run a kernel, as within some virtual
//! machines, so the machine's own kernel tries it.

use std::{path::Path, process::Command};

use anyhow::{Context as _, Result};

use super::image::Image;
use crate::printer::Printer;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Accelerator {
    Kvm,
    /// Software emulation.
    Tcg,
}

/// A working KVM needs two seconds.
const LIMIT: &str = "15";
/// A kernel without a disk gets as far as this, and reboots.
const COMMAND_LINE: &str = "console=ttyS0 panic=-1";
const LAST_WORDS: &str = "Unable to mount root fs";

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

pub(super) fn choose(printer: &Printer, image: &Image) -> Result<Accelerator> {
    if Path::new("/dev/kvm").exists() && boots(Accelerator::Kvm, &image.kernel, LIMIT)? {
        return Ok(Accelerator::Kvm);
    }
    printer.line("KVM does not work here: the machine is emulated, which is slow");
    Ok(Accelerator::Tcg)
}

/// Whether a kernel comes to look for its disk within a number of seconds.
fn boots(accelerator: Accelerator, kernel: &Path, limit: &str) -> Result<bool> {
    let output = Command::new("timeout")
        .args(["--signal=KILL", limit, "qemu-system-x86_64"])
        .args(accelerator.arguments())
        .args(["-display", "none", "-nodefaults", "-no-reboot", "-m", "256"])
        .args(["-serial", "stdio", "-append", COMMAND_LINE, "-kernel"])
        .arg(kernel)
        .output()
        .context("run qemu-system-x86_64: install qemu-system-x86")?;
    Ok(String::from_utf8_lossy(&output.stdout).contains(LAST_WORDS))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_that_is_no_kernel_does_not_boot() {
        let file = tempfile::NamedTempFile::new().unwrap();
        assert!(!boots(Accelerator::Tcg, file.path(), "10").unwrap());
    }
}
