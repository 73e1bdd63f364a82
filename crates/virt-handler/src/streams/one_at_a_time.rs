//! One stream per device: a new one ends the old.

use std::collections::HashMap;

use parking_lot::Mutex;
use reconcile::Key;
use tokio_util::sync::CancellationToken;

/// A guest and the name of its device.
type Device = (Key, &'static str);
/// The number of the stream that has the place, and how to end it.
type Taken = (u64, CancellationToken);

/// The streams that are open now.
#[derive(Debug, Default)]
pub(crate) struct OneAtATime {
    open: Mutex<HashMap<Device, Taken>>,
}

/// A place among the streams, given back when dropped.
#[derive(Debug)]
pub(crate) struct Place<'a> {
    all: &'a OneAtATime,
    at: Device,
    number: u64,
    pub(crate) ended: CancellationToken,
}

impl OneAtATime {
    /// Takes the place and tells whoever had it to end.
    pub(crate) fn take(&self, key: Key, device: &'static str) -> Place<'_> {
        let ended = CancellationToken::new();
        let at = (key, device);
        let mut open = self.open.lock();
        let number = match open.remove(&at) {
            Some((number, previous)) => {
                previous.cancel();
                number + 1
            }
            None => 0,
        };
        open.insert(at.clone(), (number, ended.clone()));
        Place {
            all: self,
            at,
            number,
            ended,
        }
    }

    pub(crate) fn is_taken(&self, key: &Key, device: &'static str) -> bool {
        self.open.lock().contains_key(&(key.clone(), device))
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let mut open = self.all.open.lock();
        if open
            .get(&self.at)
            .is_some_and(|(number, _)| *number == self.number)
        {
            open.remove(&self.at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_second_stream_ends_the_first_and_keeps_the_place() {
        let all = OneAtATime::default();
        let key = Key::new("default", "vm");
        let first = all.take(key.clone(), "console");
        let second = all.take(key.clone(), "console");
        assert!(first.ended.is_cancelled());
        drop(first);
        assert!(!second.ended.is_cancelled());
        assert!(all.is_taken(&key, "console"));
        drop(second);
        assert!(!all.is_taken(&key, "console"));
    }
}
