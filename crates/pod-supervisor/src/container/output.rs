//! A container's output: two pipes into one log.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
};

use error_chain::error_chain;
use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::Container;
use crate::{
    clock, layout,
    log::{LogFile, Splitter, Stream},
    model::Terminal,
    report::report,
    status::State,
};

/// How long the process that keeps a terminal may take for the rest of the output; it usually takes milliseconds.
const LAST_OUTPUT_MS: i64 = 1000;

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
    /// No program has the other end any more, and none can open it: the container does not see the pipe's file.
    is_closed: bool,
}

impl Container {
    /// The output pipes that are open.
    pub(crate) fn outputs(&self) -> impl Iterator<Item = (Stream, &File)> {
        self.output.iter().flat_map(|output| {
            let both = [
                (Stream::Stdout, &output.stdout),
                (Stream::Stderr, &output.stderr),
            ];
            let open = both.into_iter().filter(|(_, pipe)| !pipe.is_closed);
            open.map(|(stream, pipe)| (stream, &pipe.file))
        })
    }

    /// The program has closed this standard stream while it runs, and has no output left there.
    pub(crate) fn on_output_closed(&mut self, stream: Stream) {
        if let Some(output) = &mut self.output {
            output.pipe(stream).is_closed = true;
        }
    }

    pub(crate) fn on_output(&mut self, stream: Stream) {
        let Some(output) = &mut self.output else {
            return;
        };
        let mut lines = Vec::new();
        output.pipe(stream).read_some(&mut lines);
        if let Err(error) = output.log.append(&lines) {
            self.set_log_error(&error);
        }
    }

    /// Reads the rest of the output after the last writer has ended.
    pub(super) fn finish_output(&mut self) {
        let Some(mut output) = self.output.take() else {
            return;
        };
        let has_run = matches!(self.status.state, State::Running { .. });
        if self.terminal == Terminal::Own
            && has_run
            && let Err(error) = output.wait_for_last()
        {
            self.set_log_error(&error);
        }
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
            is_closed: false,
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
    fn pipe(&mut self, stream: Stream) -> &mut Pipe {
        match stream {
            Stream::Stdout => &mut self.stdout,
            Stream::Stderr => &mut self.stderr,
        }
    }

    /// Reads until the process that keeps the terminal has ended.
    fn wait_for_last(&mut self) -> io::Result<()> {
        let until = clock::steady_ms() + LAST_OUTPUT_MS;
        loop {
            let left = until - clock::steady_ms();
            if left <= 0 {
                return Ok(());
            }
            let left = Timespec {
                tv_sec: left / 1000,
                tv_nsec: left % 1000 * 1_000_000,
            };
            let mut ready = [PollFd::new(&self.stdout.file, PollFlags::IN)];
            match poll(&mut ready, Some(&left)) {
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(errno) => return Err(errno.into()),
            }
            let [ready] = ready.map(|one| one.revents());
            let mut lines = Vec::new();
            while self.stdout.read_some(&mut lines) {}
            self.log.append(&lines)?;
            if ready.contains(PollFlags::HUP) {
                return Ok(());
            }
        }
    }

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
