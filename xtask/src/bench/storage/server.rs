//! A web server of one file, with ranges.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, ErrorKind, Read as _, Seek as _, SeekFrom, Write as _},
    net::{Ipv4Addr, TcpListener, TcpStream},
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use anyhow::{Context as _, Result};

const MOST_LINES: usize = 100;
const LONGEST_LINE: u64 = 8192;

/// Serves on a port of all addresses until this process ends.
pub(super) fn serve(file: &Path) -> Result<u16> {
    let listener = TcpListener::bind((Ipv4Addr::UNSPECIFIED, 0)).context("find a port")?;
    let port = listener.local_addr()?.port();
    let file: Arc<PathBuf> = Arc::new(file.to_owned());
    thread::spawn(move || {
        for stream in listener.incoming().flatten() {
            let file = Arc::clone(&file);
            thread::spawn(move || {
                // The client sees a connection that ends early.
                drop(answer(&stream, &file));
            });
        }
    });
    Ok(port)
}

/// Answers requests of a connection until it ends.
fn answer(stream: &TcpStream, file: &Path) -> io::Result<()> {
    let mut reader = BufReader::new(stream);
    while let Some(request) = Request::read(&mut reader)? {
        let mut content = File::open(file)?;
        let size = content.metadata()?.len();
        let from = request.from.unwrap_or(0).min(size);
        let last = size.saturating_sub(1);
        let to = request.to.unwrap_or(last).min(last);
        let length = (to + 1).saturating_sub(from);
        let status = match request.from {
            None => "HTTP/1.1 200 OK\r\n".to_owned(),
            Some(_) => format!(
                "HTTP/1.1 206 Partial Content\r\nContent-Range: bytes {from}-{to}/{size}\r\n"
            ),
        };
        let mut out = stream;
        write!(
            out,
            "{status}Accept-Ranges: bytes\r\nETag: \"bench\"\r\nContent-Type: application/octet-stream\r\n\
             Content-Length: {length}\r\n\r\n"
        )?;
        if !request.is_head {
            content.seek(SeekFrom::Start(from))?;
            io::copy(&mut content.take(length), &mut out)?;
        }
    }
    Ok(())
}

#[derive(Debug, Default, PartialEq)]
struct Request {
    is_head: bool,
    from: Option<u64>,
    to: Option<u64>,
}

impl Request {
    /// The next one of a connection, if there is one.
    fn read(reader: &mut impl io::BufRead) -> io::Result<Option<Self>> {
        let mut request = Self::default();
        for number in 0..MOST_LINES {
            let mut line = String::new();
            let read = reader.by_ref().take(LONGEST_LINE).read_line(&mut line)?;
            let line = line.trim_end();
            match (number, line) {
                (0, _) if read == 0 => return Ok(None),
                (0, _) => request.is_head = line.starts_with("HEAD "),
                (_, "") => return Ok(Some(request)),
                _ => request.note(line),
            }
        }
        Err(ErrorKind::InvalidData.into())
    }

    fn note(&mut self, line: &str) {
        let Some((name, value)) = line.split_once(':') else {
            return;
        };
        if !name.eq_ignore_ascii_case("range") {
            return;
        }
        let range = value.trim().strip_prefix("bytes=").unwrap_or_default();
        if let Some((from, to)) = range.split_once('-') {
            self.from = from.parse().ok();
            self.to = to.parse().ok();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_have_a_range_or_none() {
        for (text, expected) in [
            ("", None),
            (
                "GET / HTTP/1.1\r\nHost: a\r\n\r\n",
                Some((false, None, None)),
            ),
            ("HEAD / HTTP/1.1\r\n\r\n", Some((true, None, None))),
            (
                "GET / HTTP/1.1\r\nRange: bytes=5-\r\n\r\n",
                Some((false, Some(5), None)),
            ),
            (
                "GET / HTTP/1.1\r\nrange: bytes=5-9\r\n\r\n",
                Some((false, Some(5), Some(9))),
            ),
        ] {
            let read = Request::read(&mut text.as_bytes()).unwrap();
            let expected = expected.map(|(is_head, from, to)| Request { is_head, from, to });
            assert_eq!(read, expected, "{text}");
        }
    }
}
