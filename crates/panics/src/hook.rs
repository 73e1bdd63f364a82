//! What happens at a panic, before anything is unwound.

use std::{
    backtrace::Backtrace,
    io::Write as _,
    panic::PanicHookInfo,
    process,
    thread::{self, Thread},
};

use parking_lot::Mutex;
use tracing::Level;

use crate::section;

/// Longer messages are cut: they may contain what a client sent.
const MAX_MESSAGE: usize = 4 << 10;
/// Places whose backtrace was logged. A client that causes the same panic again does not fill the log with it.
const MAX_PLACES: usize = 64;

static PLACES: Mutex<Vec<String>> = Mutex::new(Vec::new());

/// Has every panic logged, and those outside of confined sections end the process as an abort does, so that its
/// supervisor starts it again. Call it first in `main`.
pub fn install() {
    std::panic::set_hook(Box::new(on_panic));
}

fn on_panic(info: &PanicHookInfo<'_>) {
    let is_confined = section::confines();
    let report = Report {
        message: cut(info.payload_as_str().unwrap_or("(not a text)")),
        place: info
            .location()
            .map_or_else(|| "an unknown place".to_owned(), ToString::to_string),
        outcome: if is_confined {
            "what panicked ends, the process goes on"
        } else {
            "the process ends"
        },
    };
    report.log(!is_confined);
    if !is_confined {
        process::abort();
    }
    section::note(report.place);
}

struct Report<'a> {
    message: &'a str,
    place: String,
    outcome: &'static str,
}

impl Report<'_> {
    fn log(&self, is_last: bool) {
        let Self {
            message,
            place,
            outcome,
        } = self;
        let current = thread::current();
        let thread = Thread::name(&current).unwrap_or_default();
        let backtrace = if is_last || is_new(&mut PLACES.lock(), place) {
            Backtrace::force_capture().to_string()
        } else {
            String::new()
        };
        if tracing::enabled!(Level::ERROR) {
            tracing::error!(error = message, place, thread, outcome, backtrace, "panic");
            return;
        }
        // Nothing logs yet, or this program has no log. Standard error may be closed.
        let text = format!("panic at {place}: {message:?} ({outcome})\n{backtrace}\n");
        std::io::stderr().write_all(text.as_bytes()).ok();
    }
}

/// Whether this place has not panicked before, as far as it is remembered.
fn is_new(places: &mut Vec<String>, place: &str) -> bool {
    let is_new = places.len() < MAX_PLACES && !places.iter().any(|known| known == place);
    if is_new {
        places.push(place.to_owned());
    }
    is_new
}

fn cut(message: &str) -> &str {
    let end = message.floor_char_boundary(MAX_MESSAGE);
    message.get(..end).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn backtrace_of_a_place_is_logged_once() {
        let mut places = Vec::new();
        assert!(is_new(&mut places, "a.rs:1:1"));
        assert!(!is_new(&mut places, "a.rs:1:1"));
        let new = (0..100)
            .filter(|line| is_new(&mut places, &format!("b.rs:{line}:1")))
            .count();
        assert_eq!(new, MAX_PLACES - 1, "memory is bounded");
    }

    #[test]
    fn long_messages_are_cut_between_characters() {
        assert_eq!(cut("short"), "short");
        assert_eq!(cut(&"ä".repeat(MAX_MESSAGE)).len(), MAX_MESSAGE);
        let odd = format!("a{}", "ä".repeat(MAX_MESSAGE));
        assert_eq!(cut(&odd).len(), MAX_MESSAGE - 1);
    }
}
