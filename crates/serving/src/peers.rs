//! Bounds of connections: how many of one address, and how long one without requests stays open.

use std::{collections::HashMap, net::IpAddr, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::time::{Instant, sleep_until};

/// The open connections of each address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Addresses(Arc<Mutex<HashMap<IpAddr, usize>>>);

/// One connection of an address, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    addresses: Addresses,
    address: IpAddr,
}

impl Addresses {
    /// None if the address has as many as it may.
    pub(crate) fn enter(&self, address: IpAddr, limit: usize) -> Option<Place> {
        let address = address.to_canonical();
        let mut counts = self.0.lock();
        let count = counts.entry(address).or_default();
        if *count >= limit {
            return None;
        }
        *count = count.saturating_add(1);
        Some(Place {
            addresses: self.clone(),
            address,
        })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut counts = self.addresses.0.lock();
        if let Some(count) = counts.get_mut(&self.address) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                counts.remove(&self.address);
            }
        }
    }
}

/// The requests of one connection.
#[derive(Debug, Clone)]
pub(crate) struct Activity(Arc<Mutex<Requests>>);

#[derive(Debug)]
struct Requests {
    running: usize,
    /// The end of the last one.
    since: Instant,
}

/// A running request, whose response may still be on its way.
#[derive(Debug)]
pub(crate) struct Busy(Activity);

impl Activity {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Mutex::new(Requests {
            running: 0,
            since: Instant::now(),
        })))
    }

    pub(crate) fn begin(&self) -> Busy {
        let mut requests = self.0.lock();
        requests.running = requests.running.saturating_add(1);
        Busy(self.clone())
    }

    /// Ends once there was no request for this long.
    pub(crate) async fn idle(&self, limit: Duration) {
        loop {
            let (running, since) = {
                let requests = self.0.lock();
                (requests.running, requests.since)
            };
            let now = Instant::now();
            let until = if running > 0 { now } else { since } + limit;
            if until <= now {
                return;
            }
            sleep_until(until).await;
        }
    }
}

impl Drop for Busy {
    fn drop(&mut self) {
        let mut requests = self.0.0.lock();
        requests.running = requests.running.saturating_sub(1);
        requests.since = Instant::now();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_of_an_address_are_bounded() {
        let addresses = Addresses::default();
        let [one, mapped, other]: [IpAddr; 3] =
            ["10.0.0.1", "::ffff:10.0.0.1", "10.0.0.2"].map(|text| text.parse().unwrap());
        let first = addresses.enter(one, 2).unwrap();
        let _second = addresses.enter(mapped, 2).unwrap();
        assert!(addresses.enter(one, 2).is_none());
        drop(addresses.enter(other, 2).unwrap());
        drop(first);
        assert!(addresses.enter(one, 2).is_some());
        assert_eq!(addresses.0.lock().len(), 1, "only what is open is counted");
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_idle_after_its_last_request() {
        let limit = Duration::from_secs(100);
        let activity = Activity::new();
        let begin = Instant::now();
        activity.idle(limit).await;
        assert_eq!(begin.elapsed(), limit);

        let request = activity.begin();
        let is_idle = tokio::time::timeout(limit * 50, activity.idle(limit)).await;
        is_idle.expect_err("a request is running");
        drop(request);
        let end = Instant::now();
        activity.idle(limit).await;
        assert_eq!(end.elapsed(), limit);
    }
}
