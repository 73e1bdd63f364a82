//! The only place that writes to the user.

use std::io::Write;

/// Results and progress go to standard output, complaints to standard error.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Printer;

#[expect(clippy::unused_self, reason = "whoever writes holds the printer")]
impl Printer {
    /// A line of result or progress. Nobody reading any more is no error.
    pub(crate) fn line(self, text: &str) {
        let mut out = std::io::stdout().lock();
        drop(writeln!(out, "{text}").and_then(|()| out.flush()));
    }

    pub(crate) fn complaint(self, text: &str) {
        drop(writeln!(std::io::stderr().lock(), "{text}"));
    }

    /// A question on the terminal; the answer without its line end.
    pub(crate) fn ask(self, question: &str) -> std::io::Result<String> {
        let mut out = std::io::stdout().lock();
        write!(out, "{question} ")?;
        out.flush()?;
        let mut answer = String::new();
        std::io::stdin().read_line(&mut answer)?;
        Ok(answer.trim().to_owned())
    }
}
