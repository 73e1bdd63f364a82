//! The shell on a guest's serial console, over the socket that QEMU serves.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::UnixStream,
    time::{Instant, sleep, timeout},
};

/// A guest on a slow machine by software emulation boots within it, and no load takes longer.
const PATIENCE: Duration = Duration::from_mins(4);
const PAUSE: Duration = Duration::from_millis(100);
/// How often a guest that boots is asked whether it listens.
const ASKING: Duration = Duration::from_secs(2);

#[derive(Debug)]
pub(super) struct Shell {
    stream: UnixStream,
    pending: Vec<u8>,
    commands: u32,
}

impl Shell {
    /// Waits until the guest's shell answers.
    pub(super) async fn of(socket: &Path) -> Result<Self> {
        let until = Instant::now() + PATIENCE;
        let stream = loop {
            match UnixStream::connect(socket).await {
                Ok(stream) => break stream,
                Err(err) if Instant::now() > until => {
                    return Err(err).with_context(|| format!("connect to {}", socket.display()));
                }
                Err(_) => sleep(PAUSE).await,
            }
        };
        let mut shell = Self {
            stream,
            pending: Vec::new(),
            commands: 0,
        };
        // The console drops what is written before the shell reads.
        while Instant::now() < until {
            shell.send("echo li''stens\n").await?;
            match timeout(ASKING, shell.until("listens")).await {
                Ok(seen) => {
                    seen?;
                    // Answers to what was asked more than once.
                    while timeout(PAUSE * 5, shell.more()).await.is_ok() {}
                    shell.pending.clear();
                    return Ok(shell);
                }
                Err(_elapsed) => {}
            }
        }
        bail!(
            "the guest at {} does not listen, but shows {:?}",
            socket.display(),
            String::from_utf8_lossy(&shell.pending)
        )
    }

    pub(super) async fn send(&mut self, text: &str) -> Result<()> {
        self.stream
            .write_all(text.as_bytes())
            .await
            .context("write to the guest")
    }

    /// What a command prints.
    pub(super) async fn run(&mut self, command: &str) -> Result<String> {
        self.commands += 1;
        let number = self.commands;
        // The terminal echoes the command; no echo may look like the marks around what it prints.
        self.send(&format!(
            "echo be''gin-{number}:; {command}; echo do''ne-{number}:\n"
        ))
        .await?;
        let (begin, end) = (format!("begin-{number}:"), format!("done-{number}:"));
        let shown = async {
            self.until(&begin).await?;
            self.until(&end).await
        };
        let shown = timeout(PATIENCE, shown)
            .await
            .map_err(|_elapsed| anyhow!("waited {PATIENCE:?} for the guest's {command:?}"))??;
        Ok(shown.trim_end_matches(&end).trim().to_owned())
    }

    /// Puts the load into the guest's memory.
    pub(super) async fn install(&mut self, device: &str) -> Result<()> {
        let shown = self
            .run(&format!(
                "dd if={device} of=/bin/load bs=64k 2>/dev/null && chmod 755 /bin/load && echo insta''lled"
            ))
            .await?;
        ensure!(shown.contains("installed"), "install the load: {shown}");
        Ok(())
    }

    /// The number that the load prints.
    pub(super) async fn load(&mut self, command: &str) -> Result<f64> {
        let shown = self.run(&format!("load {command}")).await?;
        let line = shown
            .lines()
            .find_map(|line| line.trim().strip_prefix("load: "));
        let line = line.with_context(|| format!("load {command} printed {shown:?}"))?;
        line.parse()
            .with_context(|| format!("load {command}: {line}"))
    }

    /// Reads up to and with a text.
    pub(super) async fn until(&mut self, text: &str) -> Result<String> {
        let wanted = text.as_bytes();
        loop {
            let found = self
                .pending
                .windows(wanted.len())
                .position(|part| part == wanted);
            if let Some(at) = found {
                let rest = self.pending.split_off(at + wanted.len());
                let read = std::mem::replace(&mut self.pending, rest);
                return Ok(String::from_utf8_lossy(&read).into_owned());
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<()> {
        let read = self.stream.read_buf(&mut self.pending).await;
        ensure!(
            read.context("read the guest")? > 0,
            "the guest's console ended"
        );
        Ok(())
    }
}
