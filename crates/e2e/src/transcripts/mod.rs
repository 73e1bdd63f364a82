//! Transcripts of `virtctl` against real guests: the calls of a command and what they print, compared with a file in
//! `crates/e2e/transcripts`, one for each command.
//!
//! - `recorder` calls the program and keeps what it prints;
//! - `masks` replaces what differs from run to run;
//! - `files` compares with the files, or writes them anew when `FERROVIRT_WRITE_TRANSCRIPTS` is set.
//!
//! A test of the crate `virtctl` checks that each of its commands has a file.

mod files;
mod masks;
mod recorder;

pub use recorder::Transcripts;
