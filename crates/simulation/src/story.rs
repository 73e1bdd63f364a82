//! One story: a seed decides what people ask for and what goes wrong; then all is well again, and
//! is judged.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use reconcile::Clock;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::cluster::Cluster;
use crate::guests::Guests;
use crate::judge;
use crate::nodes::{Manners, Node, Power};
use crate::plane::Plane;
use crate::processes::{Machines, Process, begin};
use crate::random::Random;
use crate::tally::Tally;
use crate::told::Told;
use crate::user::User;

const NODES: [&str; 2] = ["node1", "node2"];
const STEP: Duration = Duration::from_millis(700);
/// In virtual time: back-offs of five minutes, nodes that were gone.
const DEADLINE: Duration = Duration::from_mins(40);
/// All of a story, in virtual time: what goes wrong takes its share besides.
const LONGEST: Duration = Duration::from_hours(3);
/// In which nobody may write anything.
const REST: Duration = Duration::from_mins(10);

/// How a story ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    pub seed: u64,
    /// What should not have happened, and what came before it.
    pub violation: Option<String>,
    /// One number for all that happened: the same seed gives the same.
    pub fingerprint: u64,
    pub requests: u64,
    pub writes: u64,
    /// Changes by anybody but the controllers.
    pub changes: u64,
}

/// Tells the story of a seed.
pub fn tell(seed: u64) -> Ending {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    match runtime {
        // Made inside: times that are taken must be the paused clock's.
        Ok(runtime) => runtime.block_on(async move {
            let story = Story::new(seed);
            let (tally, cluster) = (story.tally.clone(), story.cluster.clone());
            bounded(&tally, story.run())
                .await
                .unwrap_or_else(|why| Ending {
                    seed,
                    violation: Some(explain(&tally, &why)),
                    fingerprint: tally.fingerprint(),
                    requests: tally.requests(),
                    writes: tally.writes(),
                    changes: changes(&tally, &cluster),
                })
        }),
        Err(error) => Ending {
            seed,
            violation: Some(format!("no runtime: {error}")),
            fingerprint: 0,
            requests: 0,
            writes: 0,
            changes: 0,
        },
    }
}

/// Breaks off what would never end, and says why.
async fn bounded<T>(tally: &Tally, work: impl Future<Output = T>) -> Result<T, String> {
    tokio::select! {
        biased;
        why = tally.overrun() => Err(why),
        done = timeout(LONGEST, Box::pin(work)) => {
            done.map_err(|_elapsed| format!("does not end within {LONGEST:?}"))
        }
    }
}

fn explain(tally: &Tally, why: &str) -> String {
    let last = tally.last().join("\n  ");
    format!("{why}\n  {last}")
}

fn changes(tally: &Tally, cluster: &Cluster) -> u64 {
    cluster.revision().saturating_sub(tally.writes_done())
}

