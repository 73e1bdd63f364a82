//! A download that may go on in another run of the program.
//!
//! The data is in `NAME.part`, and `NAME.part.json` says which version of what it belongs to, and how much of it is
//! known to be on the disk. The next run cuts the data there and asks for the rest of the same version.
//!
//! **Invariant**: the data is the start of the version in the record, also after a power cut.

use std::{
    ffi::OsStr,
    fs::{self, File, OpenOptions, TryLockError},
    io::{self, Read, Seek, SeekFrom, Write},
    path::{Path, PathBuf},
};

use anyhow::{Context, Result, bail};
use serde::{Deserialize, Serialize};

use super::draft::{self, Destination, Goal};
use crate::printer::{self, Printer};

/// How much data a power cut may cost.
const STEP: u64 = 64 << 20;
/// The longest record.
const RECORD: u64 = 64 << 10;

/// What is downloaded. Two downloads of equal versions give the same bytes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Version {
    /// The name of the data.
    pub(crate) source: String,
    /// Changes with the data.
    pub(crate) tag: String,
    pub(crate) length: u64,
}

#[derive(Debug, Serialize, Deserialize)]
struct Record {
    version: Version,
    /// Bytes that are on the disk.
    synced: u64,
}

/// The data so far. It stays on drop, for the next run.
#[derive(Debug)]
pub(crate) struct Partial {
    file: File,
    data: PathBuf,
    goal: Goal,
    record: Record,
    written: u64,
    /// Whether a write failed, so that an error is not one of the data.
    write_failed: bool,
    is_kept: bool,
}

impl Partial {
    /// Opens what an earlier run left of this version, or begins. `None` if the goal is a device or a pipe.
    pub(crate) fn open(goal: &Path, version: &Version) -> Result<Option<Self>> {
        let goal = match Destination::of(goal)? {
            Destination::Device => return Ok(None),
            Destination::File(goal) => goal,
        };
        let data = with_end(&goal.path, ".part");
        let failed = || format!("write {}", data.display());
        if fs::symlink_metadata(&data).is_ok_and(|found| !found.is_file()) {
            bail!(
                "{} is not a file: remove it, or name another file",
                data.display()
            );
        }
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false);
        let file = options.open(&data).with_context(failed)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                bail!("another download writes {}", data.display())
            }
            Err(TryLockError::Error(error)) => return Err(error).with_context(failed),
        }
        let mut partial = Self {
            file,
            data: data.clone(),
            goal,
            record: Record {
                version: version.clone(),
                synced: 0,
            },
            written: 0,
            write_failed: false,
            is_kept: true,
        };
        partial.resume().with_context(failed)?;
        Ok(Some(partial))
    }

    fn resume(&mut self) -> io::Result<()> {
        let length = self.file.metadata()?.len();
        let left = read_record(&self.record_path());
        let usable = left
            .as_ref()
            .filter(|left| left.version == self.record.version)
            .map(|left| left.synced)
            .filter(|synced| *synced <= length);
        if usable.is_none() && length > 0 {
            let why = if left.is_some() {
                "is of another version"
            } else {
                "has no record of what it is"
            };
            Printer.note(&format!(
                "The partial download {} {why}: starting again",
                self.data.display()
            ));
        }
        let kept = usable.unwrap_or_default();
        // The data is cut before the record says whose it is.
        self.file.set_len(kept)?;
        self.file.seek(SeekFrom::Start(kept))?;
        self.written = kept;
        self.sync()
    }

    pub(crate) fn written(&self) -> u64 {
        self.written
    }

    pub(crate) fn write_failed(&self) -> bool {
        self.write_failed
    }

    /// Removes the data, which is wrong.
    pub(crate) fn discard(mut self) {
        self.is_kept = false;
    }

    /// Gives the data, which is complete, the name of the goal.
    pub(crate) fn complete(mut self) -> Result<()> {
        let length = self.record.version.length;
        if self.written != length {
            let written = self.written;
            self.is_kept = false;
            bail!("the download has {written} bytes instead of {length}: start it again");
        }
        let renamed = self.goal.replace(&self.data, &self.file);
        renamed.with_context(|| format!("write {}", self.goal.path.display()))?;
        // Only the record is left.
        self.is_kept = false;
        Ok(())
    }

    fn record_path(&self) -> PathBuf {
        with_end(&self.data, ".json")
    }

    /// Makes the data durable, and then the record of it.
    fn sync(&mut self) -> io::Result<()> {
        self.file.sync_all()?;
        self.record.synced = self.written;
        let text = serde_json::to_vec(&self.record).map_err(io::Error::other)?;
        draft::write(&self.record_path(), &text).map_err(io::Error::other)
    }
}

