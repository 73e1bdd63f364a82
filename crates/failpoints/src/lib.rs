//! Failpoints: named points right after an effect, at which a test kills the process that caused it.
//! The successor has to find out from the effect alone what was done.
//!
//! Every effect of a start, a stop and the preparation of volumes has a failpoint with a unique name.
//! All names are in `names.txt`, which `cargo xtask tidy` compares with the sources.
//!
//! Tests of processes write the names of failpoints into a file, one a line, and pass its path in
//! `FERROVIRT_FAILPOINTS`. The first process that reaches one of them removes the line from the file
//! and dies as by `kill -9`; its successor and all other processes pass the failpoint. Tests that run
//! the code in their own tasks set a [`Trap`], which defines the action of a failpoint.
//!
//! **Invariants**: no effect in a release build, whatever the environment contains; a failpoint kills
//! one process once.

/// All names, one a line.
pub const NAMES: &str = include_str!("../names.txt");

/// The environment variable with the path of the file of active failpoints.
pub const VARIABLE: &str = "FERROVIRT_FAILPOINTS";

/// Marks the point right after the effect of this name.
#[inline]
pub fn after(name: &str) {
    #[cfg(debug_assertions)]
    armed::after(name);
    #[cfg(not(debug_assertions))]
    let _: &str = name;
}

#[cfg(debug_assertions)]
pub use armed::Trap;

#[cfg(debug_assertions)]
mod armed {
    use std::{
        cell::RefCell,
        fmt,
        fs::File,
        io::{self, Read as _, Seek as _, Write as _},
        path::{Path, PathBuf},
        sync::{Arc, OnceLock},
    };

    use parking_lot::Mutex;
    use rustix::process::{Signal, getpid, kill_process};

    static FILE: OnceLock<Option<PathBuf>> = OnceLock::new();

    thread_local! {
        static TRAP: RefCell<Option<Trap>> = const { RefCell::new(None) };
    }

    /// The action of a failpoint for the threads that entered the trap. Clones are the same trap.
    #[derive(Clone, Default)]
    pub struct Trap(Arc<Mutex<Option<Set>>>);

    struct Set {
        name: String,
        action: Box<dyn FnOnce() + Send>,
    }

    impl fmt::Debug for Trap {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("Trap")
        }
    }

    impl Trap {
        pub fn new() -> Self {
            Self::default()
        }

        /// Makes the trap apply to this thread.
        pub fn enter(&self) {
            TRAP.replace(Some(self.clone()));
        }

        /// The first thread that reaches that failpoint runs `action`. Replaces the previous setting.
        pub fn set(&self, name: &str, action: impl FnOnce() + Send + 'static) {
            let set = Set {
                name: name.to_owned(),
                action: Box::new(action),
            };
            self.0.lock().replace(set);
        }

        /// Whether no thread has reached the failpoint yet.
        pub fn is_set(&self) -> bool {
            self.0.lock().is_some()
        }

        fn spring(&self, name: &str) {
            let set = self.0.lock().take_if(|set| set.name == name);
            if let Some(set) = set {
                (set.action)();
            }
        }
    }

    pub(super) fn after(name: &str) {
        // Cloned, because the action may reach other failpoints.
        if let Some(trap) = TRAP.with_borrow(Clone::clone) {
            trap.spring(name);
        }
        let file = FILE.get_or_init(|| std::env::var_os(super::VARIABLE).map(PathBuf::from));
        let Some(file) = file else { return };
        // If the file cannot be read, the test detects that its failpoint was not reached.
        if take(file, name).unwrap_or(false) {
            end();
        }
    }

    /// Removes the name from the file; returns whether it was there.
    pub(super) fn take(file: &Path, name: &str) -> io::Result<bool> {
        let mut file = File::options().read(true).write(true).open(file)?;
        // Several processes may reach failpoints at once.
        file.lock()?;
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        let left: Vec<&str> = text.lines().filter(|line| *line != name).collect();
        if left.len() == text.lines().count() {
            return Ok(false);
        }
        file.set_len(0)?;
        file.rewind()?;
        for line in left {
            writeln!(file, "{line}")?;
        }
        Ok(true)
    }

    fn end() -> ! {
        // Process 1 of a PID namespace ignores its own signals.
        let _killed = kill_process(getpid(), Signal::KILL);
        std::process::abort()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_sorted_and_well_formed() {
        let names: Vec<&str> = NAMES.lines().collect();
        let mut sorted = names.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert_eq!(names, sorted);
        for name in names {
            let shape = |letter: char| letter.is_ascii_lowercase() || "/-".contains(letter);
            assert!(name.contains('/') && name.chars().all(shape), "{name}");
        }
    }

    #[cfg(debug_assertions)]
    #[test]
    fn trap_applies_once_and_only_to_its_threads() {
        use std::sync::Arc;
        use std::sync::atomic::{AtomicUsize, Ordering};

        let (mine, other) = (Trap::new(), Trap::new());
        let count = Arc::new(AtomicUsize::new(0));
        for trap in [&mine, &other] {
            let counted = Arc::clone(&count);
            trap.set("one/a", move || {
                counted.fetch_add(1, Ordering::Relaxed);
            });
        }
        let reach = |trap: Option<Trap>, name: &'static str| {
            let thread = std::thread::spawn(move || {
                if let Some(trap) = trap {
                    trap.enter();
                }
                after(name);
            });
            thread.join().unwrap();
        };
        reach(Some(mine.clone()), "one/b");
        reach(None, "one/a");
        assert_eq!((count.load(Ordering::Relaxed), mine.is_set()), (0, true));
        reach(Some(mine.clone()), "one/a");
        reach(Some(mine.clone()), "one/a");
        assert_eq!((count.load(Ordering::Relaxed), mine.is_set()), (1, false));
        assert!(other.is_set());
    }

    #[cfg(debug_assertions)]
    #[test]
    fn name_is_removed_once_and_others_stay() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "one/a\none/b\n").unwrap();
        let take = |name| armed::take(file.path(), name).unwrap();
        assert!(!take("one/c"));
        assert!(take("one/a"));
        assert!(!take("one/a"));
        assert_eq!(std::fs::read_to_string(file.path()).unwrap(), "one/b\n");
        assert!(take("one/b"));
    }
}
