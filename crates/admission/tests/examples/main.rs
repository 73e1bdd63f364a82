//! Everything under `examples/` is a manifest that works as it stands: it reads, fits its schema to
//! the last field name, is admitted, loses nothing in our types, and is explained and listed.
//!
//! An example begins with a line of comment that says what it shows; the table of
//! `examples/README.md` repeats it. Two more lines of comment mean something: `# gates: A, B` names
//! the feature gates that it needs, `# warns: text` a warning that its author gets.

mod admitted;
mod catalogue;
mod guide;
mod index;
mod references;
mod schemas;
mod seeds;
mod typed;

use catalogue::{Example, examples};

#[test]
fn there_are_examples_of_everything() {
    assert!(examples().len() >= 100, "{} examples", examples().len());
}
