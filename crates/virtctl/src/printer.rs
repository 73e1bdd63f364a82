//! The only module that writes to the terminal.

use std::{
    io::{ErrorKind, IsTerminal, Write},
    sync::OnceLock,
};

use anyhow::{Context, Result};
use serde_json::Value;

use crate::{cli::ObjectOutput, failure::advice};

/// Why a line of result could not be written; the first reason.
static FAILED: OnceLock<String> = OnceLock::new();

/// Writes data to standard output and messages to standard error. A closed pipe is not an error, because the
/// reader has seen enough.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Printer;

#[expect(clippy::unused_self, reason = "a writer needs a printer")]
impl Printer {
    /// A line of result.
    pub(crate) fn line(self, text: &str) {
        let mut out = std::io::stdout().lock();
        match writeln!(out, "{text}").and_then(|()| out.flush()) {
            Err(error) if error.kind() != ErrorKind::BrokenPipe => {
                // The first reason is the one to tell.
                drop(FAILED.set(error.to_string()));
            }
            _ => {}
        }
    }

    /// Why results were lost, such as a full disk behind standard output.
    pub(crate) fn failure(self) -> Option<anyhow::Error> {
        let reason = FAILED.get()?;
        Some(anyhow::anyhow!("write to standard output: {reason}"))
    }

    /// A text in place of all that the terminal shows.
    pub(crate) fn screen(self, text: &str) {
        self.line(&format!("\x1b[H\x1b[2J{text}"));
    }

    /// A message for the user.
    pub(crate) fn note(self, text: &str) {
        drop(writeln!(std::io::stderr().lock(), "{text}"));
    }

    /// What the user should know; the command goes on.
    pub(crate) fn warn(self, text: &str) {
        self.note(&format!("{} {text}", label("warning:", YELLOW)));
    }

    /// The reason why the command failed, with its causes.
    pub(crate) fn error(self, err: &anyhow::Error) {
        let label = label("error:", RED);
        self.note(&match advice(err) {
            Some(advice) => format!("{label} {err:#}: {advice}"),
            None => format!("{label} {err:#}"),
        });
    }

    /// An object.
    pub(crate) fn object(self, output: ObjectOutput, object: &Value) -> Result<()> {
        self.line(text(output, object)?.trim_end());
        Ok(())
    }

    /// How far long work is; shown on a terminal only.
    pub(crate) fn progress(self, work: &str, done: u64, all: u64) {
        let mut out = std::io::stderr().lock();
        if out.is_terminal() {
            drop(write!(out, "\r{}\x1b[K", progress(work, done, all)).and_then(|()| out.flush()));
        }
    }

    /// How far work of unknown length is; shown on a terminal only.
    pub(crate) fn amount(self, work: &str, done: u64) {
        let mut out = std::io::stderr().lock();
        if out.is_terminal() {
            drop(write!(out, "\r{work} {}\x1b[K", size(done)).and_then(|()| out.flush()));
        }
    }

    /// Ends the line of the progress.
    pub(crate) fn end_of_progress(self) {
        if std::io::stderr().is_terminal() {
            self.note("");
        }
    }

    /// Bytes from a guest, unchanged.
    pub(crate) fn raw(self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }
}

const RED: u8 = 31;
const YELLOW: u8 = 33;

/// Coloured on a terminal, unless `NO_COLOR` is set.
fn label(text: &str, colour: u8) -> String {
    let plain = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    if plain || !std::io::stderr().is_terminal() {
        return text.to_owned();
    }
    format!("\x1b[{colour}m{text}\x1b[0m")
}

const BAR: u64 = 30;

/// One line, such as `Uploading [=====     ]  50 % of 4.0 MiB`.
fn progress(work: &str, done: u64, all: u64) -> String {
    let part = |of: u64| {
        done.min(all)
            .saturating_mul(of)
            .checked_div(all)
            .unwrap_or(of)
    };
    let filled = usize::try_from(part(BAR)).unwrap_or_default();
    let width = usize::try_from(BAR).unwrap_or_default();
    let bar = "=".repeat(filled);
    format!("{work} [{bar:width$}] {:3} % of {}", part(100), size(all))
}

/// A number of bytes for people.
pub(crate) fn size(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["KiB", "MiB", "GiB", "TiB", "PiB"];
    if bytes < 1024 {
        return format!("{bytes} B");
    }
    // Tenths of a unit, so that no floating point is needed.
    let mut tenths = bytes.saturating_mul(10) / 1024;
    let mut unit = 0;
    while tenths >= 10_240 && unit + 1 < UNITS.len() {
        tenths /= 1024;
        unit += 1;
    }
    let name = UNITS.get(unit).copied().unwrap_or_default();
    format!("{}.{} {name}", tenths / 10, tenths % 10)
}

fn text(output: ObjectOutput, object: &Value) -> Result<String> {
    match output {
        ObjectOutput::Json => serde_json::to_string_pretty(object).context("write JSON"),
        ObjectOutput::Yaml => serde_saphyr::to_string(object).context("write YAML"),
        ObjectOutput::Name => {
            let (group, _version) = object["apiVersion"]
                .as_str()
                .and_then(|api_version| api_version.split_once('/'))
                .unwrap_or_default();
            let kind = object["kind"].as_str().unwrap_or_default();
            let name = object["metadata"]["name"].as_str().unwrap_or_default();
            let dot = if group.is_empty() { "" } else { "." };
            let kind = kind.to_ascii_lowercase();
            Ok(format!("{kind}{dot}{group}/{name}"))
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn progress_fits_one_line() {
        for (done, all, line) in [
            (
                0,
                4 << 20,
                format!("Uploading [{}]   0 % of 4.0 MiB", " ".repeat(30)),
            ),
            (
                2 << 20,
                4 << 20,
                format!(
                    "Uploading [{}{}]  50 % of 4.0 MiB",
                    "=".repeat(15),
                    " ".repeat(15)
                ),
            ),
            (9, 3, format!("Uploading [{}] 100 % of 3 B", "=".repeat(30))),
            (0, 0, format!("Uploading [{}] 100 % of 0 B", "=".repeat(30))),
        ] {
            assert_eq!(progress("Uploading", done, all), line);
        }
        assert_eq!(
            (size(1023), size(1536), size(3 << 40)),
            ("1023 B".into(), "1.5 KiB".into(), "3.0 TiB".into())
        );
    }

    #[test]
    fn objects_print_in_every_format() {
        let object = json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "a"},
        });
        let name = text(ObjectOutput::Name, &object).unwrap();
        assert_eq!(name, "virtualmachine.kubevirt.io/a");
        let core = json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "a"}});
        assert_eq!(text(ObjectOutput::Name, &core).unwrap(), "service/a");
        let yaml = text(ObjectOutput::Yaml, &core).unwrap();
        assert_eq!(serde_saphyr::from_str::<Value>(&yaml).unwrap(), core);
        let read: Value = serde_json::from_str(&text(ObjectOutput::Json, &core).unwrap()).unwrap();
        assert_eq!(read, core);
    }
}
