//! Tickets for downloads: paths that work once, within a minute.
//!
//! A browser saves a file by following a link, which has no place for a key. The ticket in the path stands for a
//! download that its user was permitted; it is in no log that matters, since it is worthless after its use.
//!
//! A replica of the server knows by the rest of the path what a ticket stands for; it works once at each replica, and
//! once more at one that was started again within its minute.
//!
//! Invariant: a user has a few tickets and downloads at once, as has a namespace, all users together not many; a
//! place is free again when a ticket is too old, or the download is over.

use std::{collections::HashMap, sync::Arc, time::Duration};

use parking_lot::Mutex;
use tokio::{
    sync::{OwnedSemaphorePermit, Semaphore},
    time::Instant,
};

use crate::sessions::{NoRandomness, random};

/// How long a ticket works.
pub(crate) const LIFE: Duration = Duration::from_mins(1);
/// How long a used ticket is remembered; clocks of replicas differ.
pub(crate) const MEMORY: Duration = Duration::from_mins(2);
/// Used tickets that are remembered.
const USED: usize = 4096;
/// Those of a user, who would keep all others from downloads otherwise.
pub(crate) const OFTEN: usize = 64;
/// Tickets and downloads of a user.
pub(crate) const OF_USER: usize = 4;
/// Tickets and downloads of the exports of a namespace, so that its users leave places to others.
pub(crate) const OF_NAMESPACE: usize = 8;
/// Tickets and downloads of all users.
pub(crate) const OF_ALL: usize = 32;

/// A place among the downloads of a user, of a namespace and of all users, until it is dropped.
#[derive(Debug)]
pub(crate) struct Place {
    _user: OwnedSemaphorePermit,
    _namespace: OwnedSemaphorePermit,
    _all: OwnedSemaphorePermit,
}

struct Ticket<T> {
    user: String,
    download: T,
    place: Place,
    until: Instant,
}

/// A ticket that was used.
struct Used {
    user: String,
    until: Instant,
}

/// The tickets that were not used yet, and those that were used lately.
pub(crate) struct Tickets<T> {
    inner: Mutex<Inner<T>>,
    all: Arc<Semaphore>,
}

struct Inner<T> {
    open: HashMap<String, Ticket<T>>,
    used: HashMap<String, Used>,
    users: HashMap<String, Arc<Semaphore>>,
    namespaces: HashMap<String, Arc<Semaphore>>,
}

/// Why there is no ticket.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum NoTicket {
    /// The user has as many as a user may have.
    User,
    /// The user has used as many lately as a user may use.
    Often,
    /// The exports of the namespace have as many as those of a namespace may have.
    Namespace,
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
                used: HashMap::new(),
                users: HashMap::new(),
                namespaces: HashMap::new(),
            }),
            all: Arc::new(Semaphore::new(OF_ALL)),
        }
    }
}

impl<T> Tickets<T> {
    /// A ticket of the user for a download of an export in the namespace.
    pub(crate) fn issue(
        &self,
        user: &str,
        namespace: &str,
        download: T,
    ) -> Result<String, NoTicket> {
        let ticket = random()?;
        let mut inner = self.inner.lock();
        inner.forget_old();
        let place = inner.place(&self.all, user, namespace)?;
        let until = Instant::now() + LIFE;
        let one = Ticket {
            user: user.to_owned(),
            download,
            place,
            until,
        };
        inner.open.insert(ticket.clone(), one);
        Ok(ticket)
    }

    /// Takes the download of a ticket, with its place; `None` if the ticket does not work, or no longer.
    pub(crate) fn take(&self, ticket: &str) -> Option<(T, Place)> {
        let mut inner = self.inner.lock();
        let found = inner.open.remove(ticket)?;
        if found.until <= Instant::now() {
            return None;
        }
        inner.remember(ticket, found.user);
        Some((found.download, found.place))
    }

    /// Forgets a ticket that was not sent to its user.
    pub(crate) fn withdraw(&self, ticket: &str) {
        self.inner.lock().open.remove(ticket);
    }

    /// A place for the ticket of a replica, which works once here; `None` if it was used.
    pub(crate) fn admit(
        &self,
        ticket: &str,
        user: &str,
        namespace: &str,
    ) -> Result<Option<Place>, NoTicket> {
        let mut inner = self.inner.lock();
        inner.forget_old();
        if inner.used.contains_key(ticket) {
            return Ok(None);
        }
        let place = inner.place(&self.all, user, namespace)?;
        inner.remember(ticket, user.to_owned());
        Ok(Some(place))
    }
}

/// A place of the places of that name, if one is free.
fn place_of(
    all: &mut HashMap<String, Arc<Semaphore>>,
    name: &str,
    count: usize,
) -> Option<OwnedSemaphorePermit> {
    let own = all.entry(name.to_owned());
    let own = own.or_insert_with(|| Arc::new(Semaphore::new(count)));
    Arc::clone(own).try_acquire_owned().ok()
}

impl<T> Inner<T> {
    /// A place, if there is also room to remember its ticket.
    fn place(
        &mut self,
        all: &Arc<Semaphore>,
        user: &str,
        namespace: &str,
    ) -> Result<Place, NoTicket> {
        let lately = self.used.values().filter(|one| one.user == user);
        if lately.count() >= OFTEN {
            return Err(NoTicket::Often);
        }
        if self.used.len() >= USED {
            return Err(NoTicket::All);
        }
        let of_user = place_of(&mut self.users, user, OF_USER);
        let of_namespace = place_of(&mut self.namespaces, namespace, OF_NAMESPACE);
        let of_all = Arc::clone(all).try_acquire_owned();
        Ok(Place {
            _user: of_user.ok_or(NoTicket::User)?,
            _namespace: of_namespace.ok_or(NoTicket::Namespace)?,
            _all: of_all.map_err(|_| NoTicket::All)?,
        })
    }

