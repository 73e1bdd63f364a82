//! Volumes on disk: `<node>/volumes/<volume>/` with the directory `data` or the file `disk` in it.
//!
//! **Invariants.** `volume.json` in a volume's directory records whether the volume was published
//! to the API server; an unpublished one holds no user data. The record is on disk before the data
//! is made, so data without a readable record is user data of which the record was damaged: it is
//! never taken for unpublished. A volume is renamed before it is removed, so that a partly removed
//! one is never used. Space reserved by volumes counts as used before it is written. A directory is limited to its
//! capacity before it is published, where the file system enforces that.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use serde::{Deserialize, Serialize};

use super::{capacity, copy, loop_device, project};

const RECORD: &str = "volume.json";
const GONE: &str = ".gone";
/// A copy that is not complete.
const DRAFT: &str = "copy.new";
/// Sizes are whole blocks of this size.
const BLOCK: u64 = 4096;
/// Bounds the scan for used space. Further files count as not yet written, which reserves more
/// rather than less.
const MAX_SCANNED: u32 = 100_000;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) enum Mode {
    Filesystem,
    Block,
}

impl Mode {
    /// The value of `volumeMode`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Filesystem => "Filesystem",
            Self::Block => "Block",
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
enum State {
    /// Perhaps not yet published to the API server.
    Making,
    Made,
}

#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
struct Record {
    bytes: u64,
    mode: Mode,
    state: State,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum BackingError {
    #[error(
        "not enough space: {wanted} bytes are requested, and {available} bytes of the file system \
         of {} are neither used nor reserved by other volumes; free some or request less", dir.display()
    )]
    NoSpace {
        wanted: u64,
        available: u64,
        dir: PathBuf,
    },
    #[error(
        "{} holds data, and its volume.json is missing or unreadable; restore that file, or move \
         the directory away to start with an empty volume", dir.display()
    )]
    Unrecorded { dir: PathBuf },
    #[error("make the volume in {}: is the disk full or read-only?", dir.display())]
    Make {
        dir: PathBuf,
        #[source]
        source: io::Error,
    },
}

/// What is on disk for a name.
#[derive(Debug, Clone, Copy)]
enum Found {
    /// Neither a record nor data.
    Nothing,
    Recorded(Record),
    /// Data whose record is missing or unreadable.
    Unrecorded,
}

/// Data on this host that is copied.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Origin {
    /// It is renamed before anything in it is removed.
    pub(super) dir: PathBuf,
    pub(super) data: PathBuf,
    pub(crate) mode: Mode,
    pub(crate) bytes: u64,
}

impl Origin {
    /// Copies the data to a new name. Fails if the origin was removed meanwhile.
    pub(super) fn copy_to(&self, target: &Path) -> io::Result<()> {
        let before = fs::metadata(&self.dir)?.ino();
        for one in loop_device::attached_below(&self.dir)? {
            // What was written to the device and not yet to its file.
            File::open(one.device)?.sync_all()?;
        }
        match self.mode {
            Mode::Filesystem => copy::tree(&self.data, target)?,
            Mode::Block => copy::file(&self.data, target)?,
        }
        if fs::metadata(&self.dir)?.ino() != before {
            return Err(io::Error::other("the origin was removed during the copy"));
        }
        Ok(())
    }
}

/// Removes the leftover of an interrupted copy.
fn remove_draft(draft: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(draft) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(draft),
        Ok(_) => fs::remove_file(draft),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// What keeps a volume from taking more than its capacity.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bound {
    /// It is one file of that size.
    Size,
    /// The file system of the host.
    Quota,
    /// Nothing: what takes more is reported.
    Nothing,
}

/// All volumes of one node.
#[derive(Debug, Clone)]
pub(crate) struct Backing {
    dir: PathBuf,
}

impl Backing {
    pub(crate) fn of_node(root: &Path) -> Self {
        Self {
            dir: root.join("volumes"),
        }
    }

    /// The volume's directory, or its file, which becomes a loop device.
    pub(crate) fn path(&self, name: &str, mode: Mode) -> PathBuf {
        let part = match mode {
            Mode::Filesystem => "data",
            Mode::Block => "disk",
        };
        self.dir.join(name).join(part)
    }

    /// Makes the volume, or completes a partial one. A copy of an origin gets its name when it is
    /// complete.
    pub(crate) fn make(
        &self,
        name: &str,
        mode: Mode,
        bytes: u64,
        origin: Option<&Origin>,
    ) -> Result<Bound, BackingError> {
        let failed = |source| BackingError::Make {
            dir: self.dir.join(name),
            source,
        };
        self.promise(name, mode, bytes)?;
        if let Some(origin) = origin {
            self.copy(name, mode, origin).map_err(failed)?;
        }
        self.fill(name, mode, bytes)
            .and_then(|()| durable_file::sync_directory(&self.dir.join(name)))
            .map_err(failed)?;
        Ok(match mode {
            Mode::Filesystem => self.limit(name, bytes),
            Mode::Block => Bound::Size,
        })
    }

