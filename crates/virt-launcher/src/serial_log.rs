//! The log of the guest's serial console: trimmed, and copied to the pod's log on request.
//!
//! QEMU appends the guest's output without a bound. From time to time the oldest part is removed in
//! place: QEMU continues at the new end, and no other byte is lost. Copying has a rate limit: the
//! surplus of a guest that prints more is missing in the pod's log, but not in the file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval of trimming. A guest prints some megabytes at most in that time.
const TRIM_INTERVAL: Duration = Duration::from_secs(10);
/// Bytes that are always kept.
const KEEP: u64 = 4 << 20;
/// Removed parts are multiples of this, a multiple of every file system's block size.
const STEP: u64 = 1 << 20;

/// Interval of copying, and the bytes copied each time at most.
const COPY_INTERVAL: Duration = Duration::from_secs(1);
const COPY_LIMIT: u64 = 64 << 10;
/// Characters of a line.
const MAX_LINE: usize = 1 << 10;

/// Where QEMU writes the log, as the domain's XML has it.
pub(crate) fn path(vmi_uid: &str) -> PathBuf {
    Path::new("/var/run/kubevirt-private")
        .join(vmi_uid)
        .join("virt-serial0-log")
}

/// How far the console was copied.
#[derive(Debug, Default)]
struct Tail {
    at: u64,
    /// An incomplete line.
    partial: Vec<u8>,
}

impl Tail {
    /// Starts at the end of the file, so that a restarted launcher does not repeat lines.
    fn at_end_of(log: &Path) -> Self {
        Self {
            at: log.metadata().map_or(0, |meta| meta.len()),
            partial: Vec::new(),
        }
    }

    fn shift(&mut self, bytes: u64) {
        self.at = self.at.saturating_sub(bytes);
    }

    fn copy(&mut self, log: &Path) {
        match self.lines(log) {
            Ok(lines) => {
                for line in lines {
                    tracing::info!("guest console | {line}");
                }
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(log = %log.display(), %error, "failed to read the console log");
            }
        }
    }

    /// The output since the last call, as whole lines without control characters.
    fn lines(&mut self, log: &Path) -> io::Result<Vec<String>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        self.at = self.at.min(length);
        let mut lines = Vec::new();
        let surplus = (length - self.at).saturating_sub(COPY_LIMIT);
        if surplus > 0 {
            lines.push(format!("({surplus} bytes omitted)"));
            self.at += surplus;
            self.partial.clear();
        }
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        file.take(COPY_LIMIT).read_to_end(&mut bytes)?;
        self.at += u64::try_from(bytes.len()).unwrap_or(0);
        self.partial.extend(bytes);
        let whole = self.partial.iter().rposition(|byte| *byte == b'\n');
        let rest = match whole {
            Some(end) => self.partial.split_off(end + 1),
            // A line that never ends is copied in pieces.
            None if self.partial.len() < MAX_LINE => return Ok(lines),
            None => Vec::new(),
        };
        let text = std::mem::replace(&mut self.partial, rest);
        let text = String::from_utf8_lossy(&text);
        let plain = |line: &str| -> String {
            let printable = line.chars().filter(|char| !char.is_control());
            printable.take(MAX_LINE).collect()
        };
        lines.extend(text.lines().map(plain));
        Ok(lines)
    }
}

/// Trims and copies the log until stopped.
pub(crate) async fn maintain(log: PathBuf, wanted: watch::Receiver<bool>, stop: CancellationToken) {
    let mut tail = Tail::at_end_of(&log);
    loop {
        let is_wanted = *wanted.borrow();
        let pause = if is_wanted {
            COPY_INTERVAL
        } else {
            TRIM_INTERVAL
        };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if is_wanted {
            tail.copy(&log);
        }
        match trim(&log) {
            Ok(cut) => tail.shift(cut),
            // QEMU has not created the log, or the guest has no serial console.
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => {
                tracing::warn!(log = %log.display(), %error, "failed to trim the console log");
            }
        }
    }
}

