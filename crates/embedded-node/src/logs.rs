//! Selects and follows container logs, which supervisors write.

use std::{
    collections::VecDeque,
    fs, io,
    path::{Path, PathBuf},
};

use jiff::Timestamp;
use serde::Deserialize;

/// The query parameters of a log request.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(crate) struct Query {
    pub(crate) follow: bool,
    pub(crate) previous: bool,
    pub(crate) timestamps: bool,
    pub(crate) tail_lines: Option<usize>,
    pub(crate) since_seconds: Option<i64>,
    pub(crate) since_time: Option<Timestamp>,
    pub(crate) limit_bytes: Option<usize>,
}

/// Renders the log lines of one request up to its limits.
#[derive(Debug)]
pub(crate) struct Selector {
    timestamps: bool,
    since: Option<Timestamp>,
    tail: Option<usize>,
    bytes_left: Option<usize>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Line<'a> {
    time: &'a str,
    partial: bool,
    text: &'a str,
}

impl Selector {
    pub(crate) fn new(query: &Query, now: Timestamp) -> Self {
        let ago = query.since_seconds.map(jiff::SignedDuration::from_secs);
        let since = ago
            .and_then(|ago| now.checked_sub(ago).ok())
            .or(query.since_time);
        Self {
            timestamps: query.timestamps,
            since,
            tail: query.tail_lines,
            bytes_left: query.limit_bytes,
        }
    }

    pub(crate) fn is_full(&self) -> bool {
        self.bytes_left == Some(0)
    }

    /// Renders the existing log; `tailLines` applies only here.
    pub(crate) fn first(&mut self, whole: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(whole);
        let mut lines: VecDeque<Line<'_>> = VecDeque::new();
        let mut complete = 0;
        for line in text
            .lines()
            .filter_map(parse)
            .filter(|line| self.is_recent(line))
        {
            complete += usize::from(!line.partial);
            lines.push_back(line);
            while self.tail.is_some_and(|tail| complete > tail) {
                let Some(dropped) = lines.pop_front() else {
                    break;
                };
                complete -= usize::from(!dropped.partial);
            }
        }
        if self.tail == Some(0) {
            lines.clear();
        }
        let out = lines
            .iter()
            .fold(Vec::new(), |out, line| self.append(out, line));
        self.cut(out)
    }

    /// Renders lines written later.
    pub(crate) fn more(&mut self, whole_lines: &[u8]) -> Vec<u8> {
        let text = String::from_utf8_lossy(whole_lines);
        let lines = text.lines().filter_map(parse);
        let out = lines.fold(Vec::new(), |out, line| self.append(out, &line));
        self.cut(out)
    }

    fn is_recent(&self, line: &Line<'_>) -> bool {
        self.since
            .is_none_or(|since| line.time.parse().is_ok_and(|time: Timestamp| time >= since))
    }

    fn append(&self, mut out: Vec<u8>, line: &Line<'_>) -> Vec<u8> {
        // A long line is stored in parts, which are joined again.
        let fresh = out.last().is_none_or(|byte| *byte == b'\n');
        if self.timestamps && fresh {
            out.extend_from_slice(line.time.as_bytes());
            out.push(b' ');
        }
        out.extend_from_slice(line.text.as_bytes());
        if !line.partial {
            out.push(b'\n');
        }
        out
    }

    fn cut(&mut self, mut out: Vec<u8>) -> Vec<u8> {
        if let Some(left) = &mut self.bytes_left {
            out.truncate(*left);
            *left -= out.len();
        }
        out
    }
}

fn parse(line: &str) -> Option<Line<'_>> {
    let mut parts = line.splitn(4, ' ');
    let (time, _stream, tag) = (parts.next()?, parts.next()?, parts.next()?);
    Some(Line {
        time,
        partial: tag == "P",
        text: parts.next().unwrap_or_default(),
    })
}

/// A log on disk that may grow and rotate while it is read.
#[derive(Debug)]
pub(crate) struct Tail {
    path: PathBuf,
    rotated: PathBuf,
    read: u64,
    inode: u64,
}