    /// Limits a directory that no pod uses yet to its capacity.
    fn limit(&self, name: &str, bytes: u64) -> Bound {
        let limit = capacity::limit(bytes);
        match project::limit(&self.path(name, Mode::Filesystem), limit) {
            Ok(true) => Bound::Quota,
            Ok(false) => Bound::Nothing,
            Err(error) => {
                // As on a file system without quotas, which is better than no volume.
                tracing::warn!(%error, volume = name, "volume cannot be limited to its capacity");
                Bound::Nothing
            }
        }
    }

    /// Reserves the space, for one volume at a time, so that the check counts all reservations.
    fn promise(&self, name: &str, mode: Mode, bytes: u64) -> Result<(), BackingError> {
        static PROMISING: parking_lot::Mutex<()> = parking_lot::Mutex::new(());
        let _one_at_a_time = PROMISING.lock();
        let failed = |source| BackingError::Make {
            dir: self.dir.join(name),
            source,
        };
        durable_file::create_directory(&self.dir).map_err(failed)?;
        match self.find(name) {
            Found::Recorded(_) => {}
            Found::Unrecorded => {
                return Err(BackingError::Unrecorded {
                    dir: self.dir.join(name),
                });
            }
            Found::Nothing => {
                self.check_space(bytes)?;
                let record = Record {
                    bytes,
                    mode,
                    state: State::Making,
                };
                self.write_record(name, &record).map_err(failed)?;
                failpoints::after("embedded-node/storage/promise");
            }
        }
        Ok(())
    }

    /// Copies the origin, unless an earlier attempt has completed.
    fn copy(&self, name: &str, mode: Mode, origin: &Origin) -> io::Result<()> {
        let path = self.path(name, mode);
        if path.exists() {
            return Ok(());
        }
        let dir = self.dir.join(name);
        let draft = dir.join(DRAFT);
        remove_draft(&draft)?;
        origin.copy_to(&draft)?;
        failpoints::after("embedded-node/snapshot/copied-back");
        fs::rename(&draft, &path)?;
        durable_file::sync_directory(&dir)
    }

    /// The data of a volume, as the origin of a copy; `None` if there is no such volume.
    pub(crate) fn origin(&self, name: &str) -> Option<Origin> {
        match self.find(name) {
            Found::Recorded(record) => Some(Origin {
                dir: self.dir.join(name),
                data: self.path(name, record.mode),
                mode: record.mode,
                bytes: record.bytes,
            }),
            Found::Nothing | Found::Unrecorded => None,
        }
    }

    fn fill(&self, name: &str, mode: Mode, bytes: u64) -> io::Result<()> {
        let path = self.path(name, mode);
        match mode {
            Mode::Filesystem if !path.exists() => {
                fs::create_dir(&path)?;
                // Any user of a pod may write; parent directories keep other host users out.
                fs::set_permissions(&path, fs::Permissions::from_mode(0o777))
            }
            Mode::Block if !path.exists() => {
                let file = File::create(&path)?;
                fs::set_permissions(&path, fs::Permissions::from_mode(0o600))?;
                file.set_len(bytes)
            }
            Mode::Filesystem => Ok(()),
            Mode::Block => {
                let file = File::options().write(true).open(&path)?;
                if file.metadata()?.len() < bytes {
                    file.set_len(bytes)?;
                }
                Ok(())
            }
        }
    }

    /// Records that the volume is published and may hold user data.
    pub(crate) fn confirm(&self, name: &str) -> io::Result<()> {
        match self.find(name) {
            Found::Recorded(record) if record.state == State::Making => self.write_record(
                name,
                &Record {
                    state: State::Made,
                    ..record
                },
            ),
            _ => Ok(()),
        }
    }

    /// Names of volumes that may not be published.
    pub(crate) fn unconfirmed(&self) -> Vec<String> {
        let making = |name: &String| match self.find(name) {
            Found::Nothing => true,
            Found::Recorded(record) => record.state == State::Making,
            Found::Unrecorded => false,
        };
        self.names().into_iter().filter(making).collect()
    }

    /// Directories of volumes with data and without a readable record.
    pub(crate) fn unrecorded(&self) -> Vec<PathBuf> {
        self.names()
            .into_iter()
            .filter(|name| matches!(self.find(name), Found::Unrecorded))
            .map(|name| self.dir.join(name))
            .collect()
    }

