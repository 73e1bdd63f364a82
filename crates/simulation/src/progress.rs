//! Shows the progress, and detects stuck scenarios.
//!
//! A scenario that loops without ever awaiting cannot be cancelled from inside. Its seed is
//! printed, and the program exits.

use std::collections::BTreeMap;
use std::io::{self, IsTerminal as _, Write as _};
use std::process;
use std::sync::mpsc::{Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use parking_lot::Mutex;
use simulation::Outcome;

/// Without a terminal, one line is printed for so many scenarios.
const EVERY: u64 = 1000;
const INTERVAL: Duration = Duration::from_secs(1);

pub(crate) struct Progress {
    seeds: u64,
    time_limit: Duration,
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    /// Running scenarios, and when they began.
    running: BTreeMap<u64, Instant>,
    done: u64,
    failed: u64,
}

impl Progress {
    pub(crate) fn new(seeds: u64, time_limit: Duration) -> Self {
        Self {
            seeds,
            time_limit,
            state: Mutex::default(),
        }
    }

    pub(crate) fn begin(&self, seed: u64) {
        self.state.lock().running.insert(seed, Instant::now());
    }

    pub(crate) fn end(&self, seed: u64, outcome: &Outcome) {
        let mut state = self.state.lock();
        state.running.remove(&seed);
        state.done += 1;
        state.failed += u64::from(outcome.violation.is_some());
        if state.done.is_multiple_of(EVERY) && !io::stderr().is_terminal() {
            print(&format!("{}\n", self.line(&state)));
        }
    }

    /// Watches until the other end of the channel is dropped.
    #[expect(clippy::needless_pass_by_value, reason = "the receiver ends with this")]
    pub(crate) fn watch(&self, is_done: Receiver<()>) {
        let is_terminal = io::stderr().is_terminal();
        while is_done.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let state = self.state.lock();
            if is_terminal {
                print(&format!("\r{}", self.line(&state)));
            }
            if let Some(seed) = self.stuck(&state, Instant::now()) {
                let seconds = self.time_limit.as_secs();
                print(&format!(
                    "seed {seed}: hot loop: did not end within {seconds} s\n"
                ));
                process::exit(1);
            }
        }
        if is_terminal {
            print("\r");
        }
    }

    fn line(&self, state: &State) -> String {
        format!(
            "{} of {} scenarios, {} failed",
            state.done, self.seeds, state.failed
        )
    }

    fn stuck(&self, state: &State, now: Instant) -> Option<u64> {
        let mut all = state.running.iter();
        let (seed, _) = all.find(|(_, since)| now - **since > self.time_limit)?;
        Some(*seed)
    }
}

fn print(text: &str) {
    if write!(io::stderr(), "{text}").is_err() {
        // There is no terminal to print to.
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_scenario_is_reported() {
        let progress = Progress::new(3, Duration::from_mins(1));
        progress.begin(1);
        progress.begin(2);
        let state = progress.state.lock();
        let began = state.running[&1];
        assert_eq!(
            progress.stuck(&state, began + Duration::from_secs(59)),
            None
        );
        assert_eq!(
            progress.stuck(&state, began + Duration::from_secs(62)),
            Some(1)
        );
        assert_eq!(progress.line(&state), "0 of 3 scenarios, 0 failed");
    }
}
