//! Checks of dependencies by cargo-deny and cargo-shear, which `scripts/cargo-tools.sh` installs.

use std::{path::PathBuf, process::Command};

use anyhow::{Context as _, Result, bail};

use crate::cache;
use crate::printer::Printer;
use crate::workspace::{root, run as run_command};

/// The message of cargo-deny where the advisory database cannot be reached.
const NO_DATABASE: &str = "failed to fetch advisory database";

/// Runs all checks of dependencies.
pub(crate) fn run(printer: &Printer) -> Result<()> {
    deny()?;
    advisories(printer)?;
    unused()
}

/// Licences, duplicate versions and sources, by the rules of `deny.toml`.
fn deny() -> Result<()> {
    run_command(
        tool("cargo-deny")?
            .args(["--locked", "--log-level=error"])
            .args(["check", "--hide-inclusion-graph"])
            .args(["bans", "licenses", "sources"]),
    )
}

/// Known vulnerabilities and yanked versions, where the database can be reached.
fn advisories(printer: &Printer) -> Result<()> {
    let output = tool("cargo-deny")?
        .args([
            "--locked",
            "--log-level=error",
            "check",
            "--hide-inclusion-graph",
            "advisories",
        ])
        .output()
        .context("run cargo-deny")?;
    let text = [output.stdout, output.stderr].concat();
    let text = String::from_utf8_lossy(&text);
    if output.status.success() {
        return Ok(());
    }
    if text.contains(NO_DATABASE) {
        printer.line("advisories: NOT CHECKED: the RustSec database cannot be reached");
        return Ok(());
    }
    bail!("{text}")
}

/// Dependencies that no code uses.
fn unused() -> Result<()> {
    run_command(tool("cargo-shear")?.arg("shear"))
}

fn tool(name: &str) -> Result<Command> {
    let path: PathBuf = cache::directory()?.join("tools/bin").join(name);
    if !path.exists() {
        bail!("{name} is not installed: run scripts/cargo-tools.sh");
    }
    let mut command = Command::new(path);
    command.current_dir(root());
    Ok(command)
}
