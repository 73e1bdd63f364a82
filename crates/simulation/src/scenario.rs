//! One scenario: a seed decides what users request and which faults occur; then the faults end and
//! the result is checked.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use jiff::SignedDuration;
use reconcile::Clock;
use serde_json::json;
use tokio::runtime::Builder;
use tokio::time::{Instant, sleep, timeout};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::checks;
use crate::cluster::{Author, Cluster, Id, Kind, Patch};
use crate::control_plane::ControlPlane;
use crate::features::Features;
use crate::guests::{Guests, Limits};
use crate::nodes::{Behaviour, Node, Power};
use crate::processes::{NAMESPACE, Process, Starter, begin};
use crate::random::Random;
use crate::record::Record;
use crate::user::User;
use crate::watch::Watch;

const NODES: [&str; 2] = ["node1", "node2"];
const STEP: Duration = Duration::from_millis(700);
/// For convergence after the faults, in virtual time: back-offs of five minutes, lost nodes.
const DEADLINE: Duration = Duration::from_mins(40);
/// A whole scenario, in virtual time, faults included.
const LONGEST: Duration = Duration::from_hours(3);
/// The time after convergence in which no controller may write.
const QUIET: Duration = Duration::from_mins(10);

/// The result of a scenario.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outcome {
    pub seed: u64,
    /// The failed check, and the events before it.
    pub violation: Option<String>,
    /// A hash of all events: the same seed gives the same.
    pub fingerprint: u64,
    pub requests: u64,
    pub writes: u64,
    /// Changes by anything but the controllers.
    pub changes: u64,
    /// Migrations that moved their guest.
    pub moves: u64,
}

/// Runs the scenario of a seed.
pub fn run(seed: u64) -> Outcome {
    let runtime = Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    match runtime {
        // Created inside the runtime, because it reads the paused clock.
        Ok(runtime) => runtime.block_on(async move {
            let scenario = Scenario::new(seed);
            let (record, cluster) = (scenario.record.clone(), scenario.cluster.clone());
            let guests = scenario.guests.clone();
            bounded(&record, scenario.run())
                .await
                .unwrap_or_else(|why| Outcome {
                    seed,
                    violation: Some(explain(&record, &why)),
                    fingerprint: record.fingerprint(),
                    requests: record.requests(),
                    writes: record.writes(),
                    changes: changes(&record, &cluster),
                    moves: guests.count_moved(),
                })
        }),
        Err(error) => Outcome {
            seed,
            violation: Some(format!("no runtime: {error}")),
            fingerprint: 0,
            requests: 0,
            writes: 0,
            changes: 0,
            moves: 0,
        },
    }
}

/// Ends a scenario that would never end, with the reason.
async fn bounded<T>(record: &Record, work: impl Future<Output = T>) -> Result<T, String> {
    tokio::select! {
        biased;
        why = record.overrun() => Err(why),
        done = timeout(LONGEST, Box::pin(work)) => {
            done.map_err(|_elapsed| format!("does not end within {LONGEST:?}"))
        }
    }
}

fn explain(record: &Record, why: &str) -> String {
    let last = record.last().join("\n  ");
    format!("{why}\n  {last}")
}

fn changes(record: &Record, cluster: &Cluster) -> u64 {
    cluster.revision().saturating_sub(record.writes_done())
}

struct Scenario {
    seed: u64,
    features: Features,
    random: Random,
    cluster: Cluster,
    guests: Guests,
    record: Record,
    has_faults: Arc<AtomicBool>,
    power: BTreeMap<&'static str, Watch<Power>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Scenario {
    fn new(seed: u64) -> Self {
        let features = Features::of(seed);
        let count = if features.one_node { 1 } else { NODES.len() };
        let nodes = NODES.into_iter().take(count);
        let power = nodes.map(|name| (name, Watch::new(Power::On)));
        Self {
            seed,
            features,
            random: Random::new(seed),
            cluster: Cluster::new(Clock::starting_at(begin())),
            guests: Guests::default(),
            record: Record::new(),
            has_faults: Arc::new(AtomicBool::new(true)),
            power: power.collect(),
            tasks: TaskTracker::new(),
            stop: CancellationToken::new(),
        }
    }

