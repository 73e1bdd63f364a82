//! Failures with an exit code of their own, and what to do about failures that say only what is wrong.

use std::{fmt, io};

/// The command line is wrong, in a way that only the command itself can find: exit code 2, as for what
/// clap refuses.
#[derive(Debug)]
pub(crate) struct Usage(String);

impl Usage {
    pub(crate) fn new(message: impl Into<String>) -> Self {
        Self(message.into())
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

/// What to do about an error of this computer.
pub(crate) fn advice(error: &anyhow::Error) -> Option<&'static str> {
    error.chain().find_map(|cause| {
        let error: &io::Error = cause.downcast_ref()?;
        match error.kind() {
            io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
                Some("make room there, or choose another directory, and try again")
            }
            _ => None,
        }
    })
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;

    use super::*;

    #[test]
    fn errors_of_this_computer_have_advice() {
        let advised = |kind: io::ErrorKind| {
            let failed: Result<(), _> = Err(io::Error::from(kind));
            advice(&failed.context("write a.img").unwrap_err())
        };
        for (kind, word) in [
            (io::ErrorKind::StorageFull, "make room"),
            (io::ErrorKind::QuotaExceeded, "make room"),
        ] {
            assert!(advised(kind).unwrap().contains(word), "{kind}");
        }
        assert_eq!(advised(io::ErrorKind::PermissionDenied), None);
        assert_eq!(advice(&anyhow::anyhow!("no")), None);
    }
}
