//! Keeping the log of the guest's serial console small.
//!
//! QEMU appends what the guest prints, however much that is. From time to time the oldest part is
//! cut off in place, so that QEMU goes on at the new end and no byte of the rest is lost.

use std::{
    fs::{File, OpenOptions},
    io,
    path::{Path, PathBuf},
    time::Duration,
};

use rustix::fs::{FallocateFlags, fallocate};
use tokio_util::sync::CancellationToken;

/// Between two looks. Software cannot print more than some megabytes in that time.
const PERIOD: Duration = Duration::from_secs(10);
/// What is kept at least.
const KEEP: u64 = 4 << 20;
/// Cuts are whole multiples of this: of the blocks of any file system.
const STEP: u64 = 1 << 20;

/// Where the domain has the log written.
pub(crate) fn path(vmi_uid: &str) -> PathBuf {
    Path::new("/var/run/kubevirt-private")
        .join(vmi_uid)
        .join("virt-serial0-log")
}

/// Looks after the log until stopped.
pub(crate) async fn keep_small(log: PathBuf, stop: CancellationToken) {
    loop {
        tokio::select! {
            () = stop.cancelled() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        match trim(&log) {
            Ok(()) => {}
            // There is no log yet, or the guest has none.
            Err(err) if err.kind() == io::ErrorKind::NotFound => {}
            Err(err) => tracing::warn!(log = %log.display(), "shorten the console's log: {err}"),
        }
    }
}

fn trim(log: &Path) -> io::Result<()> {
    let file = OpenOptions::new().read(true).write(true).open(log)?;
    let used = file.metadata()?.len();
    let surplus = used.saturating_sub(KEEP) / STEP * STEP;
    if surplus < KEEP {
        return Ok(());
    }
    cut(&file, surplus)
}

/// Removes the first bytes; where the file system cannot, at least the room they take.
fn cut(file: &File, bytes: u64) -> io::Result<()> {
    match fallocate(file, FallocateFlags::COLLAPSE_RANGE, 0, bytes) {
        Err(rustix::io::Errno::OPNOTSUPP | rustix::io::Errno::INVAL) => {
            let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
            Ok(fallocate(file, hole, 0, bytes)?)
        }
        done => Ok(done?),
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
