//! Polls until a condition holds or a deadline passes.

use std::time::{Duration, Instant};

use anyhow::Result;

const PAUSE: Duration = Duration::from_millis(20);

/// Polls until there is a result; `None` after `limit`.
pub(super) fn look<T>(
    limit: Duration,
    mut at: impl FnMut() -> Result<Option<T>>,
) -> Result<Option<T>> {
    let begin = Instant::now();
    loop {
        if let Some(found) = at()? {
            return Ok(Some(found));
        }
        if begin.elapsed() > limit {
            return Ok(None);
        }
        #[expect(
            clippy::disallowed_methods,
            reason = "this is the wait with a deadline; nothing announces the end of a foreign process"
        )]
        std::thread::sleep(PAUSE);
    }
}
