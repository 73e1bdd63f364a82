//! A disk as raw bytes and compressed. Holes are not read.

use std::fs::File;
use std::io::{self, Write as _};
use std::ops::Range;
use std::os::unix::fs::{FileExt as _, FileTypeExt as _, MetadataExt as _};

use bytes::{Bytes, BytesMut};
use flate2::{Compression, write::GzEncoder};
use rustix::fs::SeekFrom;
use rustix::io::Errno;

use crate::body::{CHUNK, Pieces, Sender};

static ZEROS: [u8; CHUNK] = [0; CHUNK];
/// Holes of this length have a compressed form that is made once. A compressed file may consist of several parts.
const LONG_HOLE: u64 = 16 << 20;

/// An open file or device that is served.
#[derive(Debug)]
pub(crate) struct Disk {
    file: File,
    pub(crate) length: u64,
    /// Changes with the contents.
    pub(crate) tag: String,
}

/// A part of a disk of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Extent {
    Data(u64),
    Hole(u64),
}

impl Disk {
    /// `run` tells apart the versions of devices, which do not show their last change.
    pub(crate) fn of(file: File, run: &str) -> io::Result<Self> {
        let metadata = file.metadata()?;
        let is_device = metadata.file_type().is_block_device();
        let length = if is_device {
            rustix::fs::seek(&file, SeekFrom::End(0))?
        } else {
            metadata.len()
        };
        let tag = if is_device {
            format!("\"{length:x}-{run}\"")
        } else {
            let (seconds, nanos) = (metadata.mtime(), metadata.mtime_nsec());
            format!("\"{length:x}-{:x}-{seconds:x}.{nanos:x}\"", metadata.ino())
        };
        Ok(Self { file, length, tag })
    }

    /// Sends a part of the disk.
    pub(crate) fn send(&self, part: Range<u64>, to: &Sender) -> io::Result<()> {
        self.pieces(part, |piece| match piece {
            Piece::Data(bytes) => to.send(bytes),
            Piece::Hole(length) => zeros(length, |zeros| to.send(Bytes::from_static(zeros))),
        })
    }

    /// Sends the whole disk compressed.
    pub(crate) fn send_compressed(&self, to: &Sender) -> io::Result<()> {
        let mut hole = None;
        let mut encoder = GzEncoder::new(Pieces::new(to), Compression::fast());
        self.pieces(0..self.length, |piece| match piece {
            Piece::Data(bytes) => encoder.write_all(&bytes),
            Piece::Hole(length) => {
                let mut left = length;
                while left >= LONG_HOLE {
                    let packed = match &hole {
                        Some(packed) => packed,
                        None => hole.insert(packed_hole()?),
                    };
                    encoder.try_finish()?;
                    encoder.get_mut().write_all(packed)?;
                    let pieces = std::mem::replace(encoder.get_mut(), Pieces::new(to));
                    encoder = GzEncoder::new(pieces, Compression::fast());
                    left -= LONG_HOLE;
                }
                zeros(left, |zeros| encoder.write_all(zeros))
            }
        })?;
        encoder.finish()?.flush()
    }

    fn pieces(
        &self,
        part: Range<u64>,
        mut each: impl FnMut(Piece) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut at = part.start;
        while at < part.end {
            match self.extent(at)? {
                Extent::Hole(end) => {
                    let end = end.min(part.end);
                    each(Piece::Hole(end - at))?;
                    at = end;
                }
                Extent::Data(end) => {
                    let end = end.min(part.end);
                    while at < end {
                        let length = usize::try_from(end - at).unwrap_or(CHUNK).min(CHUNK);
                        let mut bytes = BytesMut::zeroed(length);
                        self.file.read_exact_at(&mut bytes, at)?;
                        each(Piece::Data(bytes.freeze()))?;
                        at += u64::try_from(length).unwrap_or_default();
                    }
                }
            }
        }
        Ok(())
    }

    /// The part that begins there, with its end. A file system that knows no holes has data only.
    fn extent(&self, at: u64) -> io::Result<Extent> {
        match rustix::fs::seek(&self.file, SeekFrom::Data(at)) {
            Ok(data) if data > at => Ok(Extent::Hole(data)),
            Ok(_) => match rustix::fs::seek(&self.file, SeekFrom::Hole(at)) {
                Ok(hole) if hole > at => Ok(Extent::Data(hole)),
                Ok(_) | Err(_) => Ok(Extent::Data(self.length)),
            },
            // No data follows, unless the file has become shorter.
            Err(Errno::NXIO) if self.file.metadata()?.len() >= self.length => {
                Ok(Extent::Hole(self.length))
            }
            Err(_) => Ok(Extent::Data(self.length)),
        }
    }
}

enum Piece {
    Data(Bytes),
    Hole(u64),
}

fn zeros(length: u64, mut each: impl FnMut(&'static [u8]) -> io::Result<()>) -> io::Result<()> {
    let mut left = length;
    while left > 0 {
        let piece = usize::try_from(left).unwrap_or(CHUNK).min(CHUNK);
        each(ZEROS.get(..piece).unwrap_or_default())?;
        left -= u64::try_from(piece).unwrap_or(left);
    }
    Ok(())
}

/// A long hole as a compressed file of its own.
fn packed_hole() -> io::Result<Vec<u8>> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    zeros(LONG_HOLE, |zeros| encoder.write_all(zeros))?;
    encoder.finish()
}
