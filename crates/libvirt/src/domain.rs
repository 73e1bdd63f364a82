//! Domains and their states, decoded from numbers on the wire.

use std::fmt;

use crate::ProtocolError;
use crate::xdr::{Decoder, Encoder};

/// The identity of a domain; its numeric id changes at each start.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct DomainUuid(pub [u8; 16]);

impl DomainUuid {
    /// Parses the usual form with dashes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut digits = text.bytes().filter(|byte| *byte != b'-');
        let mut uuid = [0; 16];
        for byte in &mut uuid {
            *byte = hex(digits.next()?)? << 4 | hex(digits.next()?)?;
        }
        digits.next().is_none().then_some(Self(uuid))
    }
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    }
}

impl fmt::Display for DomainUuid {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (at, byte) in self.0.iter().enumerate() {
            let dash = if matches!(at, 4 | 6 | 8 | 10) {
                "-"
            } else {
                ""
            };
            write!(to, "{dash}{byte:02x}")?;
        }
        Ok(())
    }
}

impl fmt::Debug for DomainUuid {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, to)
    }
}

/// A domain as calls identify it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Domain {
    pub name: String,
    pub uuid: DomainUuid,
    /// `None` while it is not running.
    pub id: Option<u32>,
}

impl Domain {
    pub(crate) fn decode(from: &mut Decoder<'_>) -> Result<Self, ProtocolError> {
        Ok(Self {
            name: from.string()?,
            uuid: from.uuid()?,
            id: u32::try_from(from.i32()?).ok(),
        })
    }

    pub(crate) fn encode(&self, to: Encoder) -> Encoder {
        let id = self.id.and_then(|id| i32::try_from(id).ok()).unwrap_or(-1);
        to.string(&self.name).uuid(self.uuid).i32(id)
    }
}

/// The state of a domain, with the reason where callers need it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DomainState {
    NoState,
    Running(RunningReason),
    Blocked,
    Paused(PausedReason),
    ShuttingDown,
    Shutoff(ShutoffReason),
    Crashed,
    Suspended,
    Unknown(i32),
}

impl DomainState {
    pub(crate) fn decode(state: i32, reason: i32) -> Self {
        match state {
            0 => Self::NoState,
            1 => Self::Running(RunningReason::decode(reason)),
            2 => Self::Blocked,
            3 => Self::Paused(PausedReason::decode(reason)),
            4 => Self::ShuttingDown,
            5 => Self::Shutoff(ShutoffReason::decode(reason)),
            6 => Self::Crashed,
            7 => Self::Suspended,
            other => Self::Unknown(other),
        }
    }
}

/// What tells the end of a migration; all other reasons are one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RunningReason {
    Other,
    /// All of the domain has come from another host.
    Migrated,
    /// The rest of its memory follows.
    Postcopy,
    /// The rest of its memory cannot follow any more.
    PostcopyFailed,
}

impl RunningReason {
    fn decode(reason: i32) -> Self {
        match reason {
            2 => Self::Migrated,
            10 => Self::Postcopy,
            11 => Self::PostcopyFailed,
            _ => Self::Other,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PausedReason {
    Unknown,
    User,
    Migration,
    Save,
    Dump,
    IoError,
    Watchdog,
    FromSnapshot,
    ShuttingDown,
    Snapshot,
    Crashed,
    StartingUp,
    Postcopy,
    PostcopyFailed,
    ApiError,
}

impl PausedReason {
    fn decode(reason: i32) -> Self {
        match reason {
            1 => Self::User,
            2 => Self::Migration,
            3 => Self::Save,
            4 => Self::Dump,
            5 => Self::IoError,
            6 => Self::Watchdog,
            7 => Self::FromSnapshot,
            8 => Self::ShuttingDown,
            9 => Self::Snapshot,
            10 => Self::Crashed,
            11 => Self::StartingUp,
            12 => Self::Postcopy,
            13 => Self::PostcopyFailed,
            14 => Self::ApiError,
            _ => Self::Unknown,
        }
    }
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ShutoffReason {
    /// Not started since it was defined, or since the server was restarted.
    Unknown,
    Shutdown,
    Destroyed,
    Crashed,
    Migrated,
    Saved,
    /// The start failed.
    Failed,
    FromSnapshot,
    /// The server lost its connection to QEMU.
    Daemon,
}

impl ShutoffReason {
    fn decode(reason: i32) -> Self {
        match reason {
            1 => Self::Shutdown,
            2 => Self::Destroyed,
            3 => Self::Crashed,
            4 => Self::Migrated,
            5 => Self::Saved,
            6 => Self::Failed,
            7 => Self::FromSnapshot,
            8 => Self::Daemon,
            _ => Self::Unknown,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_domain_says_how_its_migration_ended() {
        use RunningReason::{Migrated, Other, Postcopy, PostcopyFailed};
        for (reason, expected) in [
            (1, Other),
            (2, Migrated),
            (5, Other),
            (10, Postcopy),
            (11, PostcopyFailed),
            (99, Other),
        ] {
            let found = DomainState::decode(1, reason);
            assert_eq!(found, DomainState::Running(expected), "{reason}");
        }
    }

    #[test]
    fn uuid_is_written_as_parsed() {
        let text = "69a61d3f-50cc-4611-b6e2-e53205a02bad";
        assert_eq!(DomainUuid::parse(text).unwrap().to_string(), text);
        for bad in [
            "",
            "69a61d3f",
            "69a61d3f-50cc-4611-b6e2-e53205a02bad0",
            "zza61d3f-50cc-4611-b6e2-e53205a02bad",
        ] {
            assert_eq!(DomainUuid::parse(bad), None, "{bad}");
        }
    }
}
