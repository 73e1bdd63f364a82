//! The one place that writes to the terminal.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes progress to standard error, results to standard output.
#[derive(Debug)]
pub(crate) struct Printer {
    out: io::Stderr,
    results: io::Stdout,
}

impl Printer {
    pub(crate) fn new() -> Self {
        Self {
            out: io::stderr(),
            results: io::stdout(),
        }
    }

    /// One line. A closed terminal is no reason to stop building.
    pub(crate) fn line(&self, text: impl Display) {
        if writeln!(self.out.lock(), "{text}").is_err() {
            // Nobody is left to tell.
        }
    }

    /// What was asked for, to standard output.
    pub(crate) fn result(&self, text: impl Display) -> io::Result<()> {
        writeln!(self.results.lock(), "{text}")
    }
}
