//! The files of a volume: as a list with links, and as one archive.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use flate2::{Compression, write::GzEncoder};
use rustix::fs::{AtFlags, Dir, FileType, Stat};
use tar::{Builder, EntryType, Header};

use crate::body::{Pieces, Sender};
use crate::route::encode;
use crate::volume::open_in;

/// File systems put what they find after a crash there; it is not part of the data of the volume.
const LEFT_OUT: &str = "lost+found";
/// Directories that wait for their turn; a volume with more at once is not archived.
const MOST_DIRECTORIES: usize = 100_000;

/// Sends a page with links to what the directory contains.
pub(crate) fn send_list(directory: &File, to: &Sender) -> io::Result<()> {
    let mut page = Pieces::new(to);
    page.write_all(b"<!doctype html>\n<meta charset=\"utf-8\">\n<pre>\n")?;
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name = entry.file_name().to_bytes();
        if matches!(name, b"." | b"..") {
            continue;
        }
        let mark = match entry.file_type() {
            FileType::Directory => "/",
            _ => "",
        };
        let (address, shown) = (encode(name), escape(name));
        page.write_all(format!("<a href=\"./{address}{mark}\">{shown}{mark}</a>\n").as_bytes())?;
    }
    page.write_all(b"</pre>\n")?;
    page.flush()
}

/// The name for a page.
fn escape(name: &[u8]) -> String {
    let mut text = String::new();
    for one in String::from_utf8_lossy(name).chars() {
        match one {
            '<' | '>' | '&' | '"' | '\'' => {
                // A string takes any text.
                let _written = write!(text, "&#{};", u32::from(one)).is_ok();
            }
            one if one.is_control() => text.push('\u{fffd}'),
            one => text.push(one),
        }
    }
    text
}

/// Sends all files, directories and symbolic links.
pub(crate) fn send_archive(root: &OwnedFd, to: &Sender) -> io::Result<()> {
    let packed = GzEncoder::new(Pieces::new(to), Compression::fast());
    let mut archive = Builder::new(packed);
    let mut waiting = vec![PathBuf::new()];
    while let Some(path) = waiting.pop() {
        let below = directory(root, &path)?;
        for entry in Dir::read_from(&below)? {
            let entry = entry?;
            let name = OsStr::from_bytes(entry.file_name().to_bytes());
            let is_left_out = path.as_os_str().is_empty() && name == LEFT_OUT;
            if name == "." || name == ".." || is_left_out {
                continue;
            }
            let inner = path.join(name);
            if add(&mut archive, &below, &inner, name)? == EntryType::Directory {
                if waiting.len() >= MOST_DIRECTORIES {
                    return Err(io::Error::other("the volume has too many directories"));
                }
                waiting.push(inner);
            }
        }
    }
    archive.into_inner()?.finish()?.flush()
}

fn directory(root: &OwnedFd, path: &Path) -> io::Result<File> {
    if path.as_os_str().is_empty() {
        open_in(root, Path::new("."))
    } else {
        open_in(root, path)
    }
}

/// Adds one entry, and returns its type. Sockets, pipes and devices are left out.
fn add(
    archive: &mut Builder<impl Write>,
    directory: &File,
    path: &Path,
    name: &OsStr,
) -> io::Result<EntryType> {
    let found = rustix::fs::statat(directory.as_fd(), name, AtFlags::SYMLINK_NOFOLLOW)?;
    match FileType::from_raw_mode(found.st_mode) {
        FileType::Directory => {
            let mut header = header(&found, EntryType::Directory);
            archive.append_data(&mut header, path, io::empty())?;
            Ok(EntryType::Directory)
        }
        FileType::Symlink => {
            let target = rustix::fs::readlinkat(directory.as_fd(), name, Vec::new())?;
            let mut header = header(&found, EntryType::Symlink);
            archive.append_link(&mut header, path, OsStr::from_bytes(target.as_bytes()))?;
            Ok(EntryType::Symlink)
        }
        FileType::RegularFile => {
            let file = open_in(directory, Path::new(name))?;
            let found = rustix::fs::fstat(&file)?;
            let mut header = header(&found, EntryType::Regular);
            let left = u64::try_from(found.st_size).unwrap_or_default();
            header.set_size(left);
            archive.append_data(&mut header, path, Exactly { file, left })?;
            Ok(EntryType::Regular)
        }
        _ => Ok(EntryType::Fifo),
    }
}

fn header(found: &Stat, kind: EntryType) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_mode(found.st_mode & 0o7777);
    header.set_uid(found.st_uid.into());
    header.set_gid(found.st_gid.into());
    header.set_mtime(u64::try_from(found.st_mtime).unwrap_or_default());
    header.set_size(0);
    header
}

/// A file of the announced length; one that has become shorter is an error, as it would spoil the archive.
struct Exactly {
    file: File,
    left: u64,
}

impl Read for Exactly {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX);
        let room = buffer.len().min(most);
        let Some(buffer) = buffer.get_mut(..room).filter(|it| !it.is_empty()) else {
            return Ok(0);
        };
        let read = self.file.read(buffer)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.left -= u64::try_from(read).unwrap_or(self.left);
        Ok(read)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_change_the_page() {
        assert_eq!(escape(b"a<b>&\"'"), "a&#60;b&#62;&#38;&#34;&#39;");
        assert_eq!(escape(b"a\n\xff"), "a\u{fffd}\u{fffd}");
    }
}
