//! The only module that writes to the terminal.

use std::io::Write;

/// Writes data to standard output and messages to standard error. A closed pipe is no error, because the
/// reader has seen enough.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Printer;

#[expect(clippy::unused_self, reason = "a writer needs a printer")]
impl Printer {
    /// A line of result.
    pub(crate) fn line(self, text: &str) {
        let mut out = std::io::stdout().lock();
        drop(writeln!(out, "{text}").and_then(|()| out.flush()));
    }

    /// A message for the user.
    pub(crate) fn note(self, text: &str) {
        drop(writeln!(std::io::stderr().lock(), "{text}"));
    }

    /// Bytes from a guest, unchanged.
    pub(crate) fn raw(self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }
}
