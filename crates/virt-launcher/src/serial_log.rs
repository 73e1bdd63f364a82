//! The log of the guest's serial console: kept small, and passed on to the pod's log if wanted.
//!
//! QEMU appends what the guest prints, however much that is. From time to time the oldest part is
//! cut off in place, so that QEMU goes on at the new end and no byte of the rest is lost. What is
//! passed on has a rate: a guest that prints more loses the surplus there, and nothing in its file.

use std::{
    fs::{File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom},
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{FallocateFlags, fallocate};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Between two looks. Software cannot print more than some megabytes in that time.
const PERIOD: Duration = Duration::from_secs(10);
/// What is kept at least.
const KEEP: u64 = 4 << 20;
/// Cuts are whole multiples of this: of the blocks of any file system.
const STEP: u64 = 1 << 20;

/// Between two looks at a console that is passed on, and what is passed on of each at most.
const GLANCE: Duration = Duration::from_secs(1);
const AT_ONCE: u64 = 64 << 10;
/// Characters of a line.
const LINE: usize = 1 << 10;

/// Where the domain has the log written.
pub(crate) fn path(vmi_uid: &str) -> PathBuf {
    Path::new("/var/run/kubevirt-private")
        .join(vmi_uid)
        .join("virt-serial0-log")
}

/// How far the console was passed on.
#[derive(Debug, Default)]
struct Tail {
    at: u64,
    /// A line that has no end yet.
    begun: Vec<u8>,
}

impl Tail {
    /// A launcher that was started again does not repeat what its predecessor passed on.
    fn at_the_end_of(log: &Path) -> Self {
        Self {
            at: log.metadata().map_or(0, |meta| meta.len()),
            begun: Vec::new(),
        }
    }

    fn shift(&mut self, bytes: u64) {
        self.at = self.at.saturating_sub(bytes);
    }

    fn pass_on(&mut self, log: &Path) {
        match self.lines(log) {
            Ok(lines) => {
                for line in lines {
                    tracing::info!("guest console | {line}");
                }
            }
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => tracing::warn!(log = %log.display(), "read the console's log: {err}"),
        }
    }

    /// What was printed since the last look, as whole lines that do nothing to a terminal.
    fn lines(&mut self, log: &Path) -> io::Result<Vec<String>> {
        let mut file = File::open(log)?;
        let length = file.metadata()?.len();
        self.at = self.at.min(length);
        let mut lines = Vec::new();
        let surplus = (length - self.at).saturating_sub(AT_ONCE);
        if surplus > 0 {
            lines.push(format!("({surplus} bytes are left out)"));
            self.at += surplus;
            self.begun.clear();
        }
        file.seek(SeekFrom::Start(self.at))?;
        let mut bytes = Vec::new();
        file.take(AT_ONCE).read_to_end(&mut bytes)?;
        self.at += u64::try_from(bytes.len()).unwrap_or(0);
        self.begun.extend(bytes);
        let whole = self.begun.iter().rposition(|byte| *byte == b'\n');
        let rest = match whole {
            Some(end) => self.begun.split_off(end + 1),
            // A line that never ends is passed on in pieces.
            None if self.begun.len() < LINE => return Ok(lines),
            None => Vec::new(),
        };
        let text = std::mem::replace(&mut self.begun, rest);
        let text = String::from_utf8_lossy(&text);
        let plain = |line: &str| -> String {
            let seen = line.chars().filter(|char| !char.is_control());
            seen.take(LINE).collect()
        };
        lines.extend(text.lines().map(plain));
        Ok(lines)
    }
}

/// Looks after the log until stopped.
pub(crate) async fn keep(log: PathBuf, wanted: watch::Receiver<bool>, stop: CancellationToken) {
    let mut tail = Tail::at_the_end_of(&log);
    loop {
        let is_wanted = *wanted.borrow();
        let pause = if is_wanted { GLANCE } else { PERIOD };
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(pause) => {}
        }
        if is_wanted {
            tail.pass_on(&log);
        }
        match trim(&log) {
            Ok(cut) => tail.shift(cut),
            // There is no log yet, or the guest has none.
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => tracing::warn!(log = %log.display(), "shorten the console's log: {err}"),
        }
    }
}

/// How many bytes the rest has moved towards the beginning.
fn trim(log: &Path) -> io::Result<u64> {
    let file = OpenOptions::new().read(true).write(true).open(log)?;
    let used = file.metadata()?.len();
    let surplus = used.saturating_sub(KEEP) / STEP * STEP;
    if surplus < KEEP {
        return Ok(0);
    }
    cut(&file, surplus)
}

/// Removes the first bytes; where the file system cannot, at least the room they take.
fn cut(file: &File, bytes: u64) -> io::Result<u64> {
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
    fn lines_are_passed_on_once_and_whole() {
        let file = tempfile::NamedTempFile::new().unwrap();
        let mut guest = OpenOptions::new().append(true).open(file.path()).unwrap();
        let mut tail = Tail::at_the_end_of(file.path());
        guest.write_all(b"one\r\n\x1b[1mtw").unwrap();
        assert_eq!(tail.lines(file.path()).unwrap(), ["one"]);
        guest.write_all(b"o\n").unwrap();
        assert_eq!(tail.lines(file.path()).unwrap(), ["[1mtwo"]);
        assert_eq!(tail.lines(file.path()).unwrap(), [""; 0]);
        // A launcher that begins now repeats nothing.
        let mut next = Tail::at_the_end_of(file.path());
        assert_eq!(next.lines(file.path()).unwrap(), [""; 0]);
    }

    #[test]
    fn a_guest_that_prints_megabytes_loses_what_is_too_much() {
        let file = file_of(0);
        let mut tail = Tail::default();
        std::fs::write(file.path(), "x".repeat(3 << 20)).unwrap();
        let lines = tail.lines(file.path()).unwrap();
        assert_eq!(
            lines[0],
            format!("({} bytes are left out)", (3 << 20) - AT_ONCE)
        );
        assert_eq!(lines.len(), 2);
        assert_eq!(lines[1].len(), LINE);
        // A file that was cut off goes on at its new end.
        std::fs::write(file.path(), "").unwrap();
        assert_eq!(tail.lines(file.path()).unwrap(), [""; 0]);
    }

    #[test]
    fn a_log_that_was_shortened_goes_on_where_it_was() {
        let file = file_of(3 * KEEP);
        let mut tail = Tail::at_the_end_of(file.path());
        tail.shift(trim(file.path()).unwrap());
        let mut guest = OpenOptions::new().append(true).open(file.path()).unwrap();
        guest.write_all(b"next\n").unwrap();
        assert_eq!(tail.lines(file.path()).unwrap(), ["next"]);
    }

    #[test]
    fn a_small_log_stays_as_it_is() {
        let file = file_of(KEEP + STEP);
        trim(file.path()).unwrap();
        assert_eq!(file.as_file().metadata().unwrap().len(), KEEP + STEP);
    }

    #[test]
    fn a_large_log_loses_its_oldest_part_and_a_writer_goes_on_at_the_end() {
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