    /// Deletes the volume and its data. A missing volume is not an error.
    pub(crate) fn remove(&self, name: &str) -> io::Result<()> {
        let dir = self.dir.join(name);
        if dir.exists() {
            for left in loop_device::attached_below(&dir)? {
                loop_device::detach(&left.device)?;
            }
        }
        let gone = self.dir.join(format!("{name}{GONE}"));
        if gone.exists() {
            remove_gone(&gone)?;
        }
        match fs::rename(dir, &gone) {
            Ok(()) => {
                durable_file::sync_directory(&self.dir)?;
                failpoints::after("embedded-node/storage/put-aside");
                remove_gone(&gone)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Completes interrupted removals.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        for entry in self.entries() {
            if entry.to_string_lossy().ends_with(GONE) {
                remove_gone(&entry)?;
            }
        }
        Ok(())
    }

    fn entries(&self) -> Vec<PathBuf> {
        let Ok(entries) = fs::read_dir(&self.dir) else {
            return Vec::new();
        };
        entries
            .filter_map(Result::ok)
            .map(|entry| entry.path())
            .collect()
    }

    fn names(&self) -> Vec<String> {
        let name = |path: PathBuf| Some(path.file_name()?.to_str()?.to_owned());
        let all = self.entries().into_iter().filter_map(name);
        all.filter(|name| !name.ends_with(GONE)).collect()
    }

    fn find(&self, name: &str) -> Found {
        let dir = self.dir.join(name);
        match fs::read(dir.join(RECORD)) {
            Ok(bytes) => match serde_json::from_slice(&bytes) {
                Ok(record) => Found::Recorded(record),
                Err(_) => Found::Unrecorded,
            },
            Err(error) if error.kind() != io::ErrorKind::NotFound => Found::Unrecorded,
            Err(_) => {
                let exists = |mode| self.path(name, mode).exists();
                if exists(Mode::Filesystem) || exists(Mode::Block) {
                    Found::Unrecorded
                } else {
                    Found::Nothing
                }
            }
        }
    }

    fn write_record(&self, name: &str, record: &Record) -> io::Result<()> {
        let dir = self.dir.join(name);
        durable_file::create_directory(&dir)?;
        let bytes = serde_json::to_vec(record)?;
        durable_file::replace(&dir.join(RECORD), &bytes, durable_file::PRIVATE)
    }

    pub(super) fn check_space(&self, wanted: u64) -> Result<(), BackingError> {
        let failed = |source| BackingError::Make {
            dir: self.dir.clone(),
            source,
        };
        let stat = rustix::fs::statvfs(&self.dir).map_err(|errno| failed(errno.into()))?;
        let free = stat.f_bavail.saturating_mul(stat.f_frsize);
        let reserved = self.names().iter().fold(0_u64, |sum, name| {
            let unwritten = match self.find(name) {
                Found::Recorded(record) => record.bytes.saturating_sub(self.used(name)),
                Found::Nothing | Found::Unrecorded => 0,
            };
            sum.saturating_add(unwritten)
        });
        let available = free.saturating_sub(reserved);
        if wanted > available {
            return Err(BackingError::NoSpace {
                wanted,
                available,
                dir: self.dir.clone(),
            });
        }
        Ok(())
    }

    pub(super) fn used(&self, name: &str) -> u64 {
        let mut left = MAX_SCANNED;
        used_below(&self.dir.join(name), &mut left)
    }
}

/// Removes a volume that was renamed for that.
fn remove_gone(gone: &Path) -> io::Result<()> {
    for part in ["data", DRAFT] {
        // A number of a project that stays limited is not used again, which does no harm.
        if let Err(error) = project::lift(&gone.join(part)) {
            tracing::debug!(%error, dir = %gone.display(), "limit of a removed volume cannot be lifted");
        }
    }
    fs::remove_dir_all(gone)
}

fn used_below(dir: &Path, left: &mut u32) -> u64 {
    let Ok(entries) = fs::read_dir(dir) else {
        return 0;
    };
    let mut sum = 0_u64;
    for entry in entries.filter_map(Result::ok) {
        *left = left.saturating_sub(1);
        if *left == 0 {
            return sum;
        }
        let Ok(metadata) = entry.metadata() else {
            continue;
        };
        sum = sum.saturating_add(metadata.blocks().saturating_mul(512));
        if metadata.is_dir() {
            sum = sum.saturating_add(used_below(&entry.path(), left));
        }
    }
    sum
}

/// Rounds a requested size up to whole blocks.
pub(crate) fn whole_blocks(bytes: u64) -> u64 {
    bytes.max(1).div_ceil(BLOCK).saturating_mul(BLOCK)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn backing(dir: &tempfile::TempDir) -> Backing {
        Backing::of_node(dir.path())
    }

    #[test]
    fn volume_is_made_confirmed_and_removed() {
        let dir = tempfile::tempdir().unwrap();
        let all = backing(&dir);
        for _ in 0..2 {
            all.make("a", Mode::Filesystem, 8192, None).unwrap();
            all.make("b", Mode::Block, 8192, None).unwrap();
        }
        let disk = fs::metadata(all.path("b", Mode::Block)).unwrap();
        assert_eq!((disk.len(), disk.mode() & 0o777), (8192, 0o600));
        let data = fs::metadata(all.path("a", Mode::Filesystem)).unwrap();
        assert_eq!(data.mode() & 0o777, 0o777);
        all.confirm("a").unwrap();
        assert_eq!(all.unconfirmed(), ["b"]);
        for name in ["a", "b", "none"] {
            all.remove(name).unwrap();
        }
        assert_eq!(all.names(), Vec::<String>::new());
    }

    #[test]
    fn partial_volume_and_removal_are_completed() {
        let dir = tempfile::tempdir().unwrap();
        let all = backing(&dir);
        // Interrupted before the record was written, and during a removal.
        fs::create_dir_all(dir.path().join("volumes/half")).unwrap();
        fs::create_dir_all(dir.path().join("volumes/old.gone/data")).unwrap();
        assert_eq!(all.unconfirmed(), ["half"]);
        all.make("half", Mode::Block, 4096, None).unwrap();
        all.sweep().unwrap();
        assert_eq!(all.entries(), [dir.path().join("volumes/half")]);
    }

    #[test]
    fn data_without_a_readable_record_is_never_removed_nor_reused() {
        let dir = tempfile::tempdir().unwrap();
        let all = backing(&dir);
        for (name, record) in [("empty", Some("")), ("torn", Some("{\"by")), ("none", None)] {
            all.make(name, Mode::Block, 4096, None).unwrap();
            all.confirm(name).unwrap();
            fs::write(all.path(name, Mode::Block), "precious").unwrap();
            let path = dir.path().join("volumes").join(name).join(RECORD);
            match record {
                Some(text) => fs::write(path, text).unwrap(),
                None => fs::remove_file(path).unwrap(),
            }
            assert_eq!(all.unconfirmed(), Vec::<String>::new(), "{name}");
            let error = all.make(name, Mode::Block, 4096, None).unwrap_err();
            assert!(error.to_string().contains("restore that file"), "{error}");
            let kept = fs::read_to_string(all.path(name, Mode::Block)).unwrap();
            assert_eq!(kept, "precious");
        }
        assert_eq!(all.unrecorded().len(), 3);
    }

    #[test]
    fn reserved_space_counts_before_it_is_written() {
        let dir = tempfile::tempdir().unwrap();
        let all = backing(&dir);
        fs::create_dir_all(dir.path().join("volumes")).unwrap();
        let stat = rustix::fs::statvfs(dir.path()).unwrap();
        let free = stat.f_bavail * stat.f_frsize;
        all.make("half", Mode::Block, free / 2, None).unwrap();
        let error = all
            .make("more", Mode::Block, free / 4 * 3, None)
            .unwrap_err();
        assert!(matches!(error, BackingError::NoSpace { .. }), "{error}");
        assert!(!dir.path().join("volumes/more").exists());
        // Repeating a reservation succeeds, however full the disk is.
        all.make("half", Mode::Block, free / 2, None).unwrap();
        all.make("little", Mode::Block, free / 8, None).unwrap();
    }

    #[test]
    fn sizes_are_whole_blocks() {
        for (requested, size) in [(0, 4096), (1, 4096), (4096, 4096), (5000, 8192)] {
            assert_eq!(whole_blocks(requested), size);
        }
    }

    #[test]
    fn copy_gets_its_name_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let all = backing(&dir);
        for (name, mode) in [("files", Mode::Filesystem), ("raw", Mode::Block)] {
            all.make(name, mode, 8192, None).unwrap();
            let inner = |volume: &str| match mode {
                Mode::Filesystem => all.path(volume, mode).join("file"),
                Mode::Block => all.path(volume, mode),
            };
            fs::write(inner(name), "precious").unwrap();
            let origin = all.origin(name).unwrap();
            let copy = format!("{name}-copy");
            // An earlier attempt died during its copy.
            all.promise(&copy, mode, 16384).unwrap();
            let draft = dir.path().join("volumes").join(&copy).join(DRAFT);
            fs::write(&draft, "half").unwrap();
            for _ in 0..2 {
                all.make(&copy, mode, 16384, Some(&origin)).unwrap();
            }
            assert!(!draft.exists());
            let text = fs::read(inner(&copy)).unwrap();
            assert!(text.starts_with(b"precious"));
            if mode == Mode::Block {
                assert_eq!(text.len(), 16384);
            }
            all.remove(name).unwrap();
            all.make("late", mode, 8192, Some(&origin)).unwrap_err();
            assert!(!all.path("late", mode).exists());
            all.remove("late").unwrap();
        }
        assert!(all.origin("none").is_none());
    }
}
