//! Container output in the kubelet's log format: time, stream, full or partial, text.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Seek as _, SeekFrom, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use crate::clock;

/// Longer lines are split into partial ones.
const LONGEST_LINE: usize = 16 * 1024;
/// The size of a log file, of which there are at most two.
const MAX_FILE: u64 = 10 << 20;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// Splits one stream into log lines, and keeps an incomplete line.
#[derive(Debug)]
pub(crate) struct Splitter {
    stream: Stream,
    pending: Vec<u8>,
}

impl Splitter {
    pub(crate) fn new(stream: Stream) -> Self {
        Self {
            stream,
            pending: Vec::new(),
        }
    }

    /// Appends every line that `bytes` completes to `out`.
    pub(crate) fn take(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let mut stamp = String::new();
        clock::append_rfc3339(&mut stamp, clock::now());
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, after) = rest.split_at(end);
            self.keep(line, &stamp, out);
            self.emit("F", &stamp, out);
            rest = after.get(1..).unwrap_or_default();
        }
        self.keep(rest, &stamp, out);
    }

    /// Appends the last line if it has no end.
    pub(crate) fn finish(&mut self, out: &mut Vec<u8>) {
        if !self.pending.is_empty() {
            let mut stamp = String::new();
            clock::append_rfc3339(&mut stamp, clock::now());
            self.emit("F", &stamp, out);
        }
    }

    fn keep(&mut self, mut bytes: &[u8], stamp: &str, out: &mut Vec<u8>) {
        while self.pending.len() + bytes.len() > LONGEST_LINE {
            let (now, later) = bytes.split_at(LONGEST_LINE - self.pending.len());
            self.pending.extend_from_slice(now);
            self.emit("P", stamp, out);
            bytes = later;
        }
        self.pending.extend_from_slice(bytes);
    }

    fn emit(&mut self, tag: &str, stamp: &str, out: &mut Vec<u8>) {
        for part in [stamp, " ", self.stream.name(), " ", tag, " "] {
            out.extend_from_slice(part.as_bytes());
        }
        out.append(&mut self.pending);
        out.push(b'\n');
    }
}

/// The log file of one attempt and its older half.
#[derive(Debug)]
pub(crate) struct LogFile {
    path: PathBuf,
    rotated: PathBuf,
    file: File,
    size: u64,
}

impl LogFile {
    pub(crate) fn open(path: &Path, rotated: &Path) -> io::Result<Self> {
        if let Some(dir) = path.parent() {
            fs::create_dir_all(dir)?;
        }
        let file = OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o640)
            .open(path)?;
        let size = file.metadata()?.len();
        Ok(Self {
            path: path.to_owned(),
            rotated: rotated.to_owned(),
            file,
            size,
        })
    }

    pub(crate) fn append(&mut self, lines: &[u8]) -> io::Result<()> {
        let more = u64::try_from(lines.len()).unwrap_or(u64::MAX);
        if self.size > 0 && self.size.saturating_add(more) > MAX_FILE {
            fs::rename(&self.path, &self.rotated)?;
            *self = Self::open(&self.path.clone(), &self.rotated.clone())?;
        }
        self.file.write_all(lines)?;
        self.size += more;
        Ok(())
    }
}

/// A kubelet's limits for the end of a log as a termination message.
const END_LINES: usize = 80;
const END_BYTES: usize = 2048;
/// Log lines have a head in addition to their text.
const END_READ: u64 = 64 << 10;

/// The last lines of a log, without their heads.
pub(crate) fn end_of(path: &Path) -> io::Result<String> {
    let mut file = match File::open(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(String::new()),
        other => other?,
    };
    let skipped = file.metadata()?.len().saturating_sub(END_READ);
    file.seek(SeekFrom::Start(skipped))?;
    let mut bytes = Vec::new();
    file.take(END_READ).read_to_end(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let mut lines: Vec<&str> = text.lines().collect();
    if skipped > 0 && !lines.is_empty() {
        // It may begin in the middle.
        lines.remove(0);
    }
    let mut end = String::new();
    for line in lines.split_at(lines.len().saturating_sub(END_LINES)).1 {
        let mut parts = line.splitn(4, ' ').skip(2);
        let (tag, body) = (parts.next(), parts.next().unwrap_or_default());
        end.push_str(body);
        if tag == Some("F") {
            end.push('\n');
        }
    }
    let surplus = end.len().saturating_sub(END_BYTES);
    let from = (surplus..=end.len()).find(|at| end.is_char_boundary(*at));
    Ok(end.split_off(from.unwrap_or_default()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_of_a_log_is_its_last_lines_within_limits() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("0.log");
        assert_eq!(end_of(&path).unwrap(), "");
        let check = |log: &str, expected: &str| {
            fs::write(&path, log).unwrap();
            assert_eq!(end_of(&path).unwrap(), expected);
        };
        check(
            "t stdout F one\nt stderr P tw\nt stderr F o\n",
            "one\ntwo\n",
        );
        let lines = |count: usize, text: &str| -> String {
            let lines = (0..count).map(|n| format!("t stdout F {n}{text}"));
            lines.collect::<Vec<_>>().join("\n") + "\n"
        };
        let short: Vec<String> = (20..100).map(|n| n.to_string()).collect();
        let short = short.join("\n") + "\n";
        check(&lines(100, ""), &short);
        let long = lines(3000, &"x".repeat(100));
        fs::write(&path, long).unwrap();
        let end = end_of(&path).unwrap();
        assert_eq!(end.len(), END_BYTES);
        assert!(end.ends_with(&format!("2999{}\n", "x".repeat(100))));
    }

    fn bodies(out: &[u8]) -> Vec<String> {
        String::from_utf8(out.to_vec())
            .unwrap()
            .lines()
            .map(|line| line.split_once(' ').unwrap().1.to_owned())
            .collect()
    }

    #[test]
    fn lines_are_joined_across_reads_and_the_last_may_be_incomplete() {
        let (mut splitter, mut out) = (Splitter::new(Stream::Stderr), Vec::new());
        splitter.take(b"one\ntw", &mut out);
        splitter.take(b"o\n\nlast", &mut out);
        splitter.finish(&mut out);
        assert_eq!(
            bodies(&out),
            ["stderr F one", "stderr F two", "stderr F ", "stderr F last"]
        );
    }

    #[test]
    fn long_lines_are_split_into_partial_ones() {
        let (mut splitter, mut out) = (Splitter::new(Stream::Stdout), Vec::new());
        splitter.take(&vec![b'x'; LONGEST_LINE + 5], &mut out);
        splitter.take(b"\n", &mut out);
        let bodies = bodies(&out);
        assert_eq!(bodies[0].len(), "stdout P ".len() + LONGEST_LINE);
        assert_eq!(bodies[1], "stdout F xxxxx");
    }

    #[test]
    fn log_is_bounded_to_two_files() {
        let dir = tempfile::tempdir().unwrap();
        let (path, rotated) = (dir.path().join("a/0.log"), dir.path().join("a/0.log.1"));
        let mut log = LogFile::open(&path, &rotated).unwrap();
        let chunk = vec![b'x'; 4 << 20];
        for _ in 0..7 {
            log.append(&chunk).unwrap();
        }
        assert_eq!(fs::metadata(&path).unwrap().len(), 4 << 20);
        assert_eq!(fs::metadata(&rotated).unwrap().len(), 8 << 20);
    }
}
