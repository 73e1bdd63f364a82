//! How long each story took, for whoever wants to know: a line for each in the file that
//! `FERROVIRT_STORY_TIMES` names.

use std::{env, fs::File, io::Write, thread, time::Duration};

/// Notes the time of the story that this thread tells.
pub(crate) fn record(took: Duration) {
    let Some(path) = env::var_os("FERROVIRT_STORY_TIMES").filter(|path| !path.is_empty()) else {
        return;
    };
    let thread = thread::current();
    let story = thread.name().unwrap_or("?");
    let end = if thread::panicking() { " (failed)" } else { "" };
    let line = format!("{:7.1} s  {story}{end}\n", took.as_secs_f64());
    let file = File::options().create(true).append(true).open(&path);
    let written = file.and_then(|mut file| file.write_all(line.as_bytes()));
    if let Err(err) = written {
        println!("write {}: {err}", path.display());
    }
}
