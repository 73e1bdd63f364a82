//! Sources that are files of the pod: a disk of another volume, a disk in an image, the disk that is there, or
//! nothing.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::path::Path;

use container_disk::beneath;
use rustix::fs::{OFlags, SeekFrom, seek};
use rustix::io::Errno;

use crate::ImportError;
use crate::disk::{Disk, NAME, Place};
use crate::error::io_failed;
use crate::fetch::Sink as _;
use crate::pipeline::{Import, Pipeline};
use crate::progress::Progress;

/// Bytes per read.
const CHUNK: usize = 1 << 20;

/// A disk of zeros.
pub(crate) fn blank(place: &Place) -> Result<u64, ImportError> {
    Disk::create(place, place.room()?)?.finish()
}

/// Copies the disk of another volume: `disk.img` in a directory, or a device. Holes stay holes.
pub(crate) fn clone(from: &Path, place: &Place) -> Result<u64, ImportError> {
    let failed = io_failed("read the source volume");
    let mut source = open(from).map_err(&failed)?;
    let length = source.seek(io::SeekFrom::End(0)).map_err(&failed)?;
    let mut disk = Disk::create(place, place.room()?)?;
    disk.check(length)?;
    let mut progress = Progress::default();
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while at < length {
        let start = next_data(&source, at, length).map_err(&failed)?;
        disk.skip(start - at)?;
        at = start;
        source.seek(io::SeekFrom::Start(at)).map_err(&failed)?;
        let end = hole(&source, at, length).map_err(&failed)?;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let chunk = buffer.get_mut(..wanted).unwrap_or_default();
            source
                .seek(io::SeekFrom::Start(at))
                .and_then(|_| source.read_exact(chunk))
                .map_err(&failed)?;
            disk.write(chunk)?;
            at += chunk.len() as u64;
            progress.show(at, Some(length));
        }
    }
    disk.finish()
}

/// Gives the disk that a volume was created with, as from a snapshot, the size of the volume. It never gets smaller.
pub(crate) fn expand(place: &Place) -> Result<u64, ImportError> {
    let failed = io_failed("expand the disk");
    let room = place.room()?;
    let Place::Directory { path, .. } = place else {
        return Ok(room);
    };
    let directory = beneath::directory(path).map_err(&failed)?;
    let file = beneath::write(&directory, Path::new(NAME), OFlags::empty());
    let file = match file.map(File::from) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(ImportError::NoDiskOnVolume);
        }
        Err(error) => return Err(failed(error)),
    };
    let found = file.metadata().map_err(&failed)?;
    if !found.is_file() {
        return Err(ImportError::NoDiskOnVolume);
    }
    if room > found.len() {
        file.set_len(room).map_err(&failed)?;
        file.sync_all().map_err(&failed)?;
    }
    Ok(room.max(found.len()))
}

/// Imports the disk in an image whose root is mounted at `root`.
pub(crate) fn image(root: &Path, import: Import) -> Result<u64, ImportError> {
    let found = container_disk::find(root, None);
    let mut found = found.map_err(|error| ImportError::NoDisk(error.to_string()))?;
    let failed = io_failed("read the disk in the image");
    let length = found.file.metadata().map_err(&failed)?.len();
    let mut pipeline = Pipeline::new(import)?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let read = found.file.read(&mut buffer).map_err(&failed)?;
        if read == 0 {
            return pipeline.finish();
        }
        pipeline.push(buffer.get(..read).unwrap_or_default(), Some(length))?;
    }
}

fn open(from: &Path) -> io::Result<File> {
    if !from.is_dir() {
        return File::open(from);
    }
    let directory = beneath::directory(from)?;
    let file = File::from(beneath::read(&directory, Path::new(NAME))?);
    if file.metadata()?.is_file() {
        Ok(file)
    } else {
        let message = "disk.img is not a regular file";
        Err(io::Error::new(io::ErrorKind::InvalidData, message))
    }
}

/// Where the next data begins; the end if there is none.
fn next_data(file: &File, at: u64, length: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Data(at)) {
        Ok(start) => Ok(start.clamp(at, length)),
        Err(Errno::NXIO) => Ok(length),
        // Devices have no holes.
        Err(Errno::INVAL) => Ok(at),
        Err(errno) => Err(errno.into()),
    }
}

