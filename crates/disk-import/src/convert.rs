//! Converts images with `qemu-img`, in a process with limits.
//!
//! **Invariants**: the format is named, so that `qemu-img` never guesses it; the image must not refer
//! to another file; address space, time and the length of files are limited before `qemu-img` starts.

use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use rustix::process::{Resource, Rlimit, setrlimit};
use serde::Deserialize;

use crate::ImportError;
use crate::disk::Disk;
use crate::error::io_failed;

/// The argument with which the program calls itself to start another one with limits.
pub(crate) const CONFINED: &str = "confined";
const QEMU_IMG: &str = "qemu-img";
/// More than a conversion of any image that is not malicious needs.
const ADDRESS_SPACE: u64 = 2 << 30;
const CPU_SECONDS: u64 = 3600;
const OPEN_FILES: u64 = 64;
/// Bytes of its messages that an error repeats.
const MOST_OUTPUT: usize = 800;

/// How `qemu-img` is started.
#[derive(Debug, Clone)]
pub(crate) struct Converter {
    /// The program, and arguments before its own.
    command: Vec<OsString>,
    /// Whether the first argument is the length that files may have.
    confined: bool,
}

/// What `qemu-img info` prints, as far as it matters.
#[derive(Debug, Deserialize)]
struct Info {
    #[serde(rename = "virtual-size")]
    virtual_size: u64,
    #[serde(rename = "backing-filename")]
    backing_file: Option<String>,
    #[serde(rename = "format-specific")]
    specific: Option<Specific>,
}

#[derive(Debug, Deserialize)]
struct Specific {
    data: Option<SpecificData>,
}

#[derive(Debug, Deserialize)]
struct SpecificData {
    /// The files of a VMDK.
    extents: Option<Vec<Extent>>,
    #[serde(rename = "data-file")]
    data_file: Option<String>,
}

#[derive(Debug, Deserialize)]
struct Extent {
    filename: String,
}

impl Converter {
    /// Through this program, which sets the limits.
    pub(crate) fn confined(own: OsString) -> Self {
        Self {
            command: vec![own, CONFINED.into()],
            confined: true,
        }
    }

    #[cfg(test)]
    pub(crate) fn direct() -> Self {
        Self {
            command: Vec::new(),
            confined: false,
        }
    }

    /// Through another program, which gets the command line of `qemu-img`.
    #[cfg(test)]
    pub(crate) fn through(command: Vec<OsString>) -> Self {
        Self {
            command,
            confined: false,
        }
    }

    /// Writes the image to the disk.
    pub(crate) fn convert(
        &self,
        format: &str,
        image: &Path,
        disk: &mut Disk,
    ) -> Result<(), ImportError> {
        let info = self.info(format, image)?;
        disk.reserve(info.virtual_size)?;
        // The file is new, so its zeros need not be written.
        let fresh: &[&str] = if disk.is_device() {
            &["-n"]
        } else {
            &["-n", "--target-is-zero"]
        };
        let fixed = ["convert", "-f", format, "-O", "raw", "-t", "writeback"];
        let mut arguments: Vec<&OsStr> = fixed.iter().map(OsStr::new).collect();
        arguments.extend(fresh.iter().map(OsStr::new));
        arguments.extend([image.as_os_str(), disk.path().as_os_str()]);
        let output = self.run(info.virtual_size, &arguments)?;
        succeeded(&output)
    }

    fn info(&self, format: &str, image: &Path) -> Result<Info, ImportError> {
        let fixed = ["info", "--output=json", "-f", format];
        let mut arguments: Vec<&OsStr> = fixed.iter().map(OsStr::new).collect();
        arguments.push(image.as_os_str());
        let output = self.run(0, &arguments)?;
        succeeded(&output)?;
        let info = serde_json::from_slice::<Info>(&output.stdout)
            .map_err(|error| ImportError::Damaged(error.to_string()))?;
        let data = info.specific.as_ref().and_then(|one| one.data.as_ref());
        let extents = data.and_then(|data| data.extents.as_deref());
        let own = |extent: &Extent| Path::new(&extent.filename) == image;
        let others = extents.unwrap_or_default().iter().any(|one| !own(one));
        let data_file = data.and_then(|data| data.data_file.as_ref());
        if info.backing_file.is_some() || data_file.is_some() || others {
            return Err(ImportError::Reference("it refers to other files"));
        }
        Ok(info)
    }

    fn run(&self, longest_file: u64, arguments: &[&OsStr]) -> Result<Output, ImportError> {
        let failed = io_failed("start qemu-img");
        let mut words = self.command.clone();
        if self.confined {
            words.push(longest_file.to_string().into());
        }
        words.push(QEMU_IMG.into());
        words.extend(arguments.iter().map(|one| OsString::from(*one)));
        let mut words = words.into_iter();
        let mut command = Command::new(words.next().unwrap_or_default());
        command.args(words).stdin(Stdio::null());
        command.output().map_err(failed)
    }
}

/// An image that `qemu-img` cannot read is damaged; a conversion that was killed may be repeated.
fn succeeded(output: &Output) -> Result<(), ImportError> {
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let text = text.trim();
    let text = text
        .get(..text.floor_char_boundary(MOST_OUTPUT))
        .unwrap_or_default();
    let text = text.replace('\n', "; ");
    if text.contains("No space left") || text.contains("Disk quota") {
        let what = "write the converted disk";
        return Err(ImportError::NoSpace { what });
    }
    match output.status.code() {
        Some(1) => Err(ImportError::Damaged(text)),
        _ => Err(ImportError::Conversion {
            status: output.status.to_string(),
            output: text,
        }),
    }
}

/// Limits this process and becomes another program: the length of files, then its command line.
pub(crate) fn become_confined(arguments: &[OsString]) -> io::Error {
    let Some((longest_file, words)) = arguments.split_first() else {
        return io::ErrorKind::InvalidInput.into();
    };
    let (Some(longest_file), Some((program, words))) = (
        longest_file.to_str().and_then(|text| text.parse().ok()),
        words.split_first(),
    ) else {
        return io::ErrorKind::InvalidInput.into();
    };
    let limits = [
        (Resource::As, ADDRESS_SPACE),
        (Resource::Cpu, CPU_SECONDS),
        (Resource::Fsize, longest_file),
        (Resource::Nofile, OPEN_FILES),
        (Resource::Core, 0),
    ];
    for (resource, limit) in limits {
        let limit = Rlimit {
            current: Some(limit),
            maximum: Some(limit),
        };
        if let Err(errno) = setrlimit(resource, limit) {
            return errno.into();
        }
    }
    if let Err(errno) = rustix::thread::set_no_new_privs(true) {
        return errno.into();
    }
    Command::new(program).args(words).exec()
}
