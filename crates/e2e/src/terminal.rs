//! Drives a running program through pipes.

use std::process::{ExitStatus, Stdio};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, ChildStdout, Command},
    time::timeout,
};

use crate::DEADLINE;

/// A running program; dropping it kills the program.
#[derive(Debug)]
pub struct Terminal {
    child: Child,
    input: ChildStdin,
    output: ChildStdout,
    pending: Vec<u8>,
}

impl Terminal {
    pub fn start(command: &mut Command) -> Self {
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .expect("start the program");
        let input = child.stdin.take().expect("stdio is piped");
        let output = child.stdout.take().expect("stdio is piped");
        Self {
            child,
            input,
            output,
            pending: Vec::new(),
        }
    }

    pub async fn send(&mut self, bytes: &[u8]) {
        self.input
            .write_all(bytes)
            .await
            .expect("write to the program");
        self.input.flush().await.expect("write to the program");
    }

    /// Reads until `text` appears, and returns everything up to its end.
    pub async fn expect(&mut self, text: &str) -> String {
        let waited = timeout(DEADLINE, self.read_until(text)).await;
        waited.unwrap_or_else(|_elapsed| {
            let seen = String::from_utf8_lossy(&self.pending);
            panic!("the program does not print {text:?} within {DEADLINE:?}, but {seen:?}")
        })
    }

    async fn read_until(&mut self, text: &str) -> String {
        loop {
            let seen = String::from_utf8_lossy(&self.pending).into_owned();
            if let Some(at) = seen.find(text) {
                let end = at + text.len();
                self.pending = seen.as_bytes()[end..].to_vec();
                return seen[..end].to_owned();
            }
            let count = self.output.read_buf(&mut self.pending).await;
            let count = count.expect("read from the program");
            assert!(
                count > 0,
                "the program ended before {text:?}, after {seen:?}"
            );
        }
    }

    /// Closes the input and waits for the program to exit.
    pub async fn end(mut self) -> ExitStatus {
        drop(self.input);
        let waited = timeout(DEADLINE, self.child.wait()).await;
        let waited = waited.unwrap_or_else(|_| panic!("the program does not end"));
        waited.expect("wait for the program")
    }
}