    async fn run(mut self) -> Outcome {
        self.start_cluster();
        let mut starter = Starter {
            cluster: self.cluster.clone(),
            record: self.record.clone(),
            has_faults: Arc::clone(&self.has_faults),
            tasks: self.tasks.clone(),
            random: self.random.fork(),
            started: 0,
            launcher: 1,
        };
        let mut processes = vec![starter.start(), starter.start()];
        let mut user = User {
            cluster: self.cluster.clone(),
            guests: self.guests.clone(),
            random: self.random.fork(),
            migrations: 0,
            features: self.features,
        };
        for _ in 0..(10 + self.random.below(15)) {
            sleep(self.random.up_to(Duration::from_secs(40))).await;
            let did = if self.features.updates && self.random.chance(80) {
                update(&mut starter, &mut processes)
            } else if self.random.chance(650) {
                user.act()
            } else {
                self.inject_fault(&mut starter, &mut processes).await
            };
            self.record.event(&did);
        }
        self.end_faults(&mut starter, &mut processes);
        user.settle();
        let image = starter.image();
        let launcher = self.features.updates.then_some(image.as_str());
        let violation = self.check(launcher).await;
        for process in processes {
            process.end().await;
        }
        self.stop.cancel();
        self.tasks.close();
        self.tasks.wait().await;
        Outcome {
            seed: self.seed,
            violation: violation.map(|why| explain(&self.record, &why)),
            fingerprint: self.record.fingerprint(),
            requests: self.record.requests(),
            writes: self.record.writes(),
            changes: changes(&self.record, &self.cluster),
            moves: self.guests.count_moved(),
        }
    }

    fn start_cluster(&mut self) {
        self.define(Kind::Migration);
        if let Some(kind) = Kind::named("MigrationPolicy")
            && self.features.policies
        {
            self.define(kind);
        }
        if let Some(kind) = Kind::named("KubeVirt")
            && self.features.updates
        {
            self.install(kind);
        }
        let names: Vec<&str> = self.power.keys().copied().collect();
        for name in names {
            let skew = i64::try_from(self.random.below(1200)).unwrap_or(0) - 600;
            let node = Node {
                name: name.to_owned(),
                cluster: self.cluster.clone(),
                guests: self.guests.clone(),
                record: self.record.clone(),
                random: self.random.fork(),
                behaviour: Behaviour {
                    step: STEP,
                    has_faults: Arc::clone(&self.has_faults),
                    is_alone: self.features.one_node,
                },
                power: self.power[name].watcher(),
                skew: SignedDuration::from_secs(skew),
            };
            self.tasks.spawn(node.run(self.stop.clone()));
        }
        let receivers = self.power.iter();
        let control_plane = ControlPlane {
            cluster: self.cluster.clone(),
            random: self.random.fork(),
            step: STEP,
            nodes: receivers
                .map(|(name, power)| ((*name).to_owned(), power.watcher()))
                .collect(),
        };
        self.tasks.spawn(control_plane.run(self.stop.clone()));
    }

    fn define(&self, kind: Kind) {
        let name = format!("{}.{}", kind.facts().plural, kind.facts().group);
        let defined = json!({"metadata": {"name": name}});
        let author = Author::main("operator");
        // The cluster is empty, so the name is free.
        let _made = self
            .cluster
            .create(Kind::Definition, "", defined, author)
            .is_ok();
    }

    /// An installation whose guests follow updates, a few at a time.
    fn install(&self, kind: Kind) {
        self.define(kind);
        let limits = Limits {
            per_cluster: 2,
            per_node: 1,
        };
        let installation = json!({
            "metadata": {"name": "kubevirt"},
            "spec": {
                "workloadUpdateStrategy": {"workloadUpdateMethods": ["LiveMigrate"]},
                "configuration": {"migrations": {
                    "parallelMigrationsPerCluster": limits.per_cluster,
                    "parallelOutboundMigrationsPerNode": limits.per_node,
                }},
            },
        });
        let operator = "operator";
        let made = self
            .cluster
            .create(kind, NAMESPACE, installation, Author::main(operator));
        let deployed = Patch::Merge(json!({"status": {"phase": "Deployed"}}));
        let id = Id::new(kind, NAMESPACE, "kubevirt");
        let complete = self.cluster.patch(&id, &deployed, Author::status(operator));
        if made.is_ok() && complete.is_ok() {
            self.guests.limit(limits);
        }
    }

