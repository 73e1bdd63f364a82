//! The disk that an import fills: a file in a directory, or a block device.
//!
//! **Invariants**: a file gets its name when it is complete and on disk; the first bytes of a device,
//! without which a guest does not boot, are written after all others are on disk, unless `qemu-img`
//! writes the device. Blocks of zeros take no space where the storage allows it.

use std::fs::File;
use std::io;
use std::os::fd::AsFd as _;
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};

use container_disk::beneath;
use disk_image::SECTOR;
use rustix::fs::{
    AtFlags, FallocateFlags, OFlags, SeekFrom, fallocate, fstatvfs, renameat, seek, unlinkat,
};
use rustix::io::Errno;

use crate::ImportError;
use crate::error::io_failed;

/// The name that a guest's disk has in a volume.
pub(crate) const NAME: &str = "disk.img";
/// Its name until it is complete.
const DRAFT: &str = ".disk.img.import";
/// Zeros are found in blocks of this size.
const BLOCK: usize = 4 << 10;
/// Bytes that are written at once.
const CHUNK: usize = 1 << 20;
/// A disk that must be smaller than its volume has whole units of this size.
const UNIT: u64 = 1 << 20;
/// The bytes of a device that are written last.
const FIRST: usize = 64 << 10;

/// Where the disk is.
#[derive(Debug, Clone)]
pub(crate) enum Place {
    /// A directory, and the size of the disk.
    Directory {
        path: PathBuf,
        size: u64,
    },
    Device(PathBuf),
}

/// A disk that is being filled from its beginning to its end.
#[derive(Debug)]
pub(crate) struct Disk {
    file: File,
    directory: Option<File>,
    path: PathBuf,
    room: u64,
    /// What was flushed.
    at: u64,
    pending: Vec<u8>,
    first: Vec<u8>,
    is_complete: bool,
}

impl Place {
    /// Removes the disk that a directory has, unless there is room for another one of that size beside it.
    pub(crate) fn make_room(&self, size: u64) -> Result<(), ImportError> {
        let Self::Directory { path, .. } = self else {
            return Ok(());
        };
        let failed = io_failed("make room on the volume");
        let directory = beneath::directory(path).map_err(&failed)?;
        remove(&directory, DRAFT).map_err(&failed)?;
        let found = fstatvfs(&directory).map_err(|errno| failed(errno.into()))?;
        let total = found.f_blocks.saturating_mul(found.f_frsize);
        let free = found.f_bavail.saturating_mul(found.f_frsize);
        // A disk that never fits is refused later, and the old one stays.
        if free < size && size <= total {
            remove(&directory, NAME).map_err(&failed)?;
        }
        Ok(())
    }

    /// The largest disk that fits, once the draft of an import that was killed is removed.
    pub(crate) fn room(&self) -> Result<u64, ImportError> {
        match self {
            Self::Directory { path, size } => {
                let failed = io_failed("measure the volume");
                let directory = beneath::directory(path).map_err(&failed)?;
                remove_draft(&directory).map_err(&failed)?;
                let found = fstatvfs(&directory).map_err(|errno| failed(errno.into()))?;
                let total = found.f_blocks.saturating_mul(found.f_frsize);
                let free = found.f_bavail.saturating_mul(found.f_frsize);
                Ok(room(*size, total, free))
            }
            Self::Device(path) => {
                let failed = io_failed("measure the device");
                let device = open_device(path).map_err(&failed)?;
                let end = seek(&device, SeekFrom::End(0));
                end.map_err(|errno| failed(errno.into()))
            }
        }
    }
}

/// A file system that is larger than the disk is shared with others, and disks need no space for
/// zeros. One that is not holds this disk alone, without what the file system itself uses.
fn room(size: u64, total: u64, free: u64) -> u64 {
    if total > size || free >= size {
        size
    } else {
        free / UNIT * UNIT
    }
}

fn remove_draft(directory: &File) -> io::Result<()> {
    remove(directory, DRAFT)
}

fn remove(directory: &File, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(errno) => Err(errno.into()),
    }
}

fn open_device(path: &Path) -> io::Result<File> {
    File::options().read(true).write(true).open(path)
}

impl Disk {
    pub(crate) fn create(place: &Place, room: u64) -> Result<Self, ImportError> {
        let failed = io_failed("create the disk");
        let (file, directory, path) = match place {
            Place::Directory { path, .. } => {
                let directory = beneath::directory(path).map_err(&failed)?;
                remove_draft(&directory).map_err(&failed)?;
                let create = OFlags::CREATE | OFlags::EXCL;
                let file = beneath::write(&directory, Path::new(DRAFT), create);
                let file = File::from(file.map_err(&failed)?);
                (file, Some(directory), path.join(DRAFT))
            }
            Place::Device(path) => {
                let file = open_device(path).map_err(&failed)?;
                file.write_all_at(&vec![0; FIRST], 0).map_err(&failed)?;
                file.sync_data().map_err(&failed)?;
                (file, None, path.clone())
            }
        };
        Ok(Self {
            file,
            directory,
            path,
            room,
            at: 0,
            pending: Vec::with_capacity(CHUNK),
            first: Vec::new(),
            is_complete: false,
        })
    }

