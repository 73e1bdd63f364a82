//! Runs a program in a running container, through a helper process that enters the container and
//! ends with it.
//!
//! **Invariant.** Dropping [`Exec`] ends the program.

use std::{
    fs::{self, File},
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsRawFd as _, OwnedFd},
        unix::net::UnixListener,
    },
    path::{Path, PathBuf},
    pin::Pin,
    process::Stdio,
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use pod_supervisor::{
    exec::{CONSOLE_SOCKET, ExecRequest, OUTCOME_FILE, Outcome, REQUEST_FILE, Terminal},
    layout,
};
use rustix::{
    net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg},
    process::{Pid, Signal, kill_process},
    termios::{Winsize, tcsetwinsize},
};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, Interest, ReadBuf, unix::AsyncFd},
    process::{Child, Command},
    time::timeout,
};

/// The helper sends the terminal as soon as it has entered the container.
const TERMINAL_TIMEOUT: Duration = Duration::from_secs(20);

/// The program to run.
#[derive(Debug, Clone)]
pub(crate) struct Wanted {
    pub(crate) container: String,
    pub(crate) args: Vec<String>,
    pub(crate) terminal: Terminal,
    pub(crate) input: Flow,
    pub(crate) output: Flow,
    pub(crate) error: Flow,
}

/// Whether the client uses a stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Flow {
    Open,
    Closed,
}

impl Flow {
    fn stdio(self) -> Stdio {
        match self {
            Self::Open => Stdio::piped(),
            Self::Closed => Stdio::null(),
        }
    }
}

pub(crate) type Input = Pin<Box<dyn AsyncWrite + Send>>;
pub(crate) type Output = Pin<Box<dyn AsyncRead + Send>>;

/// A running program.
pub(crate) struct Exec {
    helper: Child,
    dir: PathBuf,
    pub(crate) input: Option<Input>,
    pub(crate) output: Option<Output>,
    pub(crate) error: Option<Output>,
    pub(crate) console: Option<Arc<Console>>,
}

/// Starts the program; [`Exec::wait`] returns whether it could be run.
pub(crate) async fn start(program: &Path, pod_dir: &Path, wanted: Wanted) -> io::Result<Exec> {
    let pods = pod_dir.to_owned();
    let files = wanted.clone();
    let (id, listener) = tokio::task::spawn_blocking(move || prepare(&pods, &files))
        .await
        .map_err(io::Error::other)??;
    let mut command = Command::new(program);
    command
        .arg("exec")
        .arg(pod_dir)
        .arg(&id)
        .current_dir("/")
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    if wanted.terminal == Terminal::None {
        command
            .stdin(wanted.input.stdio())
            .stdout(wanted.output.stdio())
            .stderr(wanted.error.stdio());
    }
    let mut helper = command.spawn()?;
    let mut exec = Exec {
        input: helper.stdin.take().map(|pipe| Box::pin(pipe) as Input),
        output: helper.stdout.take().map(|pipe| Box::pin(pipe) as Output),
        error: helper.stderr.take().map(|pipe| Box::pin(pipe) as Output),
        helper,
        dir: pod_dir.join(layout::exec_dir(&id)),
        console: None,
    };
    if let Some(listener) = listener {
        exec.take_console(listener, &wanted).await?;
    }
    Ok(exec)
}

/// Runs a program to its end. Returns its outcome and the first `max` bytes of its output.
pub(crate) async fn run(
    program: &Path,
    pod_dir: &Path,
    wanted: Wanted,
    max: usize,
) -> io::Result<(Outcome, Vec<u8>)> {
    let mut exec = start(program, pod_dir, wanted).await?;
    let mut text = Vec::new();
    let limit = u64::try_from(max).unwrap_or(u64::MAX);
    let (output, error) = (exec.output.take(), exec.error.take());
    let read = async {
        for stream in [output, error].into_iter().flatten() {
            let mut stream = stream;
            // Further output is discarded, so that the program does not block.
            (&mut stream).take(limit).read_to_end(&mut text).await?;
            tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
        }
        io::Result::Ok(())
    };
    let (outcome, read) = tokio::join!(exec.wait(), read);
    read?;
    text.truncate(max);
    Ok((outcome?, text))
}

/// Writes the helper's request into a new directory. Returns its name and the console listener.
fn prepare(pod_dir: &Path, wanted: &Wanted) -> io::Result<(String, Option<UnixListener>)> {
    let all = pod_dir.join("exec");
    fs::create_dir_all(&all)?;
    let mut number = 0_u64;
    let id = loop {
        let id = number.to_string();
        match fs::create_dir(all.join(&id)) {
            Ok(()) => break id,
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => number += 1,
            Err(error) => return Err(error),
        }
    };
    let dir = all.join(&id);
    let request = ExecRequest {
        container: wanted.container.clone(),
        args: wanted.args.clone(),
        terminal: wanted.terminal,
    };
    fs::write(dir.join(REQUEST_FILE), serde_json::to_vec(&request)?)?;
    let listener = match wanted.terminal {
        Terminal::None => None,
        Terminal::Own => {
            // A socket address holds about 100 bytes; the path of a state directory may be longer.
            let dir = File::open(dir)?;
            let path = format!("/proc/self/fd/{}/{CONSOLE_SOCKET}", dir.as_raw_fd());
            let listener = UnixListener::bind(path)?;
            listener.set_nonblocking(true)?;
            Some(listener)
        }
    };
    Ok((id, listener))
}

