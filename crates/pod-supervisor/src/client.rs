//! A blocking client of the control socket, for tools and tests; the node has its own.

use std::{
    fs::File,
    io::{self, BufRead as _, BufReader, Read as _, Write as _},
    os::{fd::AsRawFd as _, unix::net::UnixStream},
    path::Path,
    time::Duration,
};

use crate::{
    layout,
    protocol::{MAX_LINE, Reply, Request},
    status::PodStatus,
};

#[derive(Debug)]
pub struct Client {
    stream: BufReader<UnixStream>,
}

impl Client {
    /// Connects to the supervisor of the pod in `pod_dir`.
    pub fn connect(pod_dir: &Path) -> io::Result<Self> {
        // A socket address is limited to about 100 bytes; the path may be longer.
        let dir = File::open(pod_dir)?;
        let path = format!(
            "/proc/self/fd/{}/{}",
            dir.as_raw_fd(),
            layout::CONTROL_SOCKET
        );
        let stream = UnixStream::connect(path)?;
        stream.set_read_timeout(Some(Duration::from_mins(1)))?;
        Ok(Self {
            stream: BufReader::new(stream),
        })
    }

    pub fn call(&mut self, request: &Request) -> io::Result<Reply> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line)?;
        self.next_reply()
    }

    /// The next line of a subscribed connection.
    pub fn next_reply(&mut self) -> io::Result<Reply> {
        let mut line = String::new();
        let bound = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        if (&mut self.stream).take(bound).read_line(&mut line)? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        Ok(serde_json::from_str(&line)?)
    }

    pub fn status(&mut self) -> io::Result<PodStatus> {
        match self.call(&Request::Status)? {
            Reply::Status(status) => Ok(status),
            other => Err(io::Error::other(format!("unexpected reply {other:?}"))),
        }
    }

    /// Stops the pod and returns when the supervisor has exited.
    pub fn shut_down(mut self, grace: Duration) -> io::Result<()> {
        let grace_ms = u64::try_from(grace.as_millis()).unwrap_or(u64::MAX);
        self.call(&Request::Shutdown {
            grace_ms,
            held: Vec::new(),
        })?;
        self.stream
            .get_mut()
            .set_read_timeout(Some(grace + Duration::from_secs(30)))?;
        while !matches!(self.next_reply(), Err(error) if error.kind() == io::ErrorKind::UnexpectedEof)
        {
        }
        Ok(())
    }
}
