//! OOM scores: which process the kernel ends first when the host runs out of memory.
//!
//! The values are those of a kubelet and its container runtime. Only a process with `CAP_SYS_RESOURCE` may
//! lower a score, so without it everything runs with the score it inherits, or a higher one.

use std::{fs, io};

/// The process that serves everything else: ended last.
pub const SERVER: i32 = -999;
/// Supervisors of pods.
pub(crate) const SUPERVISOR: i32 = -998;

const FILE: &str = "/proc/self/oom_score_adj";

/// The score of this process.
pub(crate) fn own() -> io::Result<i32> {
    parse(&fs::read_to_string(FILE)?)
}

fn parse(text: &str) -> io::Result<i32> {
    text.trim()
        .parse()
        .map_err(|error| io::Error::new(io::ErrorKind::InvalidData, error))
}

/// Sets the score of this process. Returns whether the kernel permits it.
pub fn adjust(score: i32) -> io::Result<bool> {
    match fs::write(FILE, score.to_string()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => Ok(false),
        Err(error) => Err(error),
    }
}

/// The score for a container: never lower than that of the process which creates it.
pub(crate) fn of_container(wanted: i32, creator: i32) -> i32 {
    wanted.max(creator)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn container_never_needs_a_permission_for_its_score() {
        for (wanted, creator, expected) in [
            (-997, SUPERVISOR, -997),
            (1000, SUPERVISOR, 1000),
            (-997, 0, 0),
            (2, 0, 2),
            (500, 1000, 1000),
        ] {
            assert_eq!(
                of_container(wanted, creator),
                expected,
                "{wanted} {creator}"
            );
        }
    }

    #[test]
    fn own_score_can_be_read_and_kept() {
        let score = own().unwrap();
        assert!(adjust(score).unwrap(), "no permission is needed to keep it");
        assert!(parse("much").is_err());
    }
}
