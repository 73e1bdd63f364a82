//! Texts that only servers with the same key can make and read.
//!
//! Invariant: a text is bound to the ticket that it belongs to; the key reveals nothing of the secret that it was
//! derived from.

use std::{fmt, sync::Arc};

use aws_lc_rs::{
    aead::{AES_256_GCM, Aad, NONCE_LEN, Nonce, RandomizedNonceKey},
    hmac,
};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use parking_lot::RwLock;

const PURPOSE: &[u8] = b"tickets of the web console";

/// The key by which the replicas of a server read each other's tickets. Clones share a replacement.
#[derive(Clone)]
pub struct TicketKey {
    key: Arc<RwLock<[u8; 32]>>,
}

impl TicketKey {
    /// Derives it from a secret that all replicas have.
    pub fn of(secret: &str) -> Self {
        Self {
            key: Arc::new(RwLock::new(derived(secret))),
        }
    }

    /// Tickets of the old key are no longer read.
    pub fn replace(&self, secret: &str) {
        *self.key.write() = derived(secret);
    }

    /// The text, encrypted for the path of a URL.
    pub(crate) fn seal(&self, ticket: &str, mut text: Vec<u8>) -> Option<String> {
        let bound = Aad::from(ticket.as_bytes());
        let nonce = self.cipher()?.seal_in_place_append_tag(bound, &mut text);
        let nonce = nonce.ok()?;
        let nonce: &[u8; NONCE_LEN] = nonce.as_ref();
        text.extend_from_slice(nonce);
        Some(URL_SAFE_NO_PAD.encode(text))
    }

    /// The text that a server with this key has sealed for the ticket.
    pub(crate) fn open(&self, ticket: &str, sealed: &str) -> Option<Vec<u8>> {
        let mut text = URL_SAFE_NO_PAD.decode(sealed).ok()?;
        let nonce = text.split_off(text.len().checked_sub(NONCE_LEN)?);
        let nonce = Nonce::try_assume_unique_for_key(&nonce).ok()?;
        let bound = Aad::from(ticket.as_bytes());
        let opened = self.cipher()?.open_in_place(nonce, bound, &mut text).ok()?;
        Some(opened.to_vec())
    }

    fn cipher(&self) -> Option<RandomizedNonceKey> {
        RandomizedNonceKey::new(&AES_256_GCM, &*self.key.read()).ok()
    }
}

impl fmt::Debug for TicketKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TicketKey(..)")
    }
}

fn derived(secret: &str) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, secret.as_bytes());
    let tag = hmac::sign(&key, PURPOSE);
    let mut derived = [0; 32];
    for (to, from) in derived.iter_mut().zip(tag.as_ref()) {
        *to = *from;
    }
    derived
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_with_the_same_key_and_ticket_only() {
        let (one, replica, other) = (
            TicketKey::of("secret"),
            TicketKey::of("secret"),
            TicketKey::of("other"),
        );
        let sealed = one.seal("t", b"text".to_vec()).unwrap();
        assert!(!sealed.contains("text"));
        let again = one.seal("t", b"text".to_vec()).unwrap();
        assert_ne!(sealed, again);
        assert_eq!(replica.open("t", &sealed).unwrap(), b"text");
        assert_eq!(replica.open("u", &sealed), None);
        assert_eq!(other.open("t", &sealed), None);
        for broken in ["", "AAAA", "!", &sealed[1..]] {
            assert_eq!(replica.open("t", broken), None, "{broken}");
        }
        replica.replace("other");
        assert_eq!(replica.open("t", &sealed), None);
        assert!(!format!("{one:?}").contains("secret"));
    }
}
