//! A guest's pauses and its memory's arrival in another process, seen from outside: the same way for a guest of
//! ours and for one by hand.

use std::{
    fs::File,
    path::PathBuf,
    time::{Duration, Instant},
};

use anyhow::Result;
use tokio::time::MissedTickBehavior;

use super::qemu::resident;

/// How often the consoles' logs are looked at: the error of a silence.
const INTERVAL: Duration = Duration::from_millis(2);
/// After so many looks, new processes are looked for.
const SEARCH: u32 = 100;

/// What was seen while a future ran.
#[derive(Debug, Default)]
pub(super) struct Seen {
    /// The longest time without output.
    pub(super) silence: Duration,
    /// The memory of the newest process, each time that it had grown.
    arrivals: Vec<(Instant, u64)>,
}

/// A process of the guest, and the log of its console there.
struct Source {
    pid: u32,
    log: File,
    length: u64,
}

/// Observes a guest that writes all the time; `find` lists its processes with the logs of their consoles.
pub(super) async fn observe<T>(
    find: impl Fn() -> Result<Vec<(u32, PathBuf)>>,
    future: impl Future<Output = Result<T>>,
) -> Result<(Seen, T)> {
    tokio::pin!(future);
    let mut ticks = tokio::time::interval(INTERVAL);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let mut seen = Seen::default();
    let mut sources: Vec<Source> = Vec::new();
    let mut last: Option<Instant> = None;
    let mut looks: u32 = 0;
    loop {
        tokio::select! {
            output = &mut future => {
                let output = output?;
                // A guest that never went on would have no silence that ended.
                let open = last.map(|last| last.elapsed()).unwrap_or_default();
                seen.silence = seen.silence.max(open);
                return Ok((seen, output));
            }
            _ = ticks.tick() => {}
        }
        if looks.is_multiple_of(SEARCH) {
            for (pid, path) in find()? {
                // A log that is not there yet is found by the next search.
                if sources.iter().all(|known| known.pid != pid)
                    && let Ok(log) = File::open(path)
                {
                    sources.push(Source {
                        pid,
                        log,
                        length: 0,
                    });
                }
            }
        }
        looks = looks.wrapping_add(1);
        let now = Instant::now();
        let mut has_written = false;
        for source in &mut sources {
            let length = source.log.metadata()?.len();
            has_written |= length != source.length;
            source.length = length;
        }
        if has_written {
            let silence = last.map(|last| now.duration_since(last));
            seen.silence = seen.silence.max(silence.unwrap_or_default());
            last = Some(now);
        }
        if let [_, .., newest] = &sources[..]
            && let Some(bytes) = resident(newest.pid)
            && seen
                .arrivals
                .last()
                .is_none_or(|(_, before)| bytes > *before)
        {
            seen.arrivals.push((now, bytes));
        }
    }
}

impl Seen {
    /// Bytes per second at which that much memory arrived, without its first and its last tenth.
    pub(super) fn rate(&self, memory: u64) -> Option<f64> {
        let (_, first) = self.arrivals.first()?;
        let reached = |tenths: u64| {
            let wanted = first + memory / 10 * tenths;
            self.arrivals.iter().find(|(_, bytes)| *bytes >= wanted)
        };
        let ((from, less), (to, more)) = (reached(1)?, reached(9)?);
        let time = to.duration_since(*from).as_secs_f64();
        (time > 0.0).then(|| super::figures::as_f64(more - less) / time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rate_is_that_of_the_middle() {
        let began = Instant::now();
        let at = |second: u64, bytes| (began + Duration::from_secs(second), bytes);
        let seen = Seen {
            silence: Duration::ZERO,
            arrivals: vec![at(0, 1000), at(10, 1100), at(18, 1900), at(60, 2000)],
        };
        assert_eq!(seen.rate(1000), Some(100.0));
        assert_eq!(seen.rate(10_000), None);
        assert_eq!(Seen::default().rate(1), None);
    }
}
