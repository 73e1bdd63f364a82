//! A FAT file system whose kernel a BIOS boots by syslinux, with fixed times.

use std::fs;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::Command;

use anyhow::{Context as _, Result, ensure};

use super::partitions::Partition;
use crate::workspace::run_quietly;

/// What is made, and where.
#[derive(Debug)]
pub(super) struct BootFileSystem<'b> {
    pub(super) disk: &'b Path,
    /// `None`: the file system is the whole disk.
    pub(super) partition: Option<Partition>,
    /// Of the file system and of the entry in syslinux's list.
    pub(super) name: &'b str,
    /// The directory with `vmlinuz` and `initrd`.
    pub(super) draft: &'b Path,
    pub(super) command_line: &'b str,
}

pub(super) fn make(boot: &BootFileSystem<'_>) -> Result<()> {
    let offset = boot.partition.map_or(0, Partition::offset);
    let disk = boot.disk.display();
    // In the way of mtools.
    let place = if offset == 0 {
        disk.to_string()
    } else {
        format!("{disk}@@{offset}")
    };
    let mut format = Command::new("mformat");
    format.args(["-i", &place, "-v", &boot.name.to_uppercase()]);
    format.args(["-N", "20260101"]);
    if let Some(partition) = boot.partition {
        // The heads and sectors are those of a large disk: a BIOS counts them itself.
        format.args(["-h", "255", "-s", "63"]);
        format.arg("-T").arg(partition.sectors.to_string());
        format.arg("-H").arg(partition.first.to_string());
    }
    run_quietly(format.arg("::"))?;
    let mut syslinux = Command::new("syslinux");
    if offset > 0 {
        syslinux.arg("--offset").arg(offset.to_string());
    }
    run_quietly(syslinux.arg("--install").arg(boot.disk))?;
    let settings = boot.draft.join("syslinux.cfg");
    let (name, command_line) = (boot.name, boot.command_line);
    let text = format!(
        "DEFAULT {name}\nPROMPT 0\nLABEL {name}\nKERNEL vmlinuz\nINITRD initrd\nAPPEND {command_line}\n"
    );
    fs::write(&settings, text)?;
    let file = |name: &str| boot.draft.join(name);
    run_quietly(
        Command::new("mcopy")
            .args(["-i", &place])
            .args([&file("vmlinuz"), &file("initrd"), &settings])
            .arg("::"),
    )?;
    fs::remove_file(&settings)?;
    fix_times(boot.disk, offset).context("fix the times in the boot file system")
}

/// Sets a fixed time on every entry of a FAT root directory.
fn fix_times(raw: &Path, offset: u64) -> Result<()> {
    const ENTRY: usize = 32;
    /// Noon of 1 January 2026 in the format of FAT: time, then date.
    const NOON: [u8; 4] = [0x00, 0x60, 0x21, 0x5c];
    let disk = fs::File::options().read(true).write(true).open(raw)?;
    let mut boot = [0; 512];
    disk.read_exact_at(&mut boot, offset)?;
    let field = |at: usize| -> Result<u64> {
        let bytes = boot.get(at..at + 2).context("boot sector")?;
        Ok(u64::from(u16::from_le_bytes(bytes.try_into()?)))
    };
    let (sector, reserved, entries, table) = (field(11)?, field(14)?, field(17)?, field(22)?);
    ensure!(
        entries > 0 && table > 0,
        "the file system is not FAT12 or FAT16"
    );
    let tables = u64::from(*boot.get(16).context("boot sector")?);
    let start = offset + (reserved + tables * table) * sector;
    let mut directory = vec![0; usize::try_from(entries)? * ENTRY];
    disk.read_exact_at(&mut directory, start)?;
    for entry in directory.chunks_exact_mut(ENTRY) {
        if entry.first() == Some(&0) || entry.get(11) == Some(&0x0f) {
            continue;
        }
        // Created, accessed, written.
        for (range, bytes) in [
            (13..14, &[0][..]),
            (14..18, &NOON[..]),
            (18..20, &NOON[2..]),
            (22..26, &NOON[..]),
        ] {
            if let Some(field) = entry.get_mut(range) {
                field.copy_from_slice(bytes);
            }
        }
    }
    disk.write_all_at(&directory, start)?;
    Ok(())
}
