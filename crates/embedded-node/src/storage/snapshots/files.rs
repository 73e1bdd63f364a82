//! Snapshots on disk: `<node>/snapshots/<handle>/` with the directory `data` or the file `disk` in it,
//! as a volume has them, and the record `snapshot.json`.
//!
//! **Invariants.** A snapshot is made under another name and is on disk when it gets its own, so one
//! that has its name is complete. It is never changed. It is renamed before it is removed.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

use error_chain::error_chain;
use serde::{Deserialize, Serialize};

use super::super::{
    backing::{Backing, Mode, Origin},
    copy,
};

const RECORD: &str = "snapshot.json";
const GONE: &str = ".gone";

/// A snapshot that is complete.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) bytes: u64,
    pub(crate) mode: Mode,
    /// The beginning of the copy, in nanoseconds since 1970.
    pub(crate) created: i64,
    /// The volume that was copied, for administrators.
    volume: String,
}

/// All snapshots of one node.
#[derive(Debug, Clone)]
pub(crate) struct Files {
    dir: PathBuf,
    volumes: Backing,
}

impl Files {
    pub(crate) fn of_node(root: &Path) -> Self {
        Self {
            dir: root.join("snapshots"),
            volumes: Backing::of_node(root),
        }
    }

    /// Copies the volume, unless an earlier attempt has completed.
    pub(super) fn take(&self, handle: &str, volume: &str, now: i64) -> io::Result<Record> {
        if let Some(record) = self.find(handle)? {
            return Ok(record);
        }
        let dir = self.path(handle)?;
        let origin = self.volumes.origin(volume).ok_or_else(|| {
            io::Error::other(format!(
                "volume {volume} is not on this host, or its record is damaged"
            ))
        })?;
        durable_file::create_directory(&self.dir)?;
        if !copy::can_share(&self.dir)? {
            let space = self.volumes.check_space(self.volumes.used(volume));
            space.map_err(|error| io::Error::other(error_chain(&error)))?;
        }
        let draft = self.dir.join(format!("{handle}{}", durable_file::DRAFT));
        if draft.exists() {
            fs::remove_dir_all(&draft)?;
        }
        fs::create_dir(&draft)?;
        let copied = fill(&draft, &origin, volume, now);
        if copied.is_err() {
            // A copy that failed must not keep the disk full.
            fs::remove_dir_all(&draft)?;
        }
        let record = copied?;
        failpoints::after("embedded-node/snapshot/copied");
        fs::rename(&draft, &dir)?;
        durable_file::sync_directory(&self.dir)?;
        failpoints::after("embedded-node/snapshot/named");
        Ok(record)
    }