struct Story {
    seed: u64,
    random: Random,
    cluster: Cluster,
    guests: Guests,
    tally: Tally,
    is_bad: Arc<AtomicBool>,
    power: BTreeMap<&'static str, Told<Power>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Story {
    fn new(seed: u64) -> Self {
        let power = NODES.map(|name| (name, Told::new(Power::On)));
        Self {
            seed,
            random: Random::new(seed),
            cluster: Cluster::new(Clock::starting_at(begin())),
            guests: Guests::default(),
            tally: Tally::new(),
            is_bad: Arc::new(AtomicBool::new(true)),
            power: power.into(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    async fn run(mut self) -> Ending {
        self.start_world();
        let mut machines = Machines {
            cluster: self.cluster.clone(),
            tally: self.tally.clone(),
            is_bad: Arc::clone(&self.is_bad),
            tasks: self.tasks.clone(),
            random: self.random.fork(),
            started: 0,
        };
        let mut processes = vec![machines.start(), machines.start()];
        let mut user = User {
            cluster: self.cluster.clone(),
            guests: self.guests.clone(),
            random: self.random.fork(),
        };
        for _ in 0..(10 + self.random.below(15)) {
            sleep(self.random.up_to(Duration::from_secs(40))).await;
            let did = if self.random.chance(650) {
                user.act()
            } else {
                self.disturb(&mut machines, &mut processes).await
            };
            self.tally.tell(&did);
        }
        self.mend(&mut machines, &mut processes);
        user.go_home();
        let violation = self.judge().await;
        for process in processes {
            process.end().await;
        }
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        Ending {
            seed: self.seed,
            violation: violation.map(|why| explain(&self.tally, &why)),
            fingerprint: self.tally.fingerprint(),
            requests: self.tally.requests(),
            writes: self.tally.writes(),
            changes: changes(&self.tally, &self.cluster),
        }
    }

    fn start_world(&mut self) {
        for name in NODES {
            let skew = i64::try_from(self.random.below(1200)).unwrap_or(0) - 600;
            let node = Node {
                name: name.to_owned(),
                cluster: self.cluster.clone(),
                guests: self.guests.clone(),
                random: self.random.fork(),
                manners: Manners {
                    step: STEP,
                    is_bad: Arc::clone(&self.is_bad),
                },
                power: self.power[name].listen(),
                skew: SignedDuration::from_secs(skew),
            };
            self.tasks.spawn(node.run(self.stop.clone()));
        }
        let receivers = self.power.iter();
        let plane = Plane {
            cluster: self.cluster.clone(),
            random: self.random.fork(),
            step: STEP,
            nodes: receivers
                .map(|(name, power)| ((*name).to_owned(), power.listen()))
                .collect(),
        };
        self.tasks.spawn(plane.run(self.stop.clone()));
    }

    /// Something goes wrong, or right again.
    async fn disturb(&mut self, machines: &mut Machines, all: &mut Vec<Process>) -> String {
        let at = self.random.below(all.len());
        match self.random.below(9) {
            0 | 1 if !all.is_empty() => {
                all.remove(at).kill();
                all.push(machines.start());
                "a controller is killed, another comes".to_owned()
            }
            2 if !all.is_empty() => {
                all.remove(at).end().await;
                all.push(machines.start());
                "a controller ends, another comes".to_owned()
            }
            3 if !all.is_empty() => {
                all.remove(at).kill();
                "a controller is killed".to_owned()
            }
            4 if all.len() < 3 => {
                all.push(machines.start());
                "a controller comes".to_owned()
            }
            5 => {
                for process in all.iter() {
                    process.line.thaw();
                }
                "all lines work".to_owned()
            }
            6 | 7 if !all.is_empty() => {
                all[at].line.freeze();
                "the line of a controller is stuck".to_owned()
            }
            _ => {
                let name = *self.random.pick(&NODES).unwrap_or(&NODES[0]);
                let powers = [Power::On, Power::On, Power::Unreachable, Power::Off];
                let power = *self.random.pick(&powers).unwrap_or(&Power::On);
                self.power[name].set(power);
                format!("{name} is {power:?}")
            }
        }
    }

    fn mend(&self, machines: &mut Machines, all: &mut Vec<Process>) {
        self.tally.tell("all is well again");
        self.is_bad.store(false, Ordering::Relaxed);
        for power in self.power.values() {
            power.set(Power::On);
        }
        for process in all.iter() {
            process.line.thaw();
        }
        if all.is_empty() {
            all.push(machines.start());
        }
    }

    /// What must not be at any time.
    fn violation(&self) -> Option<String> {
        self.guests.violation().or_else(|| self.cluster.wronged())
    }

    async fn judge(&self) -> Option<String> {
        if let Some(violation) = self.violation() {
            return Some(violation);
        }
        let since = Instant::now();
        while let Err(why) = judge::settled(&self.cluster, &self.guests) {
            if since.elapsed() >= DEADLINE {
                return Some(format!("not settled: {why}"));
            }
            sleep(Duration::from_secs(5)).await;
        }
        // What was under way when it looked settled.
        sleep(Duration::from_secs(30)).await;
        let before = self.tally.writes();
        sleep(REST).await;
        let after = self.tally.writes();
        if after != before {
            return Some(format!("{} writes while nothing changed", after - before));
        }
        if let Err(why) = judge::settled(&self.cluster, &self.guests) {
            return Some(format!("settled and then not: {why}"));
        }
        if let Some(violation) = self.violation() {
            return Some(violation);
        }
        let (writes, changes) = (self.tally.writes(), changes(&self.tally, &self.cluster));
        let most = 60 + 6 * changes;
        (writes > most).then(|| format!("{writes} writes for {changes} changes"))
    }
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http::{Method, StatusCode};

    use super::{Tally, bounded, tell};

    #[test]
    fn the_same_seed_tells_the_same_story() {
        // In some of them many wait for the same at once.
        for seed in [1, 7001, 7023] {
            let (first, again) = (tell(seed), tell(seed));
            assert_eq!(first, again);
            assert!(first.requests > 100, "{first:?}");
        }
        assert_ne!(tell(1).fingerprint, tell(2).fingerprint);
    }

    #[tokio::test(start_paused = true)]
    async fn what_never_ends_is_named_in_place_of_waited_for() {
        let tally = Tally::new();
        let loops = async {
            loop {
                tally.note(&Method::PATCH, "/a", StatusCode::OK);
                tokio::task::yield_now().await;
            }
        };
        let why = bounded::<()>(&tally, loops).await.unwrap_err();
        assert!(why.starts_with("hot loop: 20000 writes"), "{why}");

        let why = bounded::<()>(&Tally::new(), pending()).await.unwrap_err();
        assert!(why.starts_with("does not end within"), "{why}");
    }

    #[test]
    fn a_few_stories_end_well() {
        // Those apart from the others found something once.
        for seed in (100..110).chain([323, 633, 1063, 2775]) {
            let ending = tell(seed);
            assert_eq!(ending.violation, None, "seed {seed}");
        }
    }
}
