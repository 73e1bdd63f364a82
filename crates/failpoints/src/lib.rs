//! Places right after an effect, at which a test ends who carried it out: what was done is not
//! remembered anywhere but in what was done.
//!
//! Every effect of a start, a stop and the setting up of volumes has such a place, with a name of
//! its own. All names are in `names.txt`, which `cargo xtask tidy` holds against the sources.
//!
//! Where processes are tested, a test writes the names of the places to come into a file, one a
//! line, and gives the file's path in `FERROVIRT_FAILPOINTS`. The first process that comes to one
//! of them takes the line out of the file and is gone, as by `kill -9`. Its successor comes past,
//! and so does everybody else. Where what is tested are tasks of the test itself, a [`Trap`] says
//! what a name does to the threads that run them.
//!
//! **Invariants**: nothing at all in a release build, whatever the environment says; a name ends
//! one life once.

/// All names, one a line.
pub const NAMES: &str = include_str!("../names.txt");

/// The variable that names the file of the places to come.
pub const VARIABLE: &str = "FERROVIRT_FAILPOINTS";

/// The effect of this name was carried out.
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

    /// What a name does to the threads of one life. Clones are the same trap.
    #[derive(Clone, Default)]
    pub struct Trap(Arc<Mutex<Option<Set>>>);

    struct Set {
        name: String,
        act: Box<dyn FnOnce() + Send>,
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

        /// From now on this thread can fall into it.
        pub fn enter(&self) {
            TRAP.replace(Some(self.clone()));
        }

        /// The first thread that comes to that place does `act`, in place of what was set before.
        pub fn set(&self, name: &str, act: impl FnOnce() + Send + 'static) {
            let set = Set {
                name: name.to_owned(),
                act: Box::new(act),
            };
            self.0.lock().replace(set);
        }

        /// Nobody has come to the place yet.
        pub fn is_set(&self) -> bool {
            self.0.lock().is_some()
        }

        fn spring(&self, name: &str) {
            let set = self.0.lock().take_if(|set| set.name == name);
            if let Some(set) = set {
                (set.act)();
            }
        }
    }

    pub(super) fn after(name: &str) {
        // A copy: whoever springs it may come to other places on the way.
        if let Some(trap) = TRAP.with_borrow(Clone::clone) {
            trap.spring(name);
        }
        let file = FILE.get_or_init(|| std::env::var_os(super::VARIABLE).map(PathBuf::from));
        let Some(file) = file else { return };
        // A test whose file cannot be read finds that its place was not come to.
        if take(file, name).unwrap_or(false) {
            end();
        }
    }

    /// Takes the name out of the file; says whether it was there.
    pub(super) fn take(file: &Path, name: &str) -> io::Result<bool> {
        let mut file = File::options().read(true).write(true).open(file)?;
        // Several processes come here at once.
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
        // Process 1 of a namespace does not die of its own signals.
        let _killed = kill_process(getpid(), Signal::KILL);
        std::process::abort()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_in_order_and_of_one_shape() {
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
    fn threads_of_a_life_come_to_its_places_only_and_once() {
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
        let come = |trap: Option<Trap>, name: &'static str| {
            let life = std::thread::spawn(move || {
                if let Some(trap) = trap {
                    trap.enter();
                }
                after(name);
            });
            life.join().unwrap();
        };
        come(Some(mine.clone()), "one/b");
        come(None, "one/a");
        assert_eq!((count.load(Ordering::Relaxed), mine.is_set()), (0, true));
        come(Some(mine.clone()), "one/a");
        come(Some(mine.clone()), "one/a");
        assert_eq!((count.load(Ordering::Relaxed), mine.is_set()), (1, false));
        assert!(other.is_set());
    }

    #[cfg(debug_assertions)]
    #[test]
    fn a_name_is_taken_once_and_others_stay() {
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
