//! Where log lines go: standard error, which `--detach` points to a file.

use anyhow::{Context, Result};
use tracing_subscriber::EnvFilter;

/// In front of a user only what needs a person; in a log file also what changes.
const FOREGROUND: &str = "warn";
const BACKGROUND: &str = "info";

pub(crate) fn start(filter: Option<&str>, detached: bool) -> Result<()> {
    let usual = if detached { BACKGROUND } else { FOREGROUND };
    let filter = filter.unwrap_or(usual);
    let filter = EnvFilter::builder()
        .parse(filter)
        .with_context(|| format!("understand the log filter {filter:?}"))?;
    tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(std::io::stderr)
        .with_ansi(!detached)
        .init();
    Ok(())
}
