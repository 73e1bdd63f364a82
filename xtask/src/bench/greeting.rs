//! The guest's greeting, read as a user would: with `virtctl console`.

use std::{
    path::Path,
    process::Stdio,
    time::{Duration, Instant},
};

use anyhow::{Context as _, Result, anyhow, bail};
use tokio::{io::AsyncReadExt as _, process::Command};

const GREETING: &[u8] = b"Welcome to Ferrovirt";
const PATIENCE: Duration = Duration::from_mins(2);

/// Waits for the greeting of a guest that was just started, by this `virtctl` and as this user.
pub(super) async fn wait(virtctl: &Path, kubeconfig: &Path, name: &str) -> Result<Instant> {
    let mut console = Command::new(virtctl)
        .args(["console", name])
        .env("KUBECONFIG", kubeconfig)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .context("start virtctl")?;
    let mut output = console.stdout.take().context("read virtctl")?;
    let reading = async {
        let mut text = Vec::new();
        while output.read_buf(&mut text).await.context("read virtctl")? > 0 {
            if text.windows(GREETING.len()).any(|part| part == GREETING) {
                return Ok(Instant::now());
            }
        }
        bail!("the console of {name} ended without a greeting")
    };
    let outcome = tokio::time::timeout(PATIENCE, reading).await;
    console.kill().await.context("end virtctl")?;
    outcome.map_err(|_elapsed| anyhow!("no greeting of {name} within {PATIENCE:?}"))?
}
