//! Appends the duration of each test to the file named by `FERROVIRT_E2E_TIMES`.

use std::{env, fs::File, io::Write, thread, time::Duration};

/// Records the duration of the test on this thread.
pub(crate) fn record(took: Duration) {
    let Some(path) = env::var_os("FERROVIRT_E2E_TIMES").filter(|path| !path.is_empty()) else {
        return;
    };
    let thread = thread::current();
    let test = thread.name().unwrap_or("?");
    let end = if thread::panicking() { " (failed)" } else { "" };
    let line = format!("{:7.1} s  {test}{end}\n", took.as_secs_f64());
    let file = File::options().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(err) = written {
        println!("write {}: {err}", path.display());
    }
}
