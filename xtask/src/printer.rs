//! The one place that writes to the terminal.

use std::fmt::Display;
use std::io::{self, Write as _};

/// Writes lines to standard error, where progress belongs.
#[derive(Debug)]
pub(crate) struct Printer {
    out: io::Stderr,
}

impl Printer {
    pub(crate) fn new() -> Self {
        Self { out: io::stderr() }
    }

    /// One line. A closed terminal is no reason to stop building.
    pub(crate) fn line(&self, text: impl Display) {
        if writeln!(self.out.lock(), "{text}").is_err() {
            // Nobody is left to tell.
        }
    }
}
