//! What a ticket for a download stands for, as replicas of the server read it in its path.
//!
//! Invariant: one that works is no older than used tickets are remembered, so that it works once at each replica,
//! however much the clocks of the replicas differ.

use k8s_openapi::jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::{
    seal::TicketKey,
    tickets::{LIFE, MEMORY},
};

/// The longest one in a path. Proxies take 8 KiB and more.
const LONGEST: usize = 6 << 10;

/// A download and whose it is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Described {
    pub(crate) user: String,
    pub(crate) namespace: String,
    pub(crate) url: String,
    pub(crate) authority: Option<String>,
    pub(crate) token: String,
    pub(crate) name: String,
}

#[derive(Serialize, Deserialize)]
struct Dated<T> {
    /// In seconds.
    until: i64,
    download: T,
}

impl Described {
    /// `None` if it is too long for a path: only this server knows the ticket then.
    pub(crate) fn seal(&self, key: &TicketKey, ticket: &str, now: Timestamp) -> Option<String> {
        let life = i64::try_from(LIFE.as_secs()).ok()?;
        let until = now.as_second().saturating_add(life);
        let dated = Dated {
            until,
            download: self,
        };
        let text = serde_json::to_vec(&dated).ok()?;
        let sealed = key.seal(ticket, text)?;
        (sealed.len() <= LONGEST).then_some(sealed)
    }

    /// What a replica has sealed for the ticket; `None` if it does not work at this time.
    pub(crate) fn open(
        key: &TicketKey,
        (ticket, sealed): (&str, &str),
        now: Timestamp,
    ) -> Option<Self> {
        if sealed.len() > LONGEST {
            return None;
        }
        let text = key.open(ticket, sealed)?;
        let dated: Dated<Self> = serde_json::from_slice(&text).ok()?;
        let left = u64::try_from(dated.until.checked_sub(now.as_second())?).ok()?;
        (1..=MEMORY.as_secs())
            .contains(&left)
            .then_some(dated.download)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn described() -> Described {
        Described {
            user: "ann".to_owned(),
            namespace: "a".to_owned(),
            url: "https://export/disk.img".to_owned(),
            authority: None,
            token: "secret".to_owned(),
            name: "disk.img".to_owned(),
        }
    }

    #[test]
    fn path_works_for_a_minute_and_with_clocks_that_differ_by_one() {
        let key = TicketKey::of("key");
        let now = |second| Timestamp::from_second(second).unwrap();
        let sealed = described().seal(&key, "t", now(1000)).unwrap();
        for (second, works) in [
            (1000, true),
            (1059, true),
            (1060, false),
            (5000, false),
            // The clock of the replica is late.
            (940, true),
            (939, false),
        ] {
            let found = Described::open(&key, ("t", &sealed), now(second));
            assert_eq!(found, works.then(described), "{second}");
        }
    }

    #[test]
    fn long_description_is_in_no_path() {
        let key = TicketKey::of("key");
        let now = Timestamp::UNIX_EPOCH;
        let mut long = described();
        long.authority = Some("x".repeat(LONGEST));
        assert_eq!(long.seal(&key, "t", now), None);
        let sealed = "A".repeat(LONGEST + 1);
        assert_eq!(Described::open(&key, ("t", &sealed), now), None);
    }
}
