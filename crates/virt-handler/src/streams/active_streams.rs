//! One stream per device: a new one closes the previous one, or takes another device that is free.

use std::{collections::HashMap, sync::Arc};

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
pub(crate) struct StreamSlot {
    streams: Arc<ActiveStreams>,
    device: Device,
    number: u64,
    /// Cancelled when another stream to the device opens.
    pub(crate) closed: CancellationToken,
    /// Whether another stream was closed for this one.
    pub(crate) has_replaced: bool,
}

impl ActiveStreams {
    /// Registers a stream and closes the previous one.
    pub(crate) fn acquire(self: &Arc<Self>, key: Key, device: &'static str) -> StreamSlot {
        let closed = CancellationToken::new();
        let device = (key, device);
        let mut open = self.open.lock();
        let previous = open.remove(&device);
        let has_replaced = previous.is_some();
        let number = match previous {
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
            streams: Arc::clone(self),
            device,
            number,
            closed,
            has_replaced,
        }
    }

    /// Registers a stream to the first of these devices that has none.
    pub(crate) fn acquire_free(
        self: &Arc<Self>,
        key: &Key,
        devices: &[&'static str],
    ) -> Option<StreamSlot> {
        let closed = CancellationToken::new();
        let mut open = self.open.lock();
        let mut devices = devices.iter().map(|device| (key.clone(), *device));
        let device = devices.find(|device| !open.contains_key(device))?;
        let active = Active {
            number: 0,
            closed: closed.clone(),
        };
        open.insert(device.clone(), active);
        Some(StreamSlot {
            streams: Arc::clone(self),
            device,
            number: 0,
            closed,
            has_replaced: false,
        })
    }

    pub(crate) fn is_active(&self, key: &Key, device: &'static str) -> bool {
        self.open.lock().contains_key(&(key.clone(), device))
    }
}

impl StreamSlot {
    /// The device that it is connected to.
    pub(crate) fn device(&self) -> &'static str {
        self.device.1
    }
}

impl Drop for StreamSlot {
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
        let streams = Arc::new(ActiveStreams::default());
        let key = Key::new("default", "vm");
        let first = streams.acquire(key.clone(), "console");
        let second = streams.acquire(key.clone(), "console");
        assert!(first.closed.is_cancelled());
        assert_eq!((first.has_replaced, second.has_replaced), (false, true));
        drop(first);
        assert!(!second.closed.is_cancelled());
        assert!(streams.is_active(&key, "console"));
        drop(second);
        assert!(!streams.is_active(&key, "console"));
    }

    #[test]
    fn streams_to_any_of_several_devices_take_free_ones() {
        let streams = Arc::new(ActiveStreams::default());
        let key = Key::new("default", "vm");
        let take = || streams.acquire_free(&key, &["a", "b"]);
        let (first, second) = (take().unwrap(), take().unwrap());
        assert_eq!((first.device(), second.device()), ("a", "b"));
        assert!(take().is_none());
        drop(first);
        assert_eq!(take().unwrap().device(), "a");
        assert!(!second.closed.is_cancelled());
    }
}
