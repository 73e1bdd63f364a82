//! Every manifest under `examples/` works as it is: it parses, matches its schema without unknown
//! fields, is admitted, survives our types without loss, and is described and listed.
//!
//! An example begins with a comment line that describes it; the table of `examples/README.md` repeats
//! that line. Two more comment lines have a meaning: `# gates: A, B` names the feature gates that it
//! needs, `# warns: text` a warning that its author gets.

pub(crate) mod admitted;
pub(crate) mod catalogue;
mod guide;
mod index;
mod pages;
mod references;
mod schemas;
mod seeds;
mod typed;

use catalogue::{Example, examples};

#[test]
fn there_are_at_least_100_examples() {
    assert!(examples().len() >= 100, "{} examples", examples().len());
}