    pub(crate) fn is_device(&self) -> bool {
        self.directory.is_none()
    }

    /// Where another program may write the disk, once [`Self::reserve`] was called.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// Gives the disk its size, for another program that writes it.
    pub(crate) fn reserve(&mut self, size: u64) -> Result<(), ImportError> {
        self.check(size)?;
        if !self.is_device() {
            let failed = io_failed("write the disk");
            self.file.set_len(size).map_err(failed)?;
        }
        self.at = size;
        Ok(())
    }

    /// Fails if the disk would be larger than the volume.
    pub(crate) fn check(&self, size: u64) -> Result<(), ImportError> {
        if size > self.room {
            let room = self.room;
            return Err(ImportError::TooLarge { found: size, room });
        }
        Ok(())
    }

    pub(crate) fn write(&mut self, mut bytes: &[u8]) -> Result<(), ImportError> {
        let length = (self.pending.len() + bytes.len()) as u64;
        if self.at.saturating_add(length) > self.room {
            return Err(ImportError::TooLong { room: self.room });
        }
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(CHUNK - self.pending.len()));
            self.pending.extend_from_slice(now);
            bytes = later;
            if self.pending.len() == CHUNK {
                self.flush()?;
            }
        }
        Ok(())
    }

    /// Bytes of zeros, which take no space.
    pub(crate) fn skip(&mut self, length: u64) -> Result<(), ImportError> {
        self.flush()?;
        let end = self.at.saturating_add(length);
        self.check(end)?;
        if self.is_device() {
            self.zero(self.at, end)
                .map_err(io_failed("write the disk"))?;
        }
        self.at = end;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), ImportError> {
        let failed = io_failed("write the disk");
        let mut pending = std::mem::take(&mut self.pending);
        if self.is_device() && self.at == 0 && self.first.is_empty() {
            let kept = pending.len().min(FIRST);
            let (first, _) = pending.split_at_mut(kept);
            self.first = first.to_vec();
            first.fill(0);
        }
        let mut run = 0;
        let mut blocks = pending.chunks(BLOCK).peekable();
        let mut at = 0;
        // Adjacent blocks of the same kind are one operation.
        while let Some(block) = blocks.next() {
            at += block.len();
            let zero = is_zero(block);
            if blocks.peek().is_some_and(|next| is_zero(next) == zero) {
                continue;
            }
            let offset = self.at + run as u64;
            if !zero {
                let data = pending.get(run..at).unwrap_or_default();
                self.file.write_all_at(data, offset).map_err(&failed)?;
            } else if self.is_device() {
                self.zero(offset, self.at + at as u64).map_err(&failed)?;
            }
            run = at;
        }
        self.at += pending.len() as u64;
        pending.clear();
        self.pending = pending;
        Ok(())
    }

    /// Makes a range of a device zero, without writing it if possible.
    fn zero(&self, start: u64, end: u64) -> io::Result<()> {
        if start >= end {
            return Ok(());
        }
        for mode in [
            FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE,
            FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE,
        ] {
            if fallocate(self.file.as_fd(), mode, start, end - start).is_ok() {
                return Ok(());
            }
        }
        let zeros = vec![0; CHUNK];
        let mut at = start;
        while at < end {
            let length = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let zeros = zeros.get(..length).unwrap_or_default();
            self.file.write_all_at(zeros, at)?;
            at += length as u64;
        }
        Ok(())
    }

    /// Makes the disk as large as its volume, waits until it is on disk and gives it its name.
    /// Returns its size.
    pub(crate) fn finish(mut self) -> Result<u64, ImportError> {
        let failed = io_failed("complete the disk");
        self.flush()?;
        let size = self.room.max(self.at).next_multiple_of(SECTOR);
        let Some(directory) = &self.directory else {
            self.zero(self.at, self.room).map_err(&failed)?;
            self.file.sync_all().map_err(&failed)?;
            self.file.write_all_at(&self.first, 0).map_err(&failed)?;
            self.file.sync_all().map_err(&failed)?;
            return Ok(self.room);
        };
        self.file.set_len(size).map_err(&failed)?;
        self.file.sync_all().map_err(&failed)?;
        renameat(directory, DRAFT, directory, NAME).map_err(|errno| failed(errno.into()))?;
        self.is_complete = true;
        directory.sync_all().map_err(&failed)?;
        Ok(size)
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        if let (Some(directory), false) = (&self.directory, self.is_complete) {
            // Else the next import removes it.
            let _removed = unlinkat(directory, DRAFT, AtFlags::empty()).is_ok();
        }
    }
}

