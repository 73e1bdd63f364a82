//! How far the telling has come, and whether a story is stuck for good.
//!
//! A story that loops without ever waiting cannot be broken off from inside. It is named, and the
//! program ends.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use simulation::Ending;

/// Where nobody watches a terminal, a line for so many stories.
const EVERY: u64 = 1000;
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Progress {
    seeds: u64,
    patience: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Stories that are being told, and since when.
    under_way: BTreeMap<u64, Instant>,
    told: u64,
    bad: u64,
}

impl Progress {
    pub(crate) fn new(seeds: u64, patience: Duration) -> Self {
        Self {
            seeds,
            patience,
            state: Mutex::default(),
        }
    }

    pub(crate) fn begins(&self, seed: u64) {
        self.state.lock().under_way.insert(seed, Instant::now());
    }

    pub(crate) fn ends(&self, seed: u64, ending: &Ending) {
        let mut state = self.state.lock();
        state.under_way.remove(&seed);
        state.told += 1;
        state.bad += u64::from(ending.violation.is_some());
        if state.told.is_multiple_of(EVERY) && !io::stderr().is_terminal() {
            say(&format!("{}\n", self.shown(&state)));
        }
    }

    /// Until the other end of the channel is dropped.
    #[expect(clippy::needless_pass_by_value, reason = "the receiver ends with this")]
    pub(crate) fn watch(&self, is_done: Receiver<()>) {
        let is_terminal = io::stderr().is_terminal();
        while is_done.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let state = self.state.lock();
            if is_terminal {
                say(&format!("\r{}", self.shown(&state)));
            }
            if let Some(seed) = self.stuck(&state, Instant::now()) {
                let seconds = self.patience.as_secs();
                say(&format!(
                    "seed {seed}: hot loop: does not end within {seconds} s\n"
                ));
                process::exit(1);
            }
        }
        if is_terminal {
            say("\r");
        }
    }

    fn shown(&self, state: &State) -> String {
        format!(
            "{} of {} stories, {} ended badly",
            state.told, self.seeds, state.bad
        )
    }

    fn stuck(&self, state: &State, now: Instant) -> Option<u64> {
        let mut all = state.under_way.iter();
        let (seed, _) = all.find(|(_, since)| now - **since > self.patience)?;
        Some(*seed)
    }
}

fn say(text: &str) {
    if write!(io::stderr(), "{text}").is_err() {
        // Nobody is left to tell.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_story_that_takes_too_long_is_named() {
        let progress = Progress::new(3, Duration::from_mins(1));
        progress.begins(1);
        progress.begins(2);
        let state = progress.state.lock();
        let begin = state.under_way[&1];
        assert_eq!(
            progress.stuck(&state, begin + Duration::from_secs(59)),
            None
        );
        assert_eq!(
            progress.stuck(&state, begin + Duration::from_secs(62)),
            Some(1)
        );
        assert_eq!(progress.shown(&state), "0 of 3 stories, 0 ended badly");
    }
}