    fn remember(&mut self, ticket: &str, user: String) {
        let until = Instant::now() + MEMORY;
        self.used.insert(ticket.to_owned(), Used { user, until });
    }

    fn forget_old(&mut self) {
        let now = Instant::now();
        self.used.retain(|_, one| now < one.until);
        self.open.retain(|_, one| now < one.until);
        // A permit holds its semaphore.
        for all in [&mut self.users, &mut self.namespaces] {
            all.retain(|_, one| Arc::strong_count(one) > 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn ticket_works_once_and_for_a_minute() {
        let tickets = Tickets::default();
        let first = tickets.issue("ann", "a", 1).unwrap();
        let second = tickets.issue("ann", "a", 2).unwrap();
        assert_ne!(first, second);
        assert_eq!(tickets.take(&first).map(|(one, _)| one), Some(1));
        assert!(tickets.take(&first).is_none());
        assert!(tickets.take("").is_none());
        tokio::time::advance(LIFE).await;
        assert!(tickets.take(&second).is_none());
    }

    #[tokio::test(start_paused = true)]
    async fn ticket_of_a_replica_works_once_and_takes_a_place() {
        let tickets = Tickets::default();
        let own = tickets.issue("ann", "a", 1).unwrap();
        let running = tickets.take(&own).unwrap();
        // It was used as a ticket of this server.
        assert!(tickets.admit(&own, "ann", "a").unwrap().is_none());
        let mut places = vec![running.1];
        for number in 1..OF_USER {
            let ticket = format!("other-{number}");
            places.push(tickets.admit(&ticket, "ann", "a").unwrap().unwrap());
            assert!(tickets.admit(&ticket, "ann", "a").unwrap().is_none());
        }
        assert_eq!(
            tickets.admit("one-more", "ann", "a").err(),
            Some(NoTicket::User)
        );
        drop(places);
        tickets.admit("one-more", "ann", "a").unwrap().unwrap();
        tokio::time::advance(MEMORY).await;
        tickets.issue("ann", "a", 1).unwrap();
        assert!(tickets.inner.lock().used.is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn user_who_downloads_all_the_time_leaves_room_to_others() {
        let tickets = Tickets::default();
        for number in 0..OFTEN {
            if number % 2 == 0 {
                let ticket = tickets.issue("ann", "a", number).unwrap();
                assert!(tickets.take(&ticket).is_some());
            } else {
                let ticket = format!("other-{number}");
                assert!(tickets.admit(&ticket, "ann", "a").unwrap().is_some());
            }
        }
        assert_eq!(tickets.issue("ann", "a", 9), Err(NoTicket::Often));
        assert_eq!(tickets.admit("x", "ann", "a").err(), Some(NoTicket::Often));
        tickets.issue("bob", "a", 9).unwrap();
        for number in OFTEN..USED {
            let (ticket, user) = (format!("other-{number}"), format!("user-{number}"));
            assert!(tickets.admit(&ticket, &user, "a").unwrap().is_some());
        }
        assert_eq!(tickets.issue("eve", "a", 9), Err(NoTicket::All));
        tokio::time::advance(MEMORY).await;
        tickets.issue("ann", "a", 9).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn withdrawn_ticket_leaves_its_place_and_no_trace() {
        let tickets = Tickets::default();
        for number in 0..OFTEN * 2 {
            let ticket = tickets.issue("ann", "a", number).unwrap();
            tickets.withdraw(&ticket);
            assert!(tickets.take(&ticket).is_none());
        }
    }

    #[tokio::test(start_paused = true)]
    async fn number_of_tickets_and_downloads_is_bounded() {
        let tickets = Tickets::default();
        let all: Vec<String> = (0..OF_USER)
            .map(|number| tickets.issue("ann", "a", number).unwrap())
            .collect();
        assert_eq!(tickets.issue("ann", "a", 9), Err(NoTicket::User));
        // A download that runs keeps its place, a ticket only while it works.
        let running = tickets.take(&all[0]).unwrap();
        assert_eq!(tickets.issue("ann", "a", 9), Err(NoTicket::User));
        tokio::time::advance(LIFE).await;
        for number in 1..OF_USER {
            tickets.issue("ann", "a", number).unwrap();
        }
        assert_eq!(tickets.issue("ann", "a", 9), Err(NoTicket::User));
        drop(running);
        tickets.issue("ann", "a", 9).unwrap();
        for number in OF_USER..OF_ALL {
            let (user, namespace) = (format!("user-{number}"), (number % 8).to_string());
            tickets.issue(&user, &namespace, number).unwrap();
        }
        assert_eq!(tickets.issue("bob", "b", 9), Err(NoTicket::All));
        tokio::time::advance(LIFE).await;
        tickets.issue("bob", "b", 9).unwrap();
        let inner = tickets.inner.lock();
        assert_eq!((inner.users.len(), inner.namespaces.len()), (1, 1));
    }

    #[tokio::test(start_paused = true)]
    async fn namespace_leaves_places_to_others() {
        let tickets = Tickets::default();
        for number in 0..OF_NAMESPACE {
            let user = format!("user-{number}");
            tickets.issue(&user, "a", number).unwrap();
        }
        assert_eq!(tickets.issue("ann", "a", 9), Err(NoTicket::Namespace));
        tickets.issue("ann", "b", 9).unwrap();
    }
}