impl Write for Partial {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let written = self.file.write(bytes);
        self.write_failed |= written
            .as_ref()
            .is_err_and(|error| error.kind() != io::ErrorKind::Interrupted);
        let count = written?;
        self.written += u64::try_from(count).unwrap_or_default();
        if self.written.saturating_sub(self.record.synced) >= STEP {
            let synced = self.sync();
            self.write_failed |= synced.is_err();
            synced?;
        }
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for Partial {
    fn drop(&mut self) {
        if self.is_kept && self.written > 0 {
            let synced = self.sync();
            let data = self.data.display();
            match synced {
                Ok(()) => Printer.note(&format!(
                    "{} of {} are in {data}: the same command goes on from there",
                    printer::size(self.written),
                    printer::size(self.record.version.length),
                )),
                Err(error) => Printer.warn(&format!("{data} may be incomplete: {error:#}")),
            }
            return;
        }
        for path in [self.data.clone(), self.record_path()] {
            match fs::remove_file(&path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => Printer.warn(&format!(
                    "{} is of no use and was not removed: {error}",
                    path.display()
                )),
                _ => {}
            }
        }
    }
}

/// A record that cannot be read is none.
fn read_record(path: &Path) -> Option<Record> {
    let mut text = vec![];
    let file = File::open(path).ok()?;
    file.take(RECORD).read_to_end(&mut text).ok()?;
    serde_json::from_slice(&text).ok()
}

fn with_end(path: &Path, end: &str) -> PathBuf {
    let mut name = path.file_name().unwrap_or(OsStr::new("file")).to_owned();
    name.push(end);
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(tag: &str) -> Version {
        Version {
            source: "tests/vm/root".to_owned(),
            tag: tag.to_owned(),
            length: 8,
        }
    }

    fn open(goal: &Path, tag: &str) -> Partial {
        Partial::open(goal, &version(tag)).unwrap().unwrap()
    }

    #[test]
    fn download_goes_on_where_it_stopped() {
        let directory = tempfile::tempdir().unwrap();
        let goal = directory.path().join("disk.img");
        let mut first = open(&goal, "1");
        first.write_all(b"half").unwrap();
        drop(first);
        assert!(!goal.exists());
        let mut second = open(&goal, "1");
        assert_eq!(second.written(), 4);
        second.write_all(b"-end").unwrap();
        second.complete().unwrap();
        assert_eq!(fs::read(&goal).unwrap(), b"half-end");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }

    #[test]
    fn other_versions_and_data_without_a_record_are_not_used() {
        let directory = tempfile::tempdir().unwrap();
        let goal = directory.path().join("disk.img");
        let mut first = open(&goal, "1");
        first.write_all(b"half").unwrap();
        drop(first);
        assert_eq!(open(&goal, "2").written(), 0);
        let mut third = open(&goal, "2");
        assert_eq!(third.written(), 0);
        third.write_all(b"half").unwrap();
        drop(third);
        fs::remove_file(directory.path().join("disk.img.part.json")).unwrap();
        assert_eq!(open(&goal, "2").written(), 0);
    }

    #[test]
    fn data_that_may_not_be_on_the_disk_is_fetched_again() {
        let directory = tempfile::tempdir().unwrap();
        let goal = directory.path().join("disk.img");
        let mut first = open(&goal, "1");
        first.write_all(b"hal").unwrap();
        drop(first);
        // As after a power cut: more data than the record knows, which may be zeros.
        let data = directory.path().join("disk.img.part");
        fs::write(&data, b"hal\0\0\0").unwrap();
        assert_eq!(open(&goal, "1").written(), 3);
        // Less data than the record knows is no start of it.
        fs::write(&data, b"h").unwrap();
        assert_eq!(open(&goal, "1").written(), 0);
    }

    #[test]
    fn wrong_data_leaves_no_file() {
        let directory = tempfile::tempdir().unwrap();
        let goal = directory.path().join("disk.img");
        let mut short = open(&goal, "1");
        short.write_all(b"half").unwrap();
        let error = short.complete().unwrap_err().to_string();
        assert_eq!(
            error,
            "the download has 4 bytes instead of 8: start it again"
        );
        let mut wrong = open(&goal, "1");
        wrong.write_all(b"half").unwrap();
        wrong.discard();
        drop(open(&goal, "1"));
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn two_downloads_do_not_write_one_file() {
        let directory = tempfile::tempdir().unwrap();
        let goal = directory.path().join("disk.img");
        let _first = open(&goal, "1");
        let second = Partial::open(&goal, &version("1"));
        assert!(
            second
                .unwrap_err()
                .to_string()
                .contains("another download writes")
        );
    }
}
