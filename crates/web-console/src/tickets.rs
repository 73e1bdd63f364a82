//! Tickets for downloads: paths that work once, within a minute.
//!
//! A browser saves a file by following a link, which has no place for a key. The ticket in the path stands for a
//! download that its user was permitted; it is in no log that matters, since it is worthless after its use.
//!
//! Invariant: a user has a few tickets and downloads at once, all users together not many; a place is free again
//! when a ticket is too old, or the download is over.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::sessions::{NoRandomness, random};

/// How long a ticket works.
const LIFE: Duration = Duration::from_mins(1);
/// Tickets and downloads of a user.
pub(crate) const OF_USER: usize = 4;
/// Tickets and downloads of all users.
pub(crate) const OF_ALL: usize = 32;

/// A place among the downloads of a user and of all users, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _of_user: OwnedSemaphorePermit,
    _of_all: OwnedSemaphorePermit,
}

struct Ticket<T> {
    download: T,
    place: Place,
    until: Instant,
}

/// The tickets that were not used yet.
pub(crate) struct Tickets<T> {
    inner: Mutex<Inner<T>>,
    all: Arc<Semaphore>,
}

struct Inner<T> {
    open: HashMap<String, Ticket<T>>,
    users: HashMap<String, Arc<Semaphore>>,
}

/// Why there is no ticket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoTicket {
    /// The user has as many as a user may have.
    User,
    /// There are as many as there may be.
    All,
    Randomness,
}

impl From<NoRandomness> for NoTicket {
    fn from(_: NoRandomness) -> Self {
        Self::Randomness
    }
}

impl<T> Default for Tickets<T> {
    fn default() -> Self {
        Self {
            inner: Mutex::new(Inner {
                open: HashMap::new(),
                users: HashMap::new(),
            }),
            all: Arc::new(Semaphore::new(OF_ALL)),
        }
    }
}

impl<T> Tickets<T> {
    /// A ticket of the user for a download.
    pub(crate) fn issue(&self, user: &str, download: T) -> Result<String, NoTicket> {
        let ticket = random()?;
        let mut inner = self.inner.lock();
        inner.forget_old();
        let of_user = inner.users.entry(user.to_owned());
        let of_user = of_user.or_insert_with(|| Arc::new(Semaphore::new(OF_USER)));
        let of_user = Arc::clone(of_user).try_acquire_owned();
        let of_all = Arc::clone(&self.all).try_acquire_owned();
        let place = Place {
            _of_user: of_user.map_err(|_| NoTicket::User)?,
            _of_all: of_all.map_err(|_| NoTicket::All)?,
        };
        let until = Instant::now() + LIFE;
        let one = Ticket {
            download,
            place,
            until,
        };
        inner.open.insert(ticket.clone(), one);
        Ok(ticket)
    }

    /// Takes the download of a ticket, with its place; `None` if the ticket does not work, or no longer.
    pub(crate) fn take(&self, ticket: &str) -> Option<(T, Place)> {
        let found = self.inner.lock().open.remove(ticket)?;
        (Instant::now() < found.until).then_some((found.download, found.place))
    }
}

impl<T> Inner<T> {
    fn forget_old(&mut self) {
        let now = Instant::now();
        self.open.retain(|_, one| now < one.until);
        // A permit holds its semaphore.
        self.users.retain(|_, one| Arc::strong_count(one) > 1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ticket_works_once_and_for_a_minute() {
        let tickets = Tickets::default();
        let first = tickets.issue("ann", 1).unwrap();
        let second = tickets.issue("ann", 2).unwrap();
        assert_ne!(first, second);
        assert_eq!(tickets.take(&first).map(|(one, _)| one), Some(1));
        assert!(tickets.take(&first).is_none());
        assert!(tickets.take("").is_none());
        tokio::time::advance(LIFE).await;
        assert!(tickets.take(&second).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_tickets_and_downloads_is_bounded() {
        let tickets = Tickets::default();
        let all: Vec<String> = (0..OF_USER)
            .map(|number| tickets.issue("ann", number).unwrap())
            .collect();
        assert_eq!(tickets.issue("ann", 9), Err(NoTicket::User));
        // A download that runs keeps its place, a ticket only while it works.
        let running = tickets.take(&all[0]).unwrap();
        assert_eq!(tickets.issue("ann", 9), Err(NoTicket::User));
        tokio::time::advance(LIFE).await;
        for number in 1..OF_USER {
            tickets.issue("ann", number).unwrap();
        }
        assert_eq!(tickets.issue("ann", 9), Err(NoTicket::User));
        drop(running);
        tickets.issue("ann", 9).unwrap();
        for number in OF_USER..OF_ALL {
            tickets.issue(&format!("user-{number}"), number).unwrap();
        }
        assert_eq!(tickets.issue("bob", 9), Err(NoTicket::All));
        tokio::time::advance(LIFE).await;
        tickets.issue("bob", 9).unwrap();
        assert_eq!(tickets.inner.lock().users.len(), 1);
    }
}
