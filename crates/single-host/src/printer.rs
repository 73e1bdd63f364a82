//! The only module that writes to the terminal.

use std::io::Write;

/// Results and progress go to standard output, errors to standard error.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Printer;

#[expect(clippy::unused_self, reason = "a caller needs the printer to write")]
impl Printer {
    /// Prints a line of result or progress. A closed standard output is not an error.
    pub(crate) fn line(self, text: &str) {
        let mut out = std::io::stdout().lock();
        drop(writeln!(out, "{text}").and_then(|()| out.flush()));
    }

    pub(crate) fn error(self, text: &str) {
        drop(writeln!(std::io::stderr().lock(), "{text}"));
    }

    /// Prints a question and reads the user's reply, without its line end.
    pub(crate) fn prompt(self, question: &str) -> std::io::Result<String> {
        let mut out = std::io::stdout().lock();
        write!(out, "{question} ")?;
        out.flush()?;
        let mut reply = String::new();
        std::io::stdin().read_line(&mut reply)?;
        Ok(reply.trim().to_owned())
    }
}
