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

    /// Prints a progress line. A closed terminal does not stop the build.
    pub(crate) fn line(&self, text: impl Display) {
        if writeln!(self.out.lock(), "{text}").is_err() {
            // The terminal is closed.
        }
    }

    /// Prints a result to standard output.
    pub(crate) fn result(&self, text: impl Display) -> io::Result<()> {
        writeln!(self.results.lock(), "{text}")
    }
}
