//! The supervisor's own log.

/// Writes one line to the log.
#[expect(
    clippy::print_stderr,
    reason = "standard error is the supervisor's log file"
)]
pub(crate) fn report(message: &str) {
    eprintln!("{message}");
}
