//! When repeated failures become warnings in the log.

/// A failure that repeats this often in a row is logged as a warning; a single one usually fixes
/// itself with the next retry.
const WARN_FROM: u32 = 3;

/// Counts failures in a row.
#[derive(Debug, Default)]
pub(crate) struct Failures(u32);

impl Failures {
    pub(crate) fn succeeded(&mut self) {
        self.0 = 0;
    }

    /// Counts a failure. Returns whether to warn.
    pub(crate) fn failed(&mut self) -> bool {
        self.0 = self.0.saturating_add(1);
        is_repeated(self.0)
    }
}

/// Whether to warn at that number of failures in a row.
pub(crate) fn is_repeated(failures: u32) -> bool {
    failures >= WARN_FROM
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn third_failure_in_a_row_is_a_warning() {
        let mut failures = Failures::default();
        assert!(!failures.failed());
        assert!(!failures.failed());
        assert!(failures.failed());
        failures.succeeded();
        assert!(!failures.failed());
    }
}
