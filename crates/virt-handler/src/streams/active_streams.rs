//! One stream per device: a new one closes the previous one.

use std::collections::HashMap;

use parking_lot::Mutex;
use reconcile::Key;
use tokio_util::sync::CancellationToken;

/// A device of a guest.
type Device = (Key, &'static str);

/// The stream that is connected to a device.
#[derive(Debug)]
struct Active {
    number: u64,
    closed: CancellationToken,
}

/// The open streams.
#[derive(Debug, Default)]
pub(crate) struct ActiveStreams {
    open: Mutex<HashMap<Device, Active>>,
}

/// The registration of a stream, removed on drop.
#[derive(Debug)]
pub(crate) struct StreamSlot<'a> {
    streams: &'a ActiveStreams,
    device: Device,
    number: u64,
    /// Cancelled when another stream to the device opens.
    pub(crate) closed: CancellationToken,
}

impl ActiveStreams {
    /// Registers a stream and closes the previous one.
    pub(crate) fn acquire(&self, key: Key, device: &'static str) -> StreamSlot<'_> {
        let closed = CancellationToken::new();
        let device = (key, device);
        let mut open = self.open.lock();
        let number = match open.remove(&device) {
            Some(previous) => {
                previous.closed.cancel();
                previous.number + 1
            }
            None => 0,
        };
        let active = Active {
            number,
            closed: closed.clone(),
        };
        open.insert(device.clone(), active);
        StreamSlot {
            streams: self,
            device,
            number,
            closed,
        }
    }

    pub(crate) fn is_active(&self, key: &Key, device: &'static str) -> bool {
        self.open.lock().contains_key(&(key.clone(), device))
    }
}

impl Drop for StreamSlot<'_> {
    fn drop(&mut self) {
        let mut open = self.streams.open.lock();
        if open
            .get(&self.device)
            .is_some_and(|active| active.number == self.number)
        {
            open.remove(&self.device);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn second_stream_closes_the_first_and_stays_active() {
        let streams = ActiveStreams::default();
        let key = Key::new("default", "vm");
        let first = streams.acquire(key.clone(), "console");
        let second = streams.acquire(key.clone(), "console");
        assert!(first.closed.is_cancelled());
        drop(first);
        assert!(!second.closed.is_cancelled());
        assert!(streams.is_active(&key, "console"));
        drop(second);
        assert!(!streams.is_active(&key, "console"));
    }
}
