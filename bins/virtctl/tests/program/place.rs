//! A kubeconfig for a server that a test plays, a terminal, and the program that runs there.

use std::{
    fs::{self, File, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use futures::SinkExt as _;
use http::{HeaderValue, header::SEC_WEBSOCKET_PROTOCOL};
use rustix::{
    fs::{Mode, OFlags},
    process::{Pid, Signal, kill_process},
    pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt},
    termios::{LocalModes, tcgetattr},
};
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt as _,
    net::{TcpListener, TcpStream},
    process::{Child, Command},
};
use tokio_tungstenite::{
    WebSocketStream, accept_hdr_async,
    tungstenite::{
        Message,
        handshake::server::{Request, Response},
    },
};

/// Nothing here takes that long unless it hangs.
pub(crate) const LIMIT: Duration = Duration::from_mins(1);

/// Both ends of a terminal.
pub(crate) struct Terminal {
    _user: std::os::fd::OwnedFd,
    program: File,
}

impl Terminal {
    pub(crate) fn open() -> Self {
        let user = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).unwrap();
        grantpt(&user).unwrap();
        unlockpt(&user).unwrap();
        let name = ptsname(&user, vec![]).unwrap();
        let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC;
        let program = rustix::fs::open(&*name, flags, Mode::empty()).unwrap();
        Self {
            _user: user,
            program: program.into(),
        }
    }

    pub(crate) fn modes(&self) -> LocalModes {
        tcgetattr(&self.program).unwrap().local_modes
    }

    pub(crate) fn is_raw(&self) -> bool {
        !self.modes().intersects(LocalModes::ICANON)
    }
}

/// A place with a kubeconfig for a server that need not exist.
pub(crate) struct Place {
    directory: TempDir,
}

impl Place {
    pub(crate) fn new(server: &str) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let config = format!(
            "{{apiVersion: v1, kind: Config, current-context: a, \
             clusters: [{{name: a, cluster: {{server: '{server}'}}}}], \
             users: [{{name: a, user: {{}}}}], \
             contexts: [{{name: a, context: {{cluster: a, user: a}}}}]}}"
        );
        fs::write(directory.path().join("config"), config).unwrap();
        fs::create_dir(directory.path().join("bin")).unwrap();
        fs::create_dir(directory.path().join("copies")).unwrap();
        Self { directory }
    }

    pub(crate) fn path(&self) -> &Path {
        self.directory.path()
    }

    /// A program that takes the place of an SSH client.
    pub(crate) fn program(&self, name: &str, script: &str) {
        let file = self.path().join("bin").join(name);
        fs::write(&file, format!("#!/bin/sh\n{script}\n")).unwrap();
        fs::set_permissions(&file, Permissions::from_mode(0o755)).unwrap();
    }

    pub(crate) fn start(&self, terminal: &Terminal, arguments: &[&str]) -> Child {
        let mut command = self.command(arguments);
        let terminal = terminal.program.try_clone().unwrap();
        command.stdin(Stdio::from(terminal)).spawn().unwrap()
    }

    /// The program with pipes for what it prints.
    pub(crate) fn command(&self, arguments: &[&str]) -> Command {
        let path = format!("{}:/usr/bin:/bin", self.path().join("bin").display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_virtctl"));
        command
            .arg("--kubeconfig")
            .arg(self.path().join("config"))
            .args(arguments)
            .env("PATH", path)
            .current_dir(self.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    pub(crate) fn copies(&self) -> Vec<String> {
        let entries = fs::read_dir(self.path().join("copies")).unwrap();
        entries
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect()
    }
}

/// Reads what the program prints until this text is there.
pub(crate) async fn until_printed(child: &mut Child, text: &str) -> String {
    let output = child.stdout.as_mut().unwrap();
    let mut printed = vec![];
    let reading = async {
        loop {
            let seen = String::from_utf8_lossy(&printed).into_owned();
            if seen.contains(text) {
                return seen;
            }
            assert_ne!(output.read_buf(&mut printed).await.unwrap(), 0, "it ended");
        }
    };
    tokio::time::timeout(LIMIT, reading).await.unwrap()
}

pub(crate) async fn ended(child: &mut Child) -> ExitStatus {
    tokio::time::timeout(LIMIT, child.wait())
        .await
        .unwrap()
        .unwrap()
}

pub(crate) fn send(child: &Child, signal: Signal) {
    let id = i32::try_from(child.id().unwrap()).unwrap();
    kill_process(Pid::from_raw(id).unwrap(), signal).unwrap();
}

/// Accepts a stream that says that it is there.
#[expect(
    clippy::result_large_err,
    reason = "the callback's type is that of tungstenite"
)]
pub(crate) async fn accept(listener: &TcpListener) -> WebSocketStream<TcpStream> {
    let (client, _) = listener.accept().await.unwrap();
    let accept = |_: &Request, mut response: Response| {
        let protocol = HeaderValue::from_static("plain.kubevirt.io");
        response
            .headers_mut()
            .insert(SEC_WEBSOCKET_PROTOCOL, protocol);
        Ok(response)
    };
    let mut stream = accept_hdr_async(client, accept).await.unwrap();
    stream
        .send(Message::binary(b"login:".to_vec()))
        .await
        .unwrap();
    stream
}
