//! Whom to kill next, and killing.

use std::fmt;

use tokio::time::Instant;

use super::{
    Guest,
    ground::{Ground, Victim},
};
use crate::{Story, eventually, kill, processes_of_pod, random::Random};

/// Who was killed.
#[derive(Debug)]
pub(super) struct Killed {
    pub(super) victim: Victim,
    pub(super) process: i32,
    /// How many of its kind there were.
    pub(super) count: usize,
    pub(super) at: Instant,
    /// Whose it was, unless everybody's: name of the guest and UID of its pod.
    pub(super) of: Option<(String, String)>,
}

impl Killed {
    /// Whether as many live as before, and it is none of them.
    pub(super) fn is_back<G: Ground>(&self, home: &G) -> bool {
        let now = home.living(&self.victim, self.pod());
        now.len() >= self.count && !now.contains(&self.process)
    }

    fn pod(&self) -> &str {
        self.of.as_ref().map_or("", |(_, pod)| pod)
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.victim)?;
        if let Some((guest, _)) = &self.of {
            write!(f, " of {guest}")?;
        }
        write!(f, " (process {})", self.process)
    }
}

pub(super) struct Victims<'a, G: Ground> {
    story: &'a Story<G>,
    guests: &'a [Guest],
    random: Random,
    /// Each kind once before any comes again.
    bag: Vec<Victim>,
}

impl<'a, G: Ground> Victims<'a, G> {
    pub(super) fn new(story: &'a Story<G>, guests: &'a [Guest], seed: u64) -> Self {
        Self {
            story,
            guests,
            random: Random::new(seed),
            bag: Vec::new(),
        }
    }

    /// `kill -9` of the next, and what a service manager does where it is its service.
    pub(super) async fn kill_next(&mut self) -> Killed {
        let home = &self.story.home;
        if self.bag.is_empty() {
            self.bag = home.victims();
        }
        let at = self.random.below(self.bag.len());
        let victim = self.bag.remove(at);
        let guest = &self.guests[self.random.below(self.guests.len())];
        // One that was killed a moment ago may be about to be started again.
        let all = eventually("there to be killed", || {
            let all = home.living(&victim, &guest.pod);
            if all.is_empty() {
                Err((victim.clone(), processes_of_pod(&guest.pod)))
            } else {
                Ok(all)
            }
        })
        .await;
        let process = all[self.random.below(all.len())];
        kill(process);
        let at = Instant::now();
        home.started_again(&victim).await;
        let of = victim
            .is_of_guest()
            .then(|| (guest.name.clone(), guest.pod.clone()));
        Killed {
            victim,
            process,
            count: all.len(),
            at,
            of,
        }
    }
}