/// Trims the log. Returns the number of bytes by which the rest has moved to the front.
fn trim(log: &Path) -> io::Result<u64> {
    let file = OpenOptions::new().read(true).write(true).open(log)?;
    let used = file.metadata()?.len();
    let surplus = used.saturating_sub(KEEP) / STEP * STEP;
    if surplus < KEEP {
        return Ok(0);
    }
    remove_front(&file, surplus)
}

/// Removes the first bytes; where the file system cannot, at least frees their blocks.
fn remove_front(file: &File, bytes: u64) -> io::Result<u64> {
    match fallocate(file, FallocateFlags::COLLAPSE_RANGE, 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL) => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            fallocate(file, hole, 0, bytes)?;
            Ok(0)
        }
        done => Ok(done.map(|()| bytes)?),
    }
}

#[cfg(test)]
mod tests {
    use std::{io::Write, os::unix::fs::MetadataExt};

    use super::*;

    fn file_of(bytes: u64) -> tempfile::NamedTempFile {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        for number in 0..bytes / 16 {
            writeln!(file, "count {number:>9}").unwrap();
        }
        file
    }

    #[test]
    fn lines_are_copied_once_and_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut guest = OpenOptions::new().append(true).open(file.path()).unwrap();
        let mut tail = Tail::at_end_of(file.path());
        guest.write_all(b"one\r\n\x1b[1mtw").unwrap();
        assert_eq!(tail.lines(file.path()).unwrap(), ["one"]);
        guest.write_all(b"o\n").unwrap();
        assert_eq!(tail.lines(file.path()).unwrap(), ["[1mtwo"]);
        assert_eq!(tail.lines(file.path()).unwrap(), [""; 0]);
        // A restarted launcher repeats nothing.
        let mut next = Tail::at_end_of(file.path());
        assert_eq!(next.lines(file.path()).unwrap(), [""; 0]);
    }

    #[test]
    fn surplus_output_is_omitted() {
        let file = file_of(0);
        let mut tail = Tail::default();
        std::fs::write(file.path(), "x".repeat(3 << 20)).unwrap();
        let lines = tail.lines(file.path()).unwrap();
        assert_eq!(
            lines[0],
            format!("({} bytes omitted)", (3 << 20) - COPY_LIMIT)
        );
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1].len(), MAX_LINE);
        // A truncated file continues at its new end.
        std::fs::write(file.path(), "").unwrap();
        assert_eq!(tail.lines(file.path()).unwrap(), [""; 0]);
    }

    #[test]
    fn copying_continues_after_a_trim() {
        let file = file_of(3 * KEEP);
        let mut tail = Tail::at_end_of(file.path());
        tail.shift(trim(file.path()).unwrap());
        let mut guest = OpenOptions::new().append(true).open(file.path()).unwrap();
        guest.write_all(b"next\n").unwrap();
        assert_eq!(tail.lines(file.path()).unwrap(), ["next"]);
    }

    #[test]
    fn small_log_is_not_trimmed() {
        let file = file_of(KEEP + STEP);
        trim(file.path()).unwrap();
        assert_eq!(file.as_file().metadata().unwrap().len(), KEEP + STEP);
    }

    #[test]
    fn large_log_loses_its_oldest_part_and_appending_continues() {
        let file = file_of(3 * KEEP);
        let mut appending = OpenOptions::new().append(true).open(file.path()).unwrap();
        trim(file.path()).unwrap();
        appending.write_all(b"the newest line\n").unwrap();
        let meta = file.as_file().metadata().unwrap();
        assert!(meta.blocks() * 512 <= 2 * KEEP, "{} blocks", meta.blocks());
        let text = std::fs::read(file.path()).unwrap();
        let last = format!("count {:>9}\nthe newest line\n", 3 * KEEP / 16 - 1);
        assert!(text.ends_with(last.as_bytes()));
    }
}
