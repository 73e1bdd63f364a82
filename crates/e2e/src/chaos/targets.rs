//! Chooses the next process and kills it.

use std::fmt;

use tokio::time::Instant;

use super::{
    Guest,
    environment::{ChaosEnvironment, Target},
};
use crate::{TestNamespace, eventually, kill, processes_of_pod, random::Random};

/// A killed process.
#[derive(Debug)]
pub(super) struct Killed {
    pub(super) target: Target,
    pub(super) process: i32,
    /// The number of processes of its kind before.
    pub(super) count: usize,
    pub(super) at: Instant,
    /// For kinds in pods, the guest's name and the UID of its pod.
    pub(super) of: Option<(String, String)>,
}

impl Killed {
    /// Whether as many processes run as before, without the killed one.
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
    /// The kinds left in this round; each is killed once per round.
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

    /// Kills the next process with SIGKILL, and restarts it if it has no supervisor.
    pub(super) async fn kill_next(&mut self) -> Killed {
        let environment = &self.test.environment;
        if self.bag.is_empty() {
            self.bag = environment.targets();
        }
        let at = self.random.below(self.bag.len());
        let target = self.bag.remove(at);
        let guest = &self.guests[self.random.below(self.guests.len())];
        // A process killed a moment ago may still be restarting.
        let all = eventually("a process to kill", || {
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