    /// Injects a fault, or ends one.
    async fn inject_fault(&mut self, starter: &mut Starter, all: &mut Vec<Process>) -> String {
        let at = self.random.below(all.len());
        match self.random.below(9) {
            0 | 1 if !all.is_empty() => {
                all.remove(at).kill();
                all.push(starter.start());
                "a controller is killed, another starts".to_owned()
            }
            2 if !all.is_empty() => {
                all.remove(at).end().await;
                all.push(starter.start());
                "a controller stops, another starts".to_owned()
            }
            3 if !all.is_empty() => {
                all.remove(at).kill();
                "a controller is killed".to_owned()
            }
            4 if all.len() < 3 => {
                all.push(starter.start());
                "a controller starts".to_owned()
            }
            5 => {
                for process in all.iter() {
                    process.connection.resume();
                }
                "all connections resume".to_owned()
            }
            6 | 7 if !all.is_empty() => {
                all[at].connection.stall();
                "the connection of a controller stalls".to_owned()
            }
            _ => {
                let names: Vec<&str> = self.power.keys().copied().collect();
                let name = *self.random.pick(&names).unwrap_or(&NODES[0]);
                let powers = [Power::On, Power::On, Power::Unreachable, Power::Off];
                let power = *self.random.pick(&powers).unwrap_or(&Power::On);
                self.power[name].set(power);
                format!("{name} is {power:?}")
            }
        }
    }

    fn end_faults(&self, starter: &mut Starter, all: &mut Vec<Process>) {
        self.record.event("faults end");
        self.has_faults.store(false, Ordering::Relaxed);
        for power in self.power.values() {
            power.set(Power::On);
        }
        for process in all.iter() {
            process.connection.resume();
        }
        if all.is_empty() {
            all.push(starter.start());
        }
    }

    /// The violation of an invariant that must hold at any time.
    fn violation(&self) -> Option<String> {
        self.guests.violation().or_else(|| self.cluster.violation())
    }

    /// With the launcher that all guests are to have, if they follow updates.
    async fn check(&self, launcher: Option<&str>) -> Option<String> {
        if let Some(violation) = self.violation() {
            return Some(violation);
        }
        let since = Instant::now();
        while let Err(why) = checks::converged(&self.cluster, &self.guests, launcher) {
            if since.elapsed() >= DEADLINE {
                return Some(format!("not converged: {why}"));
            }
            sleep(Duration::from_secs(5)).await;
        }
        // Requests that were pending at convergence.
        sleep(Duration::from_secs(30)).await;
        let before = self.record.writes();
        sleep(QUIET).await;
        let after = self.record.writes();
        if after != before {
            return Some(format!("{} writes while nothing changed", after - before));
        }
        if let Err(why) = checks::converged(&self.cluster, &self.guests, launcher) {
            return Some(format!("no longer converged: {why}"));
        }
        if let Some(violation) = self.violation() {
            return Some(violation);
        }
        let (writes, changes) = (self.record.writes(), changes(&self.record, &self.cluster));
        let most = 60 + 6 * changes;
        (writes > most).then(|| format!("{writes} writes for {changes} changes"))
    }
}

/// Replaces all processes by such with the next version of the launcher.
fn update(starter: &mut Starter, all: &mut Vec<Process>) -> String {
    for process in all.drain(..) {
        process.kill();
    }
    starter.launcher += 1;
    all.extend([starter.start(), starter.start()]);
    format!("an update to {}", starter.image())
}

#[cfg(test)]
mod tests {
    use std::future::pending;

    use http::{Method, StatusCode};

    use super::{Record, bounded, run};

    #[test]
    fn same_seed_gives_same_scenario() {
        // In some of them many tasks wait for the same change.
        for seed in [1, 7001, 7023] {
            let (first, again) = (run(seed), run(seed));
            assert_eq!(first, again);
            assert!(first.requests > 100, "{first:?}");
        }
        assert_ne!(run(1).fingerprint, run(2).fingerprint);
    }

    #[tokio::test(start_paused = true)]
    async fn endless_scenario_fails() {
        let record = Record::new();
        let loops = async {
            loop {
                record.note(&Method::PATCH, "/a", StatusCode::OK);
                tokio::task::yield_now().await;
            }
        };
        let why = bounded::<()>(&record, loops).await.unwrap_err();
        assert!(why.starts_with("hot loop: 20000 writes"), "{why}");

        let why = bounded::<()>(&Record::new(), pending()).await.unwrap_err();
        assert!(why.starts_with("does not end within"), "{why}");
    }

    #[test]
    fn some_scenarios_pass() {
        let mut moves = 0;
        for seed in (100..110).chain([323, 633, 1063, 2775]) {
            let outcome = run(seed);
            assert_eq!(outcome.violation, None, "seed {seed}");
            moves += outcome.moves;
        }
        assert!(moves > 0, "no guest moved");
    }
}