impl Exec {
    /// Receives the terminal from the helper, unless the helper ends first.
    async fn take_console(&mut self, listener: UnixListener, wanted: &Wanted) -> io::Result<()> {
        let listener = tokio::net::UnixListener::from_std(listener)?;
        let receive = async {
            let (stream, _) = listener.accept().await?;
            loop {
                stream.readable().await?;
                match stream.try_io(Interest::READABLE, || receive_terminal(&stream)) {
                    Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                    received => return received,
                }
            }
        };
        let master = tokio::select! {
            master = timeout(TERMINAL_TIMEOUT, receive) => master??,
            // The outcome has the reason.
            ended = self.helper.wait() => return ended.map(drop),
        };
        rustix::io::ioctl_fionbio(&master, true)?;
        // SAFETY: `AsyncFd` owns the descriptor, so it stays open with the same number while
        // registered.
        let fd = unsafe { AsyncFd::register(master) }?;
        let console = Arc::new(Console { fd });
        let half = || Half(Arc::clone(&console));
        if wanted.input == Flow::Open {
            self.input = Some(Box::pin(half()));
        }
        self.output = Some(Box::pin(half()));
        self.console = Some(console);
        Ok(())
    }

    /// Waits for the end of the program. Not cancel-safe: a dropped future may lose the outcome.
    pub(crate) async fn wait(&mut self) -> io::Result<Outcome> {
        let status = self.helper.wait().await?;
        let dir = self.dir.clone();
        let read = move || {
            let bytes = fs::read(dir.join(OUTCOME_FILE));
            let removed = fs::remove_dir_all(&dir);
            match bytes {
                Ok(bytes) => {
                    removed?;
                    Ok(serde_json::from_slice(&bytes)?)
                }
                // The pod was removed, or the helper was killed.
                Err(_) => Ok(Outcome::Failed {
                    message: format!(
                        "the helper process in the container ended unexpectedly ({status})"
                    ),
                }),
            }
        };
        tokio::task::spawn_blocking(read)
            .await
            .map_err(io::Error::other)?
    }

    /// Terminates the program.
    pub(crate) fn kill(&self) {
        let pid = self.helper.id().and_then(|pid| i32::try_from(pid).ok());
        if let Some(pid) = pid.and_then(Pid::from_raw)
            && let Err(error) = kill_process(pid, Signal::TERM)
        {
            tracing::debug!(%error, "exec helper cannot be terminated");
        }
    }
}

impl Drop for Exec {
    fn drop(&mut self) {
        // A reaped helper has no process ID, so this does nothing.
        self.kill();
    }
}

fn receive_terminal(stream: &tokio::net::UnixStream) -> io::Result<OwnedFd> {
    let mut text = [0; 64];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    recvmsg(
        stream,
        &mut [io::IoSliceMut::new(&mut text)],
        &mut control,
        RecvFlags::CMSG_CLOEXEC,
    )?;
    control
        .drain()
        .find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut fds) => fds.next(),
            _ => None,
        })
        .ok_or_else(|| io::Error::other("the container sent no terminal"))
}

/// The master side of a terminal in the container.
#[derive(Debug)]
pub(crate) struct Console {
    fd: AsyncFd<OwnedFd>,
}

impl Console {
    pub(crate) fn resize(&self, columns: u16, rows: u16) -> io::Result<()> {
        let size = Winsize {
            ws_row: rows,
            ws_col: columns,
            ws_xpixel: 0,
            ws_ypixel: 0,
        };
        Ok(tcsetwinsize(self.fd.get_ref(), size)?)
    }
}

struct Half(Arc<Console>);

impl AsyncRead for Half {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        loop {
            let mut guard = ready!(self.0.fd.poll_read_ready(cx))?;
            let read = guard.try_io(|fd| {
                Ok(rustix::io::read(
                    fd.get_ref(),
                    buffer.initialize_unfilled(),
                )?)
            });
            match read {
                Ok(Ok(count)) => {
                    buffer.advance(count);
                    return Poll::Ready(Ok(()));
                }
                // All slave sides are closed.
                Ok(Err(error)) if error.raw_os_error() == Some(libc::EIO) => {
                    return Poll::Ready(Ok(()));
                }
                Ok(Err(error)) => return Poll::Ready(Err(error)),
                Err(_would_block) => {}
            }
        }
    }
}

impl AsyncWrite for Half {
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        loop {
            let mut guard = ready!(self.0.fd.poll_write_ready(cx))?;
            match guard.try_io(|fd| Ok(rustix::io::write(fd.get_ref(), bytes)?)) {
                Ok(written) => return Poll::Ready(written),
                Err(_would_block) => {}
            }
        }
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }
}
