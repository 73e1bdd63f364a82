//! A container's output: two pipes into one log.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use error_chain::error_chain;

use super::Container;
use crate::{
    layout,
    log::{LogFile, Splitter, Stream},
    report::report,
};

#[derive(Debug)]
pub(super) struct Output {
    log: LogFile,
    stdout: Pipe,
    stderr: Pipe,
}

#[derive(Debug)]
struct Pipe {
    file: File,
    splitter: Splitter,
}

impl Container {
    /// The output pipes that are open.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (Stream, &File)> {
        self.output.iter().flat_map(|output| {
            [
                (Stream::Stdout, &output.stdout.file),
                (Stream::Stderr, &output.stderr.file),
            ]
        })
    }

    pub(crate) fn on_output(&mut self, stream: Stream) {
        let Some(output) = &mut self.output else {
            return;
        };
        let pipe = match stream {
            Stream::Stdout => &mut output.stdout,
            Stream::Stderr => &mut output.stderr,
        };
        let mut lines = Vec::new();
        pipe.read_some(&mut lines);
        if let Err(error) = output.log.append(&lines) {
            self.set_log_error(&error);
        }
    }

    /// Reads the rest of the output after the last writer has ended.
    pub(super) fn finish_output(&mut self) {
        let Some(mut output) = self.output.take() else {
            return;
        };
        for pipe in [&mut output.stdout, &mut output.stderr] {
            let mut lines = Vec::new();
            while pipe.read_some(&mut lines) {}
            pipe.splitter.finish(&mut lines);
            if let Err(error) = output.log.append(&lines) {
                self.set_log_error(&error);
            }
        }
    }

    pub(super) fn set_log_error(&mut self, error: &io::Error) {
        self.status
            .log_error
            .get_or_insert_with(|| error_chain(error));
    }
}

impl Pipe {
    fn open(path: &Path, stream: Stream) -> io::Result<Self> {
        let file = OpenOptions::new()
            .read(true)
            .custom_flags(libc::O_NONBLOCK | libc::O_CLOEXEC)
            .open(path)?;
        Ok(Self {
            file,
            splitter: Splitter::new(stream),
        })
    }

    /// Reads a part of the output. Returns whether there may be more.
    fn read_some(&mut self, lines: &mut Vec<u8>) -> bool {
        let mut buffer = [0; 16 * 1024];
        match self.file.read(&mut buffer) {
            Ok(count) if count > 0 => {
                self.splitter
                    .take(buffer.get(..count).unwrap_or_default(), lines);
                true
            }
            Err(error) => error.kind() == io::ErrorKind::Interrupted,
            Ok(_) => false,
        }
    }
}

impl Output {
    pub(super) fn open(name: &str, attempt: u32) -> io::Result<Self> {
        let dir = layout::attempt_dir(name, attempt);
        Ok(Self {
            log: LogFile::open(
                &layout::log_file(name, attempt),
                &layout::rotated_log_file(name, attempt),
            )?,
            stdout: Pipe::open(&dir.join("stdout"), Stream::Stdout)?,
            stderr: Pipe::open(&dir.join("stderr"), Stream::Stderr)?,
        })
    }
}

/// Removes the logs of attempts before the previous one.
pub(super) fn remove_old_logs(name: &str, attempt: u32) {
    if let Some(old) = attempt.checked_sub(2) {
        for file in [
            layout::log_file(name, old),
            layout::rotated_log_file(name, old),
        ] {
            match fs::remove_file(file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    report(&format!(
                        "failed to remove an old log: {}",
                        error_chain(&error)
                    ));
                }
                _ => {}
            }
        }
    }
}
