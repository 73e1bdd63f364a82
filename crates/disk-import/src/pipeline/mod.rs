//! The way of a file's bytes to the disk: checksum, decompression, detection, disk or scratch space.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::PathBuf;

use crate::checksum::Summing;
use crate::convert::Converter;
use crate::decompress::{Compression, Decompressor, MAGIC_LENGTH};
use crate::detect::{HEAD, Image};
use crate::disk::{Disk, Place};
use crate::error::io_failed;
use crate::fetch::Sink;
use crate::progress::Progress;
use crate::{Checksum, ImportError, qcow2};

/// What a scratch file may have beyond the size of the disk: tables of its format.
const SCRATCH_EXTRA: u64 = 64 << 20;
const SCRATCH: &str = "image";

/// What the bytes of a file are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Content {
    /// An image whose compression and format its first bytes tell.
    Image,
    /// Those of the disk. The first ones are a guest's, and tell nothing.
    Disk,
}

/// Where an import leads, and with what help.
#[derive(Debug, Clone)]
pub(crate) struct Import {
    pub(crate) place: Place,
    pub(crate) content: Content,
    /// A directory for images that must be converted.
    pub(crate) scratch: PathBuf,
    pub(crate) checksum: Option<Checksum>,
    pub(crate) converter: Converter,
}

/// Takes the bytes of a file, and fills the disk.
pub(crate) struct Pipeline {
    import: Import,
    room: u64,
    state: State,
    received: u64,
    progress: Progress,
}

struct State {
    summing: Summing,
    input: Input,
}

enum Input {
    /// The first bytes, until the compression is known.
    Head(Vec<u8>),
    Stream(Compression, Box<Decompressor<Stage>>),
    /// After an error; nothing more is accepted.
    Broken,
}

/// Behind the decompression.
struct Stage {
    import: Import,
    room: u64,
    output: Output,
}

enum Output {
    /// The first bytes of the image, until its format is known.
    Head(Vec<u8>),
    Disk(Disk),
    Scratch {
        format: &'static str,
        file: File,
        path: PathBuf,
        length: u64,
    },
    /// After an error: decoders write what they have left when they are dropped.
    Closed,
}

impl Pipeline {
    pub(crate) fn new(import: Import) -> Result<Self, ImportError> {
        let room = import.place.room()?;
        let state = State::new(import.checksum.clone());
        Ok(Self {
            import,
            room,
            state,
            received: 0,
            progress: Progress::default(),
        })
    }

    /// Completes the disk and returns its size.
    pub(crate) fn finish(mut self) -> Result<u64, ImportError> {
        let state = std::mem::replace(&mut self.state, State::broken());
        // Of wrong bytes nothing is looked at any more.
        state.summing.check()?;
        let (compression, stream) = match state.input {
            Input::Head(head) => self.begin(&head)?,
            Input::Stream(compression, stream) => (compression, stream),
            Input::Broken => return Err(ImportError::Empty),
        };
        let stage = stream.finish();
        stage.map_err(|error| failure(compression, error))?.finish()
    }

    fn begin(&self, head: &[u8]) -> Result<(Compression, Box<Decompressor<Stage>>), ImportError> {
        let compression = match self.import.content {
            Content::Image => Compression::of(head),
            Content::Disk => Compression::None,
        };
        let stage = Stage {
            import: self.import.clone(),
            room: self.room,
            output: Output::Head(Vec::new()),
        };
        let stream = Decompressor::new(compression, stage);
        let mut stream = stream.map_err(|error| failure(compression, error))?;
        let pushed = stream.push(head);
        pushed.map_err(|error| failure(compression, error))?;
        Ok((compression, Box::new(stream)))
    }

    fn take(&mut self, bytes: &[u8], total: Option<u64>) -> Result<(), ImportError> {
        self.state.summing.update(bytes);
        let input = std::mem::replace(&mut self.state.input, Input::Broken);
        let (compression, stream) = match input {
            Input::Head(mut head) => {
                head.extend_from_slice(bytes);
                if head.len() < MAGIC_LENGTH {
                    self.state.input = Input::Head(head);
                    return Ok(());
                }
                self.begin(&head)?
            }
            Input::Stream(compression, mut stream) => {
                let pushed = stream.push(bytes);
                pushed.map_err(|error| failure(compression, error))?;
                (compression, stream)
            }
            Input::Broken => return Err(ImportError::Empty),
        };
        if let Some(total) = total {
            check_length(&stream, total, self.room)?;
        }
        self.state.input = Input::Stream(compression, stream);
        Ok(())
    }
}