/// Where the data at `at` ends.
fn hole(file: &File, at: u64, length: u64) -> io::Result<u64> {
    match seek(file, SeekFrom::Hole(at)) {
        Ok(end) => Ok(end.clamp(at, length)),
        Err(Errno::NXIO | Errno::INVAL) => Ok(length),
        Err(errno) => Err(errno.into()),
    }
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::{FileExt as _, MetadataExt as _};

    use reasons::Reason;

    use super::*;
    use crate::convert::Converter;
    use crate::pipeline::Content;

    fn place(path: &Path, size: u64) -> Place {
        fs::create_dir_all(path).unwrap();
        let path = path.to_owned();
        Place::Directory { path, size }
    }

    #[test]
    fn blank_disk_is_as_large_as_its_volume_and_takes_no_space() {
        let dir = tempfile::tempdir().unwrap();
        assert_eq!(blank(&place(dir.path(), 5 << 20)).unwrap(), 5 << 20);
        let metadata = fs::metadata(dir.path().join("disk.img")).unwrap();
        assert_eq!((metadata.len(), metadata.blocks()), (5 << 20, 0));
    }

    #[test]
    fn clone_is_equal_and_keeps_holes() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        let source = File::create_new(from.join("disk.img")).unwrap();
        source.set_len(20 << 20).unwrap();
        source.write_all_at(&[1; 10_000], 3 << 20).unwrap();
        source.write_all_at(b"end", (20 << 20) - 3).unwrap();
        let error = clone(&from, &place(&to, 10 << 20)).unwrap_err();
        assert_eq!(error.reason(), Reason::DiskDoesNotFit);
        assert_eq!(clone(&from, &place(&to, 24 << 20)).unwrap(), 24 << 20);
        let mut expected = fs::read(from.join("disk.img")).unwrap();
        expected.resize(24 << 20, 0);
        assert!(fs::read(to.join("disk.img")).unwrap() == expected);
        let blocks = fs::metadata(to.join("disk.img")).unwrap().blocks();
        assert!(blocks * 512 < 1 << 20, "{blocks}");
        // A device as the source.
        let device = from.join("disk.img");
        assert_eq!(clone(&device, &place(&to, 20 << 20)).unwrap(), 20 << 20);
        assert!(fs::read(to.join("disk.img")).unwrap() == expected[..20 << 20]);
    }

    #[test]
    fn disk_of_a_volume_grows_and_never_shrinks() {
        let dir = tempfile::tempdir().unwrap();
        let disk = dir.path().join("disk.img");
        let error = expand(&place(dir.path(), 4 << 20)).unwrap_err();
        assert_eq!(
            (error.reason(), error.is_transient()),
            (Reason::DiskImageInvalid, false)
        );
        fs::write(&disk, vec![7; 1 << 20]).unwrap();
        for (size, expected) in [(4 << 20, 4 << 20), (4 << 20, 4 << 20), (1 << 20, 4 << 20)] {
            assert_eq!(expand(&place(dir.path(), size)).unwrap(), expected);
            let found = fs::read(&disk).unwrap();
            assert_eq!(found.len() as u64, expected);
            let (old, new) = found.split_at(1 << 20);
            assert!(old.iter().all(|it| *it == 7) && new.iter().all(|it| *it == 0));
        }
        fs::remove_file(&disk).unwrap();
        fs::write(dir.path().join("other"), "other").unwrap();
        std::os::unix::fs::symlink("other", &disk).unwrap();
        assert!(expand(&place(dir.path(), 4 << 20)).is_err());
        assert_eq!(fs::read(dir.path().join("other")).unwrap(), b"other");
    }

    #[test]
    fn link_in_the_source_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (from, to) = (dir.path().join("from"), dir.path().join("to"));
        fs::create_dir(&from).unwrap();
        fs::write(dir.path().join("secret"), "secret").unwrap();
        std::os::unix::fs::symlink("../secret", from.join("disk.img")).unwrap();
        let error = clone(&from, &place(&to, 1 << 20)).unwrap_err();
        assert_eq!(error.reason(), Reason::ImportFailed);
    }

    #[test]
    fn disk_of_an_image_is_imported() {
        let dir = tempfile::tempdir().unwrap();
        let (root, to) = (dir.path().join("root"), dir.path().join("to"));
        fs::create_dir_all(root.join("disk")).unwrap();
        let import = Import {
            place: place(&to, 1 << 20),
            content: Content::Image,
            scratch: dir.path().to_owned(),
            checksum: None,
            converter: Converter::direct(),
        };
        let error = image(&root, import.clone()).unwrap_err();
        assert_eq!(error.reason(), Reason::DiskImageInvalid);
        fs::write(root.join("disk/any.img"), [7; 1000]).unwrap();
        assert_eq!(image(&root, import).unwrap(), 1 << 20);
        assert_eq!(
            fs::read(to.join("disk.img")).unwrap()[..1001],
            [&[7; 1000][..], &[0]].concat()
        );
    }
}