impl Tail {
    pub(crate) fn new(path: PathBuf, rotated: PathBuf) -> Self {
        Self {
            path,
            rotated,
            read: 0,
            inode: 0,
        }
    }

    /// The whole log, the rotated part first.
    pub(crate) fn all(&mut self) -> io::Result<Vec<u8>> {
        let mut bytes = read(&self.rotated)?;
        bytes.extend(self.next()?);
        Ok(bytes)
    }

    /// Whole lines written since the last call.
    pub(crate) fn next(&mut self) -> io::Result<Vec<u8>> {
        use std::os::unix::fs::MetadataExt as _;
        let mut bytes = Vec::new();
        let inode = match fs::metadata(&self.path) {
            Ok(metadata) => metadata.ino(),
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(bytes),
            Err(error) => return Err(error),
        };
        if self.inode != 0 && inode != self.inode {
            bytes = after(&self.rotated, self.read)?;
            self.read = 0;
        }
        self.inode = inode;
        let fresh = after(&self.path, self.read)?;
        let whole = fresh
            .iter()
            .rposition(|byte| *byte == b'\n')
            .map_or(0, |at| at + 1);
        self.read += u64::try_from(whole).unwrap_or(0);
        bytes.extend_from_slice(fresh.get(..whole).unwrap_or_default());
        Ok(bytes)
    }
}

fn after(path: &Path, offset: u64) -> io::Result<Vec<u8>> {
    use std::io::{Read as _, Seek as _};
    let mut bytes = Vec::new();
    let mut file = fs::File::open(path)?;
    file.seek(io::SeekFrom::Start(offset))?;
    file.read_to_end(&mut bytes)?;
    Ok(bytes)
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    match fs::read(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "1970-01-01T00:00:01Z stdout F one\n\
                       1970-01-01T00:00:02Z stderr F two\n\
                       1970-01-01T00:00:03Z stdout P thr\n\
                       1970-01-01T00:00:03Z stdout F ee\n";

    fn select(query: &Query) -> String {
        let now = Timestamp::from_second(4).unwrap();
        String::from_utf8(Selector::new(query, now).first(LOG.as_bytes())).unwrap()
    }

    #[test]
    fn lines_are_selected_and_rendered() {
        let none = Query::default;
        for (query, expected) in [
            (none(), "one\ntwo\nthree\n"),
            (
                Query {
                    tail_lines: Some(1),
                    ..none()
                },
                "three\n",
            ),
            (
                Query {
                    tail_lines: Some(2),
                    ..none()
                },
                "two\nthree\n",
            ),
            (
                Query {
                    tail_lines: Some(0),
                    ..none()
                },
                "",
            ),
            (
                Query {
                    since_seconds: Some(2),
                    ..none()
                },
                "two\nthree\n",
            ),
            (
                Query {
                    limit_bytes: Some(5),
                    ..none()
                },
                "one\nt",
            ),
            (
                Query {
                    timestamps: true,
                    tail_lines: Some(1),
                    ..none()
                },
                "1970-01-01T00:00:03Z three\n",
            ),
        ] {
            assert_eq!(select(&query), expected, "{query:?}");
        }
    }

    #[test]
    fn growing_and_rotated_log_is_read_once() {
        let dir = tempfile::tempdir().unwrap();
        let (path, rotated) = (dir.path().join("0.log"), dir.path().join("0.log.1"));
        let mut tail = Tail::new(path.clone(), rotated.clone());
        assert_eq!(tail.all().unwrap(), b"");
        fs::write(&path, "a\nb").unwrap();
        assert_eq!(tail.next().unwrap(), b"a\n");
        fs::write(&path, "a\nb\n").unwrap();
        fs::rename(&path, &rotated).unwrap();
        fs::write(&path, "c\n").unwrap();
        assert_eq!(tail.next().unwrap(), b"b\nc\n");
        assert_eq!(tail.next().unwrap(), b"");
    }
}
