//! Copies a disk: without its holes, and under its name only when the copy is complete.

use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, FileExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::fs::SeekFrom;
use rustix::io::Errno;

/// Bytes per read.
const CHUNK: usize = 1 << 20;
/// Blocks of zeros of this size are omitted: images come from archives, which have no holes.
const BLOCK: usize = 64 << 10;
/// Readable by the owner, which is the guest's user, and its group; read-only.
const FILE_MODE: u32 = 0o440;
const DIRECTORY_MODE: u32 = 0o770;

/// Why the copy failed.
#[derive(Debug, thiserror::Error)]
pub enum CopyError {
    #[error("read the disk in the image: {0}")]
    Read(#[source] io::Error),
    #[error("read the disk in the image: it changed while it was read")]
    Changed,
    #[error("write a copy of {bytes} bytes to {path}: {source}", path = path.display())]
    Write {
        path: PathBuf,
        bytes: u64,
        source: io::Error,
    },
    #[error("write a copy to {path}: it is not as long as the disk", path = path.display())]
    Short { path: PathBuf },
}

/// Copies a file to `target`. An existing copy is left as it is: a guest may be using it.
pub fn copy(source: &File, target: &Path) -> Result<(), CopyError> {
    if target.symlink_metadata().is_ok() {
        return Ok(());
    }
    let length = source.metadata().map_err(CopyError::Read)?.len();
    let failed = |error| CopyError::Write {
        path: target.to_owned(),
        bytes: length,
        source: error,
    };
    let parent = target.parent().unwrap_or(Path::new("/"));
    let mut builder = fs::DirBuilder::new();
    let created = builder.recursive(true).mode(DIRECTORY_MODE).create(parent);
    created.map_err(failed)?;
    let (draft, path) = draft(target).map_err(failed)?;
    draft.set_len(length).map_err(failed)?;
    copy_data(source, &draft, length, &failed)?;
    draft.sync_all().map_err(failed)?;
    if source.metadata().map_err(CopyError::Read)?.len() != length {
        return Err(CopyError::Changed);
    }
    if draft.metadata().map_err(failed)?.len() != length {
        return Err(CopyError::Short {
            path: target.to_owned(),
        });
    }
    fs::rename(&path, target).map_err(failed)?;
    File::open(parent)
        .and_then(|directory| directory.sync_all())
        .map_err(failed)
}

/// Creates a temporary file beside the target, in dir of the leftover of a killed attempt.
fn draft(target: &Path) -> io::Result<(File, PathBuf)> {
    let mut name = std::ffi::OsString::from(".");
    name.push(target.file_name().unwrap_or_default());
    name.push(".part");
    let path = target.with_file_name(name);
    match fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut options = OpenOptions::new();
    let file = options
        .write(true)
        .create_new(true)
        .mode(FILE_MODE)
        .open(&path)?;
    Ok((file, path))
}

fn copy_data(
    source: &File,
    target: &File,
    length: u64,
    failed: &impl Fn(io::Error) -> CopyError,
) -> Result<(), CopyError> {
    let mut buffer = vec![0; CHUNK];
    let mut at = 0;
    while let Some((start, end)) = next_data(source, at, length).map_err(CopyError::Read)? {
        at = start;
        while at < end {
            let wanted = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
            let chunk = buffer.get_mut(..wanted).unwrap_or_default();
            match source.read_exact_at(chunk, at) {
                Ok(()) => {}
                Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => {
                    return Err(CopyError::Changed);
                }
                Err(error) => return Err(CopyError::Read(error)),
            }
            write_unless_zero(target, chunk, at).map_err(failed)?;
            at += chunk.len() as u64;
        }
    }
    Ok(())
}

/// The next range of the file that is not a hole.
fn next_data(file: &File, at: u64, length: u64) -> io::Result<Option<(u64, u64)>> {
    if at >= length {
        return Ok(None);
    }
    let start = match rustix::fs::seek(file, SeekFrom::Data(at)) {
        Ok(start) => start,
        Err(Errno::NXIO) => return Ok(None),
        // The file system does not support holes.
        Err(Errno::INVAL) => return Ok(Some((at, length))),
        Err(errno) => return Err(errno.into()),
    };
    if start >= length {
        return Ok(None);
    }
    let end = rustix::fs::seek(file, SeekFrom::Hole(start))?;
    Ok(Some((start, end.min(length))))
}

fn write_unless_zero(target: &File, chunk: &[u8], at: u64) -> io::Result<()> {
    let mut offset = at;
    for block in chunk.chunks(BLOCK) {
        if block.iter().any(|byte| *byte != 0) {
            target.write_all_at(block, offset)?;
        }
        offset += block.len() as u64;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::MetadataExt as _;

    use super::*;

    struct Dir(tempfile::TempDir);

    impl Dir {
        fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        fn path(&self, name: &str) -> PathBuf {
            self.0.path().join(name)
        }

        /// A file of this length with data at these offsets.
        fn disk(&self, length: u64, written: &[u64]) -> File {
            let file = File::create_new(self.path("disk")).unwrap();
            file.set_len(length).unwrap();
            for at in written {
                file.write_all_at(b"data", *at).unwrap();
            }
            File::open(self.path("disk")).unwrap()
        }
    }

    #[test]
    fn copy_has_the_same_bytes_and_holes() {
        let (chunk, block) = (CHUNK as u64, BLOCK as u64);
        let cases: [(u64, &[u64]); 6] = [
            (0, &[]),
            (5, &[1]),
            (64 * chunk, &[]),
            (64 * chunk, &[0, 9 * chunk + 7, 64 * chunk - 4]),
            (chunk + 1, &[chunk - 3]),
            (3 * block + 17, &[block - 2, 3 * block + 13]),
        ];
        for (length, written) in cases {
            let dir = Dir::new();
            let disk = dir.disk(length, written);
            let target = dir.path("to/disk_0/disk/any.img");
            copy(&disk, &target).unwrap();
            let same = fs::read(&target).unwrap() == fs::read(dir.path("disk")).unwrap();
            assert!(same, "{length} {written:?}");
            let metadata = fs::metadata(&target).unwrap();
            assert_eq!(metadata.mode() & 0o7777, FILE_MODE);
            let most = written.len() as u64 * 2 * block;
            assert!(metadata.blocks() * 512 <= most, "{length} {written:?}");
            let around = fs::read_dir(target.parent().unwrap()).unwrap();
            assert_eq!(around.count(), 1, "leftovers beside the copy");
        }
    }

    #[test]
    fn written_zeros_become_holes() {
        let dir = Dir::new();
        fs::write(dir.path("disk"), vec![0; 8 * CHUNK]).unwrap();
        let disk = File::open(dir.path("disk")).unwrap();
        copy(&disk, &dir.path("copy")).unwrap();
        let metadata = fs::metadata(dir.path("copy")).unwrap();
        assert_eq!((metadata.len(), metadata.blocks()), (8 << 20, 0));
    }

    #[test]
    fn leftover_of_a_killed_attempt_is_replaced() {
        let dir = Dir::new();
        let disk = dir.disk(9, &[2]);
        fs::write(dir.path(".copy.part"), "half of an earlier, longer disk").unwrap();
        copy(&disk, &dir.path("copy")).unwrap();
        assert_eq!(fs::read(dir.path("copy")).unwrap(), b"\0\0data\0\0\0");
        assert!(!dir.path(".copy.part").exists());
    }

    #[test]
    fn existing_copy_is_not_changed() {
        let dir = Dir::new();
        let disk = dir.disk(9, &[2]);
        fs::write(dir.path("copy"), "in use").unwrap();
        copy(&disk, &dir.path("copy")).unwrap();
        assert_eq!(fs::read(dir.path("copy")).unwrap(), b"in use");
    }

    #[test]
    fn failed_copy_leaves_no_file() {
        let dir = Dir::new();
        let disk = dir.disk(9, &[2]);
        fs::write(dir.path("file"), "").unwrap();
        let error = copy(&disk, &dir.path("file/copy")).unwrap_err();
        assert!(
            error.to_string().starts_with("write a copy of 9 bytes to "),
            "{error}"
        );
        assert!(dir.path("copy").symlink_metadata().is_err());
    }
}