impl Sink for Pipeline {
    fn reset(&mut self) -> Result<(), ImportError> {
        self.state = State::new(self.import.checksum.clone());
        self.received = 0;
        Ok(())
    }

    fn push(&mut self, bytes: &[u8], total: Option<u64>) -> Result<(), ImportError> {
        self.take(bytes, total)?;
        self.received += bytes.len() as u64;
        self.progress.show(self.received, total);
        Ok(())
    }
}

impl State {
    fn new(checksum: Option<Checksum>) -> Self {
        Self {
            summing: Summing::new(checksum),
            input: Input::Head(Vec::new()),
        }
    }

    fn broken() -> Self {
        Self {
            summing: Summing::new(None),
            input: Input::Broken,
        }
    }
}

/// Fails before the file was read, if its length alone is too much.
fn check_length(stream: &Decompressor<Stage>, total: u64, room: u64) -> Result<(), ImportError> {
    let Decompressor::None(stage) = stream else {
        return Ok(());
    };
    match &stage.output {
        Output::Disk(disk) => disk.check(total),
        _ if total > scratch_limit(room) => Err(ImportError::TooLong { room }),
        _ => Ok(()),
    }
}

/// What a stage behind the decompression reported, or else the decompression itself.
fn failure(compression: Compression, error: io::Error) -> ImportError {
    match error.downcast::<ImportError>() {
        Ok(failure) => failure,
        Err(source) => ImportError::Compression {
            format: compression.name(),
            source,
        },
    }
}

fn scratch_limit(room: u64) -> u64 {
    room.saturating_add(room / 8).saturating_add(SCRATCH_EXTRA)
}

impl Stage {
    fn take(&mut self, bytes: &[u8]) -> Result<(), ImportError> {
        match &mut self.output {
            Output::Head(head) => {
                head.extend_from_slice(bytes);
                if head.len() < HEAD {
                    return Ok(());
                }
                let head = std::mem::take(head);
                self.decide(&head)
            }
            Output::Disk(disk) => disk.write(bytes),
            Output::Scratch { file, length, .. } => {
                *length += bytes.len() as u64;
                if *length > scratch_limit(self.room) {
                    return Err(ImportError::TooLong { room: self.room });
                }
                let failed = io_failed("write scratch space");
                file.write_all(bytes).map_err(failed)
            }
            Output::Closed => Err(ImportError::Empty),
        }
    }

    /// Chooses the output by the first bytes, and gives them to it.
    fn decide(&mut self, head: &[u8]) -> Result<(), ImportError> {
        let image = match self.import.content {
            Content::Image => Image::detect(head)?,
            Content::Disk if head.is_empty() => return Err(ImportError::Empty),
            Content::Disk => Image::Raw,
        };
        self.output = match image {
            Image::Raw => Output::Disk(Disk::create(&self.import.place, self.room)?),
            Image::Other(format) => {
                let path = self.import.scratch.join(SCRATCH);
                let file = File::create(&path).map_err(io_failed("create scratch space"))?;
                Output::Scratch {
                    format,
                    file,
                    path,
                    length: 0,
                }
            }
        };
        self.take(head)
    }

    fn finish(mut self) -> Result<u64, ImportError> {
        if let Output::Head(head) = &mut self.output {
            let head = std::mem::take(head);
            self.decide(&head)?;
        }
        match self.output {
            Output::Disk(disk) => disk.finish(),
            Output::Scratch { format, path, .. } => {
                if format == "qcow2" {
                    let file = File::open(&path).map_err(io_failed("read scratch space"))?;
                    qcow2::check_complete(&file)?;
                }
                let mut disk = Disk::create(&self.import.place, self.room)?;
                self.import.converter.convert(format, &path, &mut disk)?;
                let size = disk.finish()?;
                fs::remove_file(&path).map_err(io_failed("remove scratch space"))?;
                Ok(size)
            }
            Output::Head(_) | Output::Closed => Err(ImportError::Empty),
        }
    }
}

impl Write for Stage {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self.take(bytes) {
            Ok(()) => Ok(bytes.len()),
            Err(error) => {
                self.output = Output::Closed;
                Err(io::Error::other(error))
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests;
