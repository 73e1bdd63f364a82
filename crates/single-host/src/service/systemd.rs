//! Calls of `systemctl`.

use std::{
    path::Path,
    process::{Command, Output},
};

use anyhow::{Context, Result, bail, ensure};

/// Exists exactly where systemd is the init process.
const RUNNING: &str = "/run/systemd/system";
/// Log lines of a service that failed to start.
const LOG_LINES: &str = "15";

/// Checks that systemd manages this host.
pub(super) fn check() -> Result<()> {
    check_at(Path::new(RUNNING))
}

fn check_at(running: &Path) -> Result<()> {
    ensure!(
        running.is_dir(),
        "systemd does not manage this host ({} does not exist): have your init system run `ferrovirt up` at \
         boot and `ferrovirt down` at shutdown",
        running.display(),
    );
    Ok(())
}

/// Runs `systemctl` and expects success.
pub(super) fn control(arguments: &[&str]) -> Result<String> {
    let output = output(arguments)?;
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if output.status.success() {
        return Ok(text(&output.stdout));
    }
    bail!(
        "systemctl {}: {} ({})",
        arguments.join(" "),
        text(&output.stderr),
        output.status,
    )
}

fn output(arguments: &[&str]) -> Result<Output> {
    Command::new("systemctl")
        .args(arguments)
        .output()
        .with_context(|| format!("run systemctl {}", arguments.join(" ")))
}

/// Whether the unit is active. An unknown unit is not.
pub(super) fn is_active(unit: &str) -> Result<bool> {
    Ok(output(&["is-active", "--quiet", unit])?.status.success())
}

/// The main process of a service, if it runs.
pub(super) fn main_process(unit: &str) -> Result<Option<i32>> {
    let value = control(&["show", "--property=MainPID", "--value", unit])?;
    Ok(value.parse().ok().filter(|pid| *pid != 0))
}

/// Starts a service and waits until it is up; a failure has its last log lines.
pub(super) fn start(verb: &str, unit: &str) -> Result<()> {
    control(&[verb, unit]).map(drop).with_context(|| {
        let log = Command::new("journalctl")
            .args([
                "--unit",
                unit,
                "--lines",
                LOG_LINES,
                "--no-pager",
                "--output",
                "cat",
            ])
            .output();
        let log = log.map_or_else(
            |error| format!("(journalctl: {error})"),
            |output| String::from_utf8_lossy(&output.stdout).into_owned(),
        );
        format!("{unit} did not come up; its log ends with:\n{log}")
    })
}

/// Whether the host is shutting down or rebooting.
pub(crate) fn host_is_stopping() -> Result<bool> {
    // It exits with a failure in every state but `running`.
    let output = output(&["is-system-running"])?;
    Ok(is_stopping(&String::from_utf8_lossy(&output.stdout)))
}

fn is_stopping(state: &str) -> bool {
    state.trim() == "stopping"
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn host_without_systemd_gets_a_remedy() {
        let dir = tempfile::tempdir().unwrap();
        assert!(check_at(dir.path()).is_ok());
        let error = check_at(&dir.path().join("none")).unwrap_err().to_string();
        assert!(
            error.contains("have your init system run `ferrovirt up`"),
            "{error}"
        );
    }

    #[test]
    fn only_a_shutdown_stops_guests() {
        for (state, expected) in [
            ("stopping\n", true),
            ("running\n", false),
            ("degraded\n", false),
            ("starting", false),
            ("maintenance", false),
            ("offline", false),
            ("", false),
        ] {
            assert_eq!(is_stopping(state), expected, "{state}");
        }
    }
}
