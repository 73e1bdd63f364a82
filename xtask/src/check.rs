//! The local gate: all static checks of CI, fastest first.

use std::process::Command;

use anyhow::{Result, bail};

use crate::printer::Printer;
use crate::workspace::{cargo, root, run};
use crate::{dependencies, generate, tidy};

/// Runs all checks and lists those that failed.
pub(crate) fn run_all(printer: &Printer) -> Result<()> {
    let cargo_task =
        |arguments: &[&str]| run(Command::new(cargo()).args(arguments).current_dir(root()));
    let checks: [(&str, &dyn Fn() -> Result<()>); 6] = [
        ("format", &|| cargo_task(&["fmt", "--all", "--check"])),
        ("tidy", &|| tidy::run(printer)),
        ("dependencies", &|| dependencies::run(printer)),
        ("generated files", &|| generate::run(true)),
        ("clippy", &|| {
            cargo_task(&[
                "clippy",
                "--workspace",
                "--all-targets",
                "--",
                "-D",
                "warnings",
            ])
        }),
        // They need a cluster, so `--all-targets` leaves them out.
        ("clippy of the cluster tests", &|| {
            cargo_task(&[
                "clippy",
                "--workspace",
                "--test=cluster",
                "--test=cluster_faults",
                "--",
                "-D",
                "warnings",
            ])
        }),
    ];
    let mut failed = Vec::new();
    for (name, check) in checks {
        match check() {
            Ok(()) => printer.line(format_args!("{name}: ok")),
            Err(error) => {
                printer.line(format_args!("{name}: {error:#}"));
                failed.push(name);
            }
        }
    }
    if failed.is_empty() {
        Ok(())
    } else {
        bail!("failed: {}", failed.join(", "))
    }
}