fn is_zero(block: &[u8]) -> bool {
    block.iter().all(|byte| *byte == 0)
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    fn place(dir: &Path, size: u64) -> Place {
        Place::Directory {
            path: dir.to_owned(),
            size,
        }
    }

    #[test]
    fn file_has_its_name_only_when_it_is_complete() {
        let dir = tempfile::tempdir().unwrap();
        let place = place(dir.path(), 4 << 20);
        let room = place.room().unwrap();
        let mut disk = Disk::create(&place, room).unwrap();
        let mut expected = vec![0; 3 << 20];
        expected[5] = 1;
        expected[(2 << 20) + 7] = 2;
        for piece in expected.chunks(777) {
            disk.write(piece).unwrap();
        }
        assert!(!dir.path().join(NAME).exists());
        assert_eq!(disk.finish().unwrap(), 4 << 20);
        let found = fs::read(dir.path().join(NAME)).unwrap();
        expected.resize(4 << 20, 0);
        assert!(found == expected);
        let metadata = fs::metadata(dir.path().join(NAME)).unwrap();
        assert!(metadata.blocks() * 512 <= 64 << 10, "{}", metadata.blocks());
        assert_eq!(metadata.mode() & 0o777, 0o660 & metadata.mode());
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    }

    #[test]
    fn draft_of_a_killed_import_is_replaced_and_no_link_followed() {
        let dir = tempfile::tempdir().unwrap();
        let victim = dir.path().join("victim");
        fs::write(&victim, "precious").unwrap();
        std::os::unix::fs::symlink(&victim, dir.path().join(DRAFT)).unwrap();
        let mut disk = Disk::create(&place(dir.path(), 1 << 20), 1 << 20).unwrap();
        disk.write(b"x").unwrap();
        disk.finish().unwrap();
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
        assert_eq!(fs::read(dir.path().join(NAME)).unwrap()[..2], *b"x\0");
    }

    /// Else a small volume would have no room for the next try.
    #[test]
    fn draft_of_a_killed_import_takes_no_room() {
        let dir = tempfile::tempdir().unwrap();
        for name in [DRAFT, NAME] {
            fs::write(dir.path().join(name), "old").unwrap();
        }
        assert_eq!(place(dir.path(), 1 << 20).room().unwrap(), 1 << 20);
        let left = fs::read_dir(dir.path()).unwrap();
        let left: Vec<_> = left.map(|entry| entry.unwrap().file_name()).collect();
        assert_eq!(left, [NAME]);
    }

    #[test]
    fn disk_larger_than_its_volume_is_refused() {
        let dir = tempfile::tempdir().unwrap();
        let mut disk = Disk::create(&place(dir.path(), 1000), 1000).unwrap();
        disk.write(&[1; 1000]).unwrap();
        assert!(matches!(disk.write(&[1]), Err(ImportError::TooLong { .. })));
        assert!(matches!(disk.skip(1), Err(ImportError::TooLarge { .. })));
        assert!(matches!(
            disk.reserve(1001),
            Err(ImportError::TooLarge { .. })
        ));
        assert!(!dir.path().join(NAME).exists());
    }

    #[test]
    fn old_bytes_of_a_device_never_show_through() {
        // A file stands for the device: it has a size that does not change.
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("device");
        fs::write(&path, vec![9; 4 << 20]).unwrap();
        let place = Place::Device(path.clone());
        let room = place.room().unwrap();
        assert_eq!(room, 4 << 20);
        let mut disk = Disk::create(&place, room).unwrap();
        let mut expected = vec![0; 4 << 20];
        expected[1] = 1;
        expected[(1 << 20) + 1] = 1;
        disk.write(&expected[..2 << 20]).unwrap();
        disk.skip(100).unwrap();
        // Nothing boots from it before it is complete.
        assert!(is_zero(&fs::read(&path).unwrap()[..FIRST]));
        assert_eq!(disk.finish().unwrap(), 4 << 20);
        assert!(fs::read(&path).unwrap() == expected);
    }

    #[test]
    fn small_file_systems_leave_less_room() {
        let check = |size, total, free, expected| {
            assert_eq!(room(size, total, free), expected, "{size} {total} {free}");
        };
        let unit = UNIT;
        check(10 * unit, 100 * unit, 50 * unit, 10 * unit);
        // Shared and nearly full: zeros need no space.
        check(10 * unit, 100 * unit, unit, 10 * unit);
        check(10 * unit, 10 * unit, 9 * unit + 5, 9 * unit);
        check(10 * unit, 9 * unit, unit - 1, 0);
    }
}