    /// The snapshot with that handle, if it is complete.
    pub(super) fn find(&self, handle: &str) -> io::Result<Option<Record>> {
        match fs::read(self.path(handle)?.join(RECORD)) {
            Ok(bytes) => Ok(Some(serde_json::from_slice(&bytes)?)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// The data of a snapshot, as the origin of a volume.
    pub(crate) fn origin(&self, handle: &str) -> io::Result<Option<Origin>> {
        let dir = self.path(handle)?;
        let record = self.find(handle)?;
        Ok(record.map(|record| Origin {
            data: dir.join(part(record.mode)),
            dir,
            mode: record.mode,
            bytes: record.bytes,
        }))
    }

    /// Deletes a snapshot and an unfinished copy for it. A missing one is not an error.
    pub(super) fn remove(&self, handle: &str) -> io::Result<()> {
        let dir = self.path(handle)?;
        let gone = self.dir.join(format!("{handle}{GONE}"));
        if gone.exists() {
            fs::remove_dir_all(&gone)?;
        }
        let draft = self.dir.join(format!("{handle}{}", durable_file::DRAFT));
        if draft.exists() {
            fs::remove_dir_all(draft)?;
        }
        match fs::rename(dir, &gone) {
            Ok(()) => {
                durable_file::sync_directory(&self.dir)?;
                failpoints::after("embedded-node/snapshot/put-aside");
                fs::remove_dir_all(gone)
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Removes unfinished copies and completes interrupted removals.
    pub(crate) fn sweep(&self) -> io::Result<()> {
        let entries = match fs::read_dir(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            other => other?,
        };
        for entry in entries {
            let entry = entry?;
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name.ends_with(GONE) || name.ends_with(durable_file::DRAFT) {
                fs::remove_dir_all(entry.path())?;
            }
        }
        Ok(())
    }

    /// An administrator may write any text as a handle.
    fn path(&self, handle: &str) -> io::Result<PathBuf> {
        let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-';
        if handle.is_empty() || !handle.bytes().all(is_plain) {
            let message = format!("{handle:?} is not the handle of a snapshot of this host");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        Ok(self.dir.join(handle))
    }
}

fn part(mode: Mode) -> &'static str {
    match mode {
        Mode::Filesystem => "data",
        Mode::Block => "disk",
    }
}

/// Copies the volume into the directory, and describes it there.
fn fill(draft: &Path, origin: &Origin, volume: &str, now: i64) -> io::Result<Record> {
    origin.copy_to(&draft.join(part(origin.mode)))?;
    let record = Record {
        bytes: origin.bytes,
        mode: origin.mode,
        created: now,
        volume: volume.to_owned(),
    };
    let bytes = serde_json::to_vec(&record)?;
    durable_file::replace(&draft.join(RECORD), &bytes, durable_file::PRIVATE)?;
    durable_file::sync_directory(draft)?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn snapshot_keeps_the_data_of_its_moment() {
        let root = tempfile::tempdir().unwrap();
        let (volumes, files) = (Backing::of_node(root.path()), Files::of_node(root.path()));
        for (name, mode) in [("files", Mode::Filesystem), ("raw", Mode::Block)] {
            volumes.make(name, mode, 8192, None).unwrap();
            let file = match mode {
                Mode::Filesystem => volumes.path(name, mode).join("file"),
                Mode::Block => volumes.path(name, mode),
            };
            fs::write(&file, "before").unwrap();
            let handle = format!("snapshot-{name}");
            // Left by a copy that was interrupted.
            let draft = root.path().join("snapshots").join(format!("{handle}.new"));
            fs::create_dir_all(draft.join("data")).unwrap();
            assert_eq!(files.find(&handle).unwrap(), None);
            let record = files.take(&handle, name, 5).unwrap();
            assert_eq!((record.bytes, record.mode, record.created), (8192, mode, 5));
            fs::write(&file, "after").unwrap();
            // A second attempt does not copy again.
            assert_eq!(files.take(&handle, name, 6).unwrap(), record);
            volumes.remove(name).unwrap();
            let origin = files.origin(&handle).unwrap().unwrap();
            volumes.make("back", mode, 8192, Some(&origin)).unwrap();
            let back = match mode {
                Mode::Filesystem => volumes.path("back", mode).join("file"),
                Mode::Block => volumes.path("back", mode),
            };
            assert!(fs::read(back).unwrap().starts_with(b"before"));
            volumes.remove("back").unwrap();
            for _ in 0..2 {
                files.remove(&handle).unwrap();
            }
            assert_eq!(files.origin(&handle).unwrap(), None);
        }
    }

    #[test]
    fn leftovers_are_swept_and_foreign_handles_refused() {
        let root = tempfile::tempdir().unwrap();
        let files = Files::of_node(root.path());
        files.sweep().unwrap();
        for name in ["snapshot-a.new", "snapshot-b.gone", "snapshot-c"] {
            fs::create_dir_all(root.path().join("snapshots").join(name)).unwrap();
        }
        files.sweep().unwrap();
        assert_eq!(
            fs::read_dir(root.path().join("snapshots")).unwrap().count(),
            1
        );
        for handle in ["", "..", "a/b", "a.gone"] {
            files.find(handle).unwrap_err();
            files.remove(handle).unwrap_err();
        }
        let error = files.take("snapshot-d", "none", 0).unwrap_err();
        assert!(error.to_string().contains("not on this host"), "{error}");
    }
}
