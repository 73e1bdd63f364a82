//! Links that work once, and the keys they are exchanged for.
//!
//! A link can be read from a list of processes or a terminal's history; after its first use it is worthless.
//! A key is known to one browser tab only, which keeps it in the storage of this origin. A cookie would be
//! sent to every port of the host.

use std::collections::VecDeque;

use aws_lc_rs::{constant_time::verify_slices_are_equal, rand};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::Mutex;
use tokio::sync::Notify;

/// Tabs that are open at once. A key costs a link that was printed, so this is never reached by accident.
const KEYS: usize = 32;

/// The secret part of a link.
#[derive(Clone, PartialEq, Eq)]
pub struct Link(String);

impl Link {
    pub fn secret(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Debug for Link {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Link(..)")
    }
}

/// The link that is valid now, and the keys of tabs.
#[derive(Default)]
pub struct Sessions {
    link: Mutex<Option<Link>>,
    keys: Mutex<VecDeque<String>>,
    used: Notify,
}

impl Sessions {
    /// Makes a link; an earlier one is no longer valid.
    pub fn issue_link(&self) -> Result<Link, NoRandomness> {
        let link = Link(random()?);
        *self.link.lock() = Some(link.clone());
        Ok(link)
    }

    /// Waits until the link was used.
    pub async fn link_used(&self) {
        self.used.notified().await;
    }

    /// Exchanges the secret of a link for a key. `None` if it is not the link that is valid now.
    pub(crate) fn redeem(&self, secret: &str) -> Result<Option<String>, NoRandomness> {
        let mut link = self.link.lock();
        if !link.as_ref().is_some_and(|link| same(&link.0, secret)) {
            return Ok(None);
        }
        let key = random()?;
        let mut keys = self.keys.lock();
        if keys.len() >= KEYS {
            keys.pop_front();
        }
        keys.push_back(key.clone());
        *link = None;
        self.used.notify_one();
        Ok(Some(key))
    }

    /// Whether a tab has this key.
    pub(crate) fn knows(&self, key: &str) -> bool {
        self.keys.lock().iter().any(|known| same(known, key))
    }
}

impl std::fmt::Debug for Sessions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Sessions").finish_non_exhaustive()
    }
}

/// The operating system has no random numbers.
#[derive(Debug)]
pub struct NoRandomness;

impl std::fmt::Display for NoRandomness {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("read random numbers from the operating system")
    }
}

impl std::error::Error for NoRandomness {}

pub(crate) fn random() -> Result<String, NoRandomness> {
    let mut bytes = [0; 32];
    rand::fill(&mut bytes).map_err(|_| NoRandomness)?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

/// Compares without revealing by its duration where the two differ.
fn same(known: &str, given: &str) -> bool {
    verify_slices_are_equal(known.as_bytes(), given.as_bytes()).is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_works_once() {
        let sessions = Sessions::default();
        assert_eq!(sessions.redeem("").unwrap(), None);
        let link = sessions.issue_link().unwrap();
        assert_eq!(sessions.redeem("wrong").unwrap(), None);
        let key = sessions.redeem(link.secret()).unwrap().expect("a key");
        assert_eq!(sessions.redeem(link.secret()).unwrap(), None);
        assert!(sessions.knows(&key));
        assert!(!sessions.knows("") && !sessions.knows(link.secret()));
    }

    #[test]
    fn new_link_replaces_the_old_one() {
        let sessions = Sessions::default();
        let old = sessions.issue_link().unwrap();
        let new = sessions.issue_link().unwrap();
        assert_ne!(old, new);
        assert_eq!(sessions.redeem(old.secret()).unwrap(), None);
        assert!(sessions.redeem(new.secret()).unwrap().is_some());
    }

    #[test]
    fn number_of_keys_is_bounded() {
        let sessions = Sessions::default();
        let keys: Vec<String> = (0..=KEYS)
            .map(|_| {
                let link = sessions.issue_link().unwrap();
                sessions.redeem(link.secret()).unwrap().expect("a key")
            })
            .collect();
        assert!(!sessions.knows(&keys[0]));
        assert!(keys[1..].iter().all(|key| sessions.knows(key)));
    }
}
