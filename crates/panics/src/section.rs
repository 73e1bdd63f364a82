//! Whether the current thread runs a confined section.

use std::cell::{Cell, RefCell};

/// What the hook needs to know about its thread.
#[derive(Debug, Clone, Copy, Default)]
struct State {
    /// Confined sections, one within the other.
    depth: u32,
    /// The innermost section has panicked and is cleaned up.
    cleans_up: bool,
}

thread_local! {
    static STATE: Cell<State> = const { Cell::new(State { depth: 0, cleans_up: false }) };
    /// The place of the last panic in a confined section.
    static PLACE: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// A confined section of this thread, until it is dropped.
#[derive(Debug)]
pub(crate) struct Section {
    outer: State,
}

impl Section {
    pub(crate) fn enter() -> Self {
        let outer = STATE.get();
        STATE.set(State {
            depth: outer.depth.saturating_add(1),
            cleans_up: false,
        });
        Self { outer }
    }
}

impl Drop for Section {
    fn drop(&mut self) {
        STATE.set(self.outer);
    }
}

/// Whether a panic of this thread is confined. False during the cleanup after another one.
pub(crate) fn confines() -> bool {
    let state = STATE.get();
    state.depth > 0 && !state.cleans_up
}

/// Notes a panic of the current section.
pub(crate) fn note(place: String) {
    STATE.set(State {
        cleans_up: true,
        ..STATE.get()
    });
    PLACE.set(Some(place));
}

/// The place of the panic that was noted.
pub(crate) fn take_place() -> Option<String> {
    PLACE.take()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_nest_and_end() {
        assert!(!confines());
        let outer = Section::enter();
        assert!(confines());
        note("there".to_owned());
        assert!(!confines(), "a second panic would be too much");
        let inner = Section::enter();
        assert!(confines(), "a section of the cleanup itself");
        drop(inner);
        assert!(!confines());
        drop(outer);
        assert!(!confines());
        assert_eq!(take_place().as_deref(), Some("there"));
        assert_eq!(take_place(), None);
    }

    #[test]
    fn other_threads_are_not_confined() {
        let _section = Section::enter();
        assert!(!std::thread::spawn(confines).join().unwrap());
    }
}
