//! Lines on standard output: the progress, for the controller, and what went wrong on the way.

use std::fmt::Arguments;
use std::io::{self, Write as _};
use std::time::Duration;

use tokio::time::Instant;

/// The shortest time between two lines of progress.
const PAUSE: Duration = Duration::from_secs(1);

/// Prints the progress of one import.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    last: Option<(Instant, u64)>,
}

impl Progress {
    /// `done` of `total` bytes.
    pub(crate) fn show(&mut self, done: u64, total: Option<u64>) {
        let Some(permille) = total.and_then(|total| permille(done, total)) else {
            return;
        };
        let now = Instant::now();
        if let Some((then, shown)) = self.last
            && (shown == permille || now - then < PAUSE)
        {
            return;
        }
        self.last = Some((now, permille));
        log(format_args!("{}", import_report::progress(permille)));
    }
}

/// None if there is nothing to do. Complete only when everything is on disk, which this does not know.
fn permille(done: u64, total: u64) -> Option<u64> {
    let part = u128::from(done) * 1000 / u128::from(Some(total).filter(|total| *total > 0)?);
    Some(u64::try_from(part).unwrap_or(999).min(999))
}

/// Writes a line. A closed pipe is no failure of the import.
pub(crate) fn log(line: Arguments<'_>) {
    drop(writeln!(io::stdout().lock(), "{line}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_never_complete_by_itself() {
        assert_eq!(permille(0, 10), Some(0));
        assert_eq!(permille(5, 10), Some(500));
        assert_eq!(permille(10, 10), Some(999));
        assert_eq!(permille(11, 10), Some(999));
        assert_eq!(permille(u64::MAX, u64::MAX), Some(999));
        assert_eq!(permille(0, 0), None);
    }
}
