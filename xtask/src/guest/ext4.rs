//! A root file system, written by `debugfs`: the same files give the same bytes on every computer.
//!
//! `mkfs.ext4 -d` would take the order of a directory's entries from this computer's file system, and sets times of
//! change itself. Writing needs no mount and no root. Extended attributes are left out.

use std::ffi::OsString;
use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context as _, Result, bail, ensure};
use image_store::{Content, Entry, Owner};

use super::partitions::Partition;
use crate::cache::EPOCH;
use crate::workspace::run_quietly;

/// The largest number of messages that an error quotes.
const QUOTED: usize = 10;

/// What is made, and where.
#[derive(Debug)]
pub(super) struct RootFileSystem<'r> {
    pub(super) disk: &'r Path,
    pub(super) partition: Partition,
    pub(super) label: &'r str,
    pub(super) uuid: &'r str,
    /// The files, directories before what is in them.
    pub(super) entries: &'r [Entry],
    /// A directory for temporary files.
    pub(super) draft: &'r Path,
}

pub(super) fn make(root: &RootFileSystem<'_>) -> Result<()> {
    let offset = root.partition.offset();
    let uuid = root.uuid;
    let options = format!(
        "offset={offset},hash_seed={uuid},lazy_itable_init=0,lazy_journal_init=0,nodiscard"
    );
    run_quietly(
        tool("mkfs.ext4")
            .args(["-q", "-F", "-L", root.label, "-U", uuid, "-E", &options])
            // Checksums cost time where the processor is emulated.
            .args(["-O", "^metadata_csum,^64bit", "-J", "size=16"])
            .arg(root.disk)
            .arg(format!("{}k", root.partition.size() >> 10)),
    )?;
    let contents = root.draft.join("contents");
    fs::create_dir(&contents)?;
    let script = root.draft.join("script");
    fs::write(&script, commands(root.entries, &contents)?)?;
    let mut place = OsString::from(root.disk);
    place.push(format!("?offset={offset}"));
    let output = tool("debugfs")
        .arg("-w")
        .arg("-f")
        .args([script.as_os_str(), &place])
        .stdin(Stdio::null())
        .output()
        .context("run debugfs")?;
    let messages = String::from_utf8_lossy(&output.stderr).into_owned();
    // It goes on after a command has failed. The first line is its version.
    let failed: Vec<&str> = messages.lines().skip(1).take(QUOTED).collect();
    ensure!(
        output.status.success() && failed.is_empty(),
        "debugfs ended with {}:\n{}",
        output.status,
        failed.join("\n")
    );
    fs::remove_dir_all(&contents)?;
    fs::remove_file(&script)?;
    run_quietly(tool("e2fsck").args(["-f", "-n"]).arg(&place)).context("check the file system")?;
    Ok(())
}

fn tool(name: &str) -> Command {
    let mut command = Command::new(name);
    command
        .env("E2FSPROGS_FAKE_TIME", EPOCH.to_string())
        .env("LC_ALL", "C");
    command
}

/// The commands that write the entries; contents that are no files go to a directory first.
fn commands(entries: &[Entry], contents: &Path) -> Result<String> {
    let mut script = String::new();
    for (number, entry) in entries.iter().enumerate() {
        let path = quoted(&format!("/{}", entry.path))?;
        let (directory, name) = entry.path.rsplit_once('/').unwrap_or(("", &entry.path));
        let name = quoted(name)?;
        let mut within = |command: String| -> Result<()> {
            let directory = quoted(&format!("/{directory}"))?;
            writeln!(script, "cd {directory}\n{command}")?;
            Ok(())
        };
        let kind = match &entry.content {
            // Every file system has it.
            Content::Directory if entry.path == "lost+found" => continue,
            Content::Directory => {
                within(format!("mkdir {name}"))?;
                0o040_000
            }
            Content::Symlink(target) => {
                within(format!("symlink {name} {}", quoted(target)?))?;
                continue;
            }
            Content::File(source) => {
                within(format!("write {} {name}", quoted_path(source)?))?;
                0o100_000
            }
            Content::Bytes(bytes) => {
                let source = contents.join(number.to_string());
                fs::write(&source, bytes)?;
                within(format!("write {} {name}", quoted_path(&source)?))?;
                0o100_000
            }
            Content::HardLink(_) => bail!("{}: hard links are not supported here", entry.path),
        };
        writeln!(script, "sif {path} mode 0{:o}", kind | entry.mode)?;
        if entry.owner != Owner::ROOT {
            let Owner { uid, gid } = entry.owner;
            writeln!(script, "sif {path} uid {uid}\nsif {path} gid {gid}")?;
        }
    }
    Ok(script)
}

fn quoted_path(path: &Path) -> Result<String> {
    quoted(path.to_str().context("a path is not UTF-8")?)
}

/// A word of a command.
fn quoted(word: &str) -> Result<String> {
    ensure!(
        !word.contains(['"', '\n']),
        "debugfs cannot write the name {word:?}"
    );
    Ok(format!("\"{word}\""))
}
