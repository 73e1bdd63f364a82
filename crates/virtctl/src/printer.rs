//! The only place that writes to the user.

use std::io::Write;

/// Writes data to standard output and words to standard error. A closed pipe is no error: whoever
/// reads has seen enough.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Printer;

#[expect(clippy::unused_self, reason = "whoever writes holds the printer")]
impl Printer {
    /// A line of result.
    pub(crate) fn line(self, text: &str) {
        let mut out = std::io::stdout().lock();
        drop(writeln!(out, "{text}").and_then(|()| out.flush()));
    }

    /// A line about what goes on.
    pub(crate) fn note(self, text: &str) {
        drop(writeln!(std::io::stderr().lock(), "{text}"));
    }

    /// Bytes from a guest, as they come.
    pub(crate) fn raw(self, bytes: &[u8]) -> std::io::Result<()> {
        let mut out = std::io::stdout().lock();
        out.write_all(bytes)?;
        out.flush()
    }
}
