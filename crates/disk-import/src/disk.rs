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
    AtFlags, FallocateFlags, FileType, OFlags, SeekFrom, Stat, fallocate, fstatvfs, renameat, seek,
    statat, unlinkat,
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
/// A file system needs at most this part of the bytes of a file to know where they are.
const RECORDS: u64 = 64;
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
    /// Removes the disk that a directory has, if there is no room for another one beside it. The new disk has that
    /// size, and needs up to `data` bytes. If it would not fit then either, the old disk stays.
    pub(crate) fn make_room(&self, size: u64, data: u64) -> Result<(), ImportError> {
        let Self::Directory { path, size: whole } = self else {
            return Ok(());
        };
        let failed = io_failed("make room on the volume");
        let directory = beneath::directory(path).map_err(&failed)?;
        remove_draft(&directory).map_err(&failed)?;
        let old = stat(&directory).map_err(&failed)?;
        let found = fstatvfs(&directory).map_err(|errno| failed(errno.into()))?;
        let space = Space {
            total: found.f_blocks.saturating_mul(found.f_frsize),
            free: found.f_bavail.saturating_mul(found.f_frsize),
            old: old.as_ref().map_or(0, allocated),
        };
        if space.must_replace(*whole, size, data)? {
            remove(&directory, NAME).map_err(&failed)?;
        }
        Ok(())
    }

    /// Whether there is a disk that is complete, as far as that is known.
    pub(crate) fn has_disk(&self) -> bool {
        match self {
            Self::Directory { path, .. } => {
                let old = beneath::directory(path).and_then(|directory| stat(&directory));
                old.is_ok_and(|old| old.is_some_and(|old| is_file(&old)))
            }
            Self::Device(path) => {
                // They are zeros from the beginning of an import to its end.
                let mut first = vec![0; FIRST];
                let read = File::open(path).and_then(|device| device.read_at(&mut first, 0));
                read.is_ok() && !is_zero(&first)
            }
        }
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

/// The bytes of a file system that gets a disk.
#[derive(Debug, Clone, Copy)]
struct Space {
    total: u64,
    free: u64,
    /// Those of the disk that is there.
    old: u64,
}

impl Space {
    /// Whether the new disk needs the place of the old one. `whole` is the size that the disk is given, `size` that of
    /// its content. An error if it does not fit in its place either.
    fn must_replace(&self, whole: u64, size: u64, data: u64) -> Result<bool, ImportError> {
        // The file system keeps its own records of the blocks of a file.
        let with_records = data.saturating_add(data / RECORDS).saturating_add(UNIT);
        if self.free >= with_records && size <= room(whole, self.total, self.free) {
            return Ok(false);
        }
        if self.old == 0 {
            // A disk that does not fit shows when it is written, and others may leave meanwhile.
            return Ok(false);
        }
        let free = self.free.saturating_add(self.old);
        let most = room(whole, self.total, free);
        if size > most {
            return Err(ImportError::TooLarge {
                found: size,
                room: most,
            });
        }
        if free < with_records {
            return Err(ImportError::TooLarge {
                found: with_records,
                room: free,
            });
        }
        Ok(true)
    }
}

/// What the directory has under the name of the disk.
fn stat(directory: &File) -> io::Result<Option<Stat>> {
    match statat(directory, NAME, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(found) => Ok(Some(found)),
        Err(Errno::NOENT) => Ok(None),
        Err(errno) => Err(errno.into()),
    }
}

fn is_file(found: &Stat) -> bool {
    FileType::from_raw_mode(found.st_mode) == FileType::RegularFile
}

/// The bytes that are free once the file is removed.
fn allocated(found: &Stat) -> u64 {
    let is_freed = is_file(found) && found.st_nlink == 1;
    let blocks = if is_freed { found.st_blocks } else { 0 };
    u64::try_from(blocks).unwrap_or(0).saturating_mul(SECTOR)
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

    #[test]
    fn old_disk_goes_only_if_the_new_one_fits_in_its_place() {
        let unit = UNIT;
        let check = |(total, free, old), data, expected: Option<bool>| {
            let space = Space {
                total: total * unit,
                free: free * unit,
                old: old * unit,
            };
            let found = space.must_replace(64 * unit, 64 * unit, data * unit);
            assert_eq!(found.ok(), expected, "{total} {free} {old} {data}");
        };
        check((100, 90, 4), 60, Some(false));
        // Most of the disk is zeros.
        check((100, 20, 60), 10, Some(false));
        check((100, 20, 60), 70, Some(true));
        // The records of the file system need a part.
        check((100, 20, 60), 77, Some(true));
        check((100, 20, 60), 78, None);
        check((100, 64, 4), 64, Some(true));
        // The disk is larger than the file system.
        check((64, 20, 40), 10, None);
        check((64, 24, 40), 10, Some(true));
        // Nothing to remove.
        check((100, 20, 0), 70, Some(false));
    }

    #[test]
    fn disk_that_does_not_fit_leaves_the_old_one() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join(NAME);
        let old = vec![1; 64 << 10];
        fs::write(&path, &old).unwrap();
        let place = place(dir.path(), 1 << 20);
        let error = place.make_room(1 << 20, u64::MAX).unwrap_err();
        assert!(matches!(error, ImportError::TooLarge { .. }), "{error}");
        assert_eq!(fs::read(&path).unwrap(), old);
        place.make_room(1 << 20, 1 << 20).unwrap();
        assert_eq!(fs::read(&path).unwrap(), old);
    }

    #[test]
    fn place_has_a_disk_unless_one_is_being_written() {
        let dir = tempfile::tempdir().unwrap();
        let file = place(dir.path(), 1 << 20);
        assert!(!file.has_disk());
        let path = dir.path().join("device");
        fs::write(&path, vec![9; 1 << 20]).unwrap();
        let device = Place::Device(path);
        assert!(device.has_disk());
        for place in [file, device] {
            let mut disk = Disk::create(&place, 1 << 20).unwrap();
            disk.write(&vec![1; 1 << 20]).unwrap();
            assert!(!place.has_disk(), "{place:?}");
            disk.finish().unwrap();
            assert!(place.has_disk(), "{place:?}");
        }
        fs::remove_file(dir.path().join(NAME)).unwrap();
        std::os::unix::fs::symlink("device", dir.path().join(NAME)).unwrap();
        assert!(
            !Place::Directory {
                path: dir.path().to_owned(),
                size: 1
            }
            .has_disk()
        );
    }
}
