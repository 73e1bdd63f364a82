//! Connections to pod supervisors: starts them, sends requests, follows their status.

use std::{
    fs::File,
    io,
    os::fd::AsRawFd as _,
    path::{Path, PathBuf},
    process::Stdio,
    time::Duration,
};

use pod_supervisor::{
    layout,
    protocol::{Greeting, MAX_LINE, Reply, Request},
    status::PodStatus,
};
use reasons::Reason;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::UnixStream,
    process::Command,
    time::timeout,
};
use tokio_util::task::TaskTracker;

use crate::{
    Failure,
    metrics::{SUPERVISOR_STARTS, SUPERVISORS},
};

/// A supervisor responds in microseconds and starts in milliseconds; a loaded host may take longer.
const TIMEOUT: Duration = Duration::from_secs(20);
const FAILED: Reason = Reason::FailedCreatePodSandBox;

/// A subscribed connection.
#[derive(Debug)]
pub(crate) struct Link {
    stream: BufReader<UnixStream>,
    /// The partial line, kept when a read is cancelled.
    line: Vec<u8>,
    /// In the metric of connected supervisors.
    _counted: metrics::Held,
}

impl Link {
    /// Connects to the running supervisor of the pod and receives its status.
    pub(crate) async fn open(pod_dir: &Path) -> io::Result<(Self, PodStatus)> {
        let stream = BufReader::new(connect(pod_dir).await?);
        let mut link = Self {
            stream,
            line: Vec::new(),
            _counted: SUPERVISORS.hold([]),
        };
        link.send(&Request::Subscribe).await?;
        let status = timeout(TIMEOUT, link.next()).await??;
        Ok((link, status))
    }

    async fn send(&mut self, request: &Request) -> io::Result<()> {
        let mut line = serde_json::to_vec(request)?;
        line.push(b'\n');
        self.stream.get_mut().write_all(&line).await
    }

    /// The next status. Cancel-safe.
    pub(crate) async fn next(&mut self) -> io::Result<PodStatus> {
        match self.next_reply().await? {
            Reply::Status(status) => Ok(status),
            other => Err(io::Error::other(format!("unexpected reply {other:?}"))),
        }
    }

    async fn next_reply(&mut self) -> io::Result<Reply> {
        let bound = u64::try_from(MAX_LINE).unwrap_or(u64::MAX);
        let read = (&mut self.stream)
            .take(bound)
            .read_until(b'\n', &mut self.line)
            .await?;
        if read == 0 || self.line.len() > MAX_LINE {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        let reply = serde_json::from_slice(&self.line);
        self.line.clear();
        Ok(reply?)
    }
}

async fn connect(pod_dir: &Path) -> io::Result<UnixStream> {
    // A socket address holds about 100 bytes; the path of a state directory may be longer.
    let dir = File::open(pod_dir)?;
    let path = format!(
        "/proc/self/fd/{}/{}",
        dir.as_raw_fd(),
        layout::CONTROL_SOCKET
    );
    UnixStream::connect(path).await
}

/// Sends one request on its own connection.
pub(crate) async fn request(pod_dir: &Path, request: &Request) -> io::Result<()> {
    let mut link = Link {
        stream: BufReader::new(connect(pod_dir).await?),
        line: Vec::new(),
        _counted: SUPERVISORS.hold([]),
    };
    link.send(request).await?;
    match timeout(TIMEOUT, link.next_reply()).await?? {
        Reply::Refused { message } => Err(io::Error::other(message)),
        Reply::Done | Reply::Status(_) => Ok(()),
    }
}

/// Connects to the pod's supervisor; starts one that adopts the pod's processes if none runs.
pub(crate) async fn ensure(
    program: &Path,
    pod_dir: PathBuf,
    children: &TaskTracker,
) -> Result<(Link, PodStatus), Failure> {
    if let Ok(running) = Link::open(&pod_dir).await {
        return Ok(running);
    }
    let failed = |error: io::Error| Failure::of(FAILED, "start the pod's supervisor", &error);
    let log = File::options()
        .create(true)
        .append(true)
        .open(pod_dir.join(layout::SUPERVISOR_LOG))
        .map_err(failed)?;
    let mut child = Command::new(program)
        .arg("run")
        .arg(&pod_dir)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(log)
        .spawn()
        .map_err(failed)?;
    failpoints::after("embedded-node/pod/spawn-supervisor");
    SUPERVISOR_STARTS.increment([]);
    let mut line = String::new();
    let output = child.stdout.take();
    // It outlives this process; until then, we are its parent and must reap it.
    children.spawn(async move {
        match child.wait().await {
            Ok(status) => tracing::debug!(%status, "pod supervisor ended"),
            Err(error) => tracing::warn!(%error, "pod supervisor cannot be waited for"),
        }
    });
    if let Some(output) = output {
        timeout(TIMEOUT, BufReader::new(output).read_line(&mut line))
            .await
            .map_err(|late| failed(late.into()))?
            .map_err(failed)?;
    }
    match serde_json::from_str(&line) {
        Ok(Greeting::Ready { .. }) => Link::open(&pod_dir).await.map_err(failed),
        Ok(Greeting::Failed { message }) => Err(Failure::new(FAILED, message)),
        Err(_) => Err(Failure::new(
            FAILED,
            "the pod's supervisor ended without reporting that it is ready",
        )),
    }
}
