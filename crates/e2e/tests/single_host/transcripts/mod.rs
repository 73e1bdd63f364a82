//! What every command of `virtctl` prints about real guests.
//!
//! `tiny` has the commands for which the tiny guest is enough. Those that need SSH or a guest agent are called on the
//! guest of the test `debian`, by `debian::checks_transcripts`. The transcripts are in `crates/e2e/transcripts`.

pub(crate) mod debian;
mod tiny;
