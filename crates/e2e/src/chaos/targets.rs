//! Whom to kill next, and killing.

use std::fmt;

use tokio::time::Instant;

use super::{
    Guest,
    environment::{ChaosEnvironment, Target},
};
use crate::{TestNamespace, eventually, kill, processes_of_pod, random::Random};

/// Who was killed.
#[derive(Debug)]
pub(super) struct Killed {
    pub(super) target: Target,
    pub(super) process: i32,
    /// How many of its kind there were.
    pub(super) count: usize,
    pub(super) at: Instant,
    /// Whose it was, unless everybody's: name of the guest and UID of its pod.
    pub(super) of: Option<(String, String)>,
}

impl Killed {
    /// Whether as many live as before, and it is none of them.
    pub(super) fn is_back<G: ChaosEnvironment>(&self, environment: &G) -> bool {
        let now = environment.processes_of(&self.target, self.pod());
        now.len() >= self.count && !now.contains(&self.process)
    }

    fn pod(&self) -> &str {
        self.of.as_ref().map_or("", |(_, pod)| pod)
    }
}

impl fmt::Display for Killed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.target)?;
        if let Some((guest, _)) = &self.of {
            write!(f, " of {guest}")?;
        }
        write!(f, " (process {})", self.process)
    }
}

pub(super) struct Targets<'a, G: ChaosEnvironment> {
    test: &'a TestNamespace<G>,
    guests: &'a [Guest],
    random: Random,
    /// Each kind once before any comes again.
    bag: Vec<Target>,
}

impl<'a, G: ChaosEnvironment> Targets<'a, G> {
    pub(super) fn new(test: &'a TestNamespace<G>, guests: &'a [Guest], seed: u64) -> Self {
        Self {
            test,
            guests,
            random: Random::new(seed),
            bag: Vec::new(),
        }
    }

    /// `kill -9` of the next, and what a service manager does where it is its service.
    pub(super) async fn kill_next(&mut self) -> Killed {
        let environment = &self.test.environment;
        if self.bag.is_empty() {
            self.bag = environment.targets();
        }
        let at = self.random.below(self.bag.len());
        let target = self.bag.remove(at);
        let guest = &self.guests[self.random.below(self.guests.len())];
        // One that was killed a moment ago may be about to be started again.
        let all = eventually("there to be killed", || {
            let all = environment.processes_of(&target, &guest.pod);
            if all.is_empty() {
                Err((target.clone(), processes_of_pod(&guest.pod)))
            } else {
                Ok(all)
            }
        })
        .await;
        let process = all[self.random.below(all.len())];
        kill(process);
        let at = Instant::now();
        environment.restart(&target).await;
        let of = target
            .is_of_guest()
            .then(|| (guest.name.clone(), guest.pod.clone()));
        Killed {
            target,
            process,
            count: all.len(),
            at,
            of,
        }
    }
}
