//! Chaos runs: guests count on their consoles while every component around them is killed.
//!
//! - `environment` lists the processes to kill;
//! - `observer` watches the guests by their console logs and processes;
//! - `targets` chooses the next process and kills it;
//! - `invariants` checks that the status in the API is right and recent.
//!
//! **Invariants**: guests are observed without any of our components; the same seed kills in the same
//! order; a run that finds a fault continues, and reports all faults at the end.

mod environment;
mod invariants;
mod observer;
mod targets;

use std::{collections::BTreeMap, fmt, sync::Arc, time::Duration};

use serde_json::{Value, json};
use tokio::time::Instant;

use self::{
    invariants::{Invariants, Recovery},
    observer::{Findings, Observer},
    targets::Targets,
};
use crate::{
    DEADLINE, Environment, TestNamespace, differences, eventually, stable_inventory, tiny_vm,
};

pub use self::environment::{ChaosEnvironment, Liveness, Target};

/// One number a second: emulated guests are slow.
const COUNTING: &str = "#!/bin/sh
(n=0; while :; do n=$((n + 1)); echo \"count $n\"; sleep 1; done) &
";
/// For a slower recovery the report includes its last problem.
const SLOW: Duration = Duration::from_secs(3);
/// How many guests start at once: booting an emulated guest keeps a processor busy.
const AT_ONCE: usize = 2;

/// The settings of a chaos run.
#[derive(Debug, Clone, Copy)]
pub struct ChaosRun {
    pub guests: usize,
    pub seed: u64,
    pub until: Until,
}

/// When to stop killing.
#[derive(Debug, Clone, Copy)]
pub enum Until {
    Kills(usize),
    Time(Duration),
}

/// The results of a chaos run.
#[derive(Debug)]
pub struct Report {
    pub guests: usize,
    pub took: Duration,
    /// The number of guests by node.
    pub nodes: BTreeMap<String, usize>,
    /// For each kill, how long the process took to return, and the status from then on to be right.
    pub kills: BTreeMap<Target, Vec<(Duration, Duration)>>,
    /// Everything that went wrong.
    pub faults: Vec<String>,
    /// How many guests stopped counting, lost a number or their process.
    pub interrupted: usize,
    /// The longest time between two numbers of one guest.
    pub longest_silence: Duration,
    /// How often the processes of this host were sampled.
    pub samples: usize,
    /// How many VMs ran twice at once or were restarted.
    pub duplicated: usize,
}

impl Report {
    pub fn is_good(&self) -> bool {
        self.faults.is_empty()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let count: usize = self.kills.values().map(Vec::len).sum();
        writeln!(f, "{count} kills in {:.0} s:", self.took.as_secs_f64())?;
        for (target, times) in &self.kills {
            let (back, right): (Vec<_>, Vec<_>) = times.iter().copied().unzip();
            writeln!(
                f,
                "  {:4} of {target:23} back after {}; right again after {}",
                times.len(),
                Spread::of(back),
                Spread::of(right),
            )?;
        }
        let all = self.kills.values().flatten().map(|(_, right)| *right);
        writeln!(f, "all: right again after {}", Spread::of(all.collect()))?;
        writeln!(
            f,
            "{} of {} guests interrupted; longest silence of one {:.1} s; guests by node: {:?}",
            self.interrupted,
            self.guests,
            self.longest_silence.as_secs_f64(),
            self.nodes,
        )?;
        writeln!(
            f,
            "{} VMs duplicated, in {} samples of all processes",
            self.duplicated, self.samples,
        )?;
        for fault in &self.faults {
            writeln!(f, "wrong: {fault}")?;
        }
        write!(f, "{} faults", self.faults.len())
    }
}

/// The distribution of durations.
struct Spread(Vec<Duration>);

impl Spread {
    fn of(mut times: Vec<Duration>) -> Self {
        times.sort_unstable();
        Self(times)
    }

    /// A percentile in seconds.
    fn at(&self, hundredths: usize) -> f64 {
        let place = self.0.len().saturating_sub(1) * hundredths / 100;
        self.0.get(place).copied().unwrap_or_default().as_secs_f64()
    }
}

impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (half, most, all) = (self.at(50), self.at(90), self.at(100));
        write!(
            f,
            "{half:.2} s (median), {most:.2} s (90 %), {all:.2} s (longest)"
        )
    }
}

/// Starts counting guests in an environment of their own, kills everything around them, and reports.
pub async fn run_chaos<G: ChaosEnvironment>(
    environment: Arc<G>,
    chaos_run: &ChaosRun,
    mut progress: impl FnMut(&str),
) -> Report {
    let test = TestNamespace::on(Arc::clone(&environment)).await;
    // The first guests of an environment leave caches, such as unpacked images.
    for number in 0..AT_ONCE {
        let first = tiny_vm(&format!("first-{number}"));
        test.apply(&environment.place(first, number)).await;
    }
    for number in 0..AT_ONCE {
        test.wait_vmi_phase(&format!("first-{number}"), "Running")
            .await;
    }
    delete_all(&test).await;
    let before = stable_inventory(|| environment.inventory()).await;

    let names: Vec<String> = (0..chaos_run.guests)
        .map(|at| format!("guest-{at}"))
        .collect();
    let mut guests = Vec::new();
    for names in names.chunks(AT_ONCE) {
        for (number, name) in names.iter().enumerate() {
            let guest = tiny_vm(name).user_data(COUNTING);
            test.apply(&environment.place(guest, number)).await;
        }
        for name in names {
            guests.push(start_counting(&test, name).await);
        }
    }

    let mut observer = Observer::of(&test, &guests);
    let invariants = Invariants::of(&test).await;
    let nodes = invariants.by_node();
    progress(&format!("{} guests count: {nodes:?}", guests.len()));
    let targets = Targets::new(&test, &guests, chaos_run.seed);
    let began = Instant::now();
    let mut report = Report {
        guests: guests.len(),
        nodes,
        took: Duration::ZERO,
        kills: BTreeMap::new(),
        faults: Vec::new(),
        interrupted: 0,
        longest_silence: Duration::ZERO,
        samples: 0,
        duplicated: 0,
    };
    tokio::select! {
        never = observer.watch() => match never {},
        () = kill_on(chaos_run.until, targets, &invariants, &mut report, &mut progress) => {}
    }
    report.took = began.elapsed();
    observer.wait_for_all_to_count().await;
    let Findings {
        faults,
        duplicated,
        longest_silence,
        samples,
    } = observer.findings();
    report.interrupted = faults.len();
    report.duplicated = duplicated.len();
    report.faults.extend(faults);
    report.faults.extend(duplicated);
    report.samples = samples;
    report.longest_silence = longest_silence;

    // The guests not only run but can be controlled.
    for name in &names {
        test.virtctl(&["pause", "vm", name]).await.success();
        test.wait_vm_status(name, "Paused").await;
        test.virtctl(&["unpause", "vm", name]).await.success();
        test.wait_vm_status(name, "Running").await;
    }
    // New VMs start.
    test.apply(&tiny_vm("after")).await;
    test.wait_vm_status("after", "Running").await;
    delete_all(&test).await;
    let left = differences(|| environment.inventory(), &before).await;
    report.faults.extend(left);
    report
}

async fn kill_on<G: ChaosEnvironment>(
    until: Until,
    mut targets: Targets<'_, G>,
    invariants: &Invariants<'_, G>,
    report: &mut Report,
    progress: &mut impl FnMut(&str),
) {
    let began = Instant::now();
    let is_enough = |count: usize| match until {
        Until::Kills(most) => count >= most,
        Until::Time(most) => began.elapsed() >= most,
    };
    let mut count = 0;
    while !is_enough(count) {
        count += 1;
        let mark = match invariants.mark().await {
            Ok(mark) => mark,
            Err(why) => {
                report
                    .faults
                    .push(format!("the run cannot continue: {why}"));
                return;
            }
        };
        let at = began.elapsed();
        let killed = targets.kill_next().await;
        let outcome = invariants.right_again(&killed, &mark).await;
        let line = format!("{:7.1} s  kill {count}: {killed}", at.as_secs_f64());
        let times = report.kills.entry(killed.target).or_default();
        match outcome {
            Ok(Recovery { back, right, last }) => {
                times.push((back, right));
                let (back, seconds) = (back.as_secs_f64(), right.as_secs_f64());
                let line = format!("{line}: back after {back:.2} s, right after {seconds:.2} s");
                let line = if right > SLOW {
                    let start: String = last.chars().take(120).collect();
                    format!("{line} (last wrong: {start})")
                } else {
                    line
                };
                progress(&line);
                // A test that counts kills only uses `DEADLINE`.
                if matches!(until, Until::Time(_)) && right > G::STATUS_DEADLINE {
                    report.faults.push(format!("{line}: too late"));
                }
            }
            Err(why) => {
                times.push((DEADLINE, DEADLINE));
                progress(&format!("{line}: not right: {why}"));
                report
                    .faults
                    .push(format!("{line}: not right within {DEADLINE:?}: {why}"));
            }
        }
    }
}

/// A counting guest: its VMI and the UID of its pod.
#[derive(Debug, Clone)]
struct Guest {
    name: String,
    vmi: Value,
    pod: String,
}

async fn start_counting<H: Environment>(test: &TestNamespace<H>, name: &str) -> Guest {
    let vmi = test.wait_vmi_phase(name, "Running").await;
    eventually("counting", || {
        let text = test.serial_log(&vmi);
        // By then the boot messages are over.
        if text.contains("\ncount 9\r") {
            Ok(())
        } else {
            Err(text)
        }
    })
    .await;
    let pods = vmi["status"]["activePods"]
        .as_object()
        .cloned()
        .unwrap_or_default();
    let pod = pods.keys().next().expect("a running VMI has a pod");
    Guest {
        name: name.to_owned(),
        pod: pod.clone(),
        vmi,
    }
}

/// Deletes all VMs and waits until the API has none of their objects.
async fn delete_all<H: Environment>(test: &TestNamespace<H>) {
    test.kubectl(&["delete", "vm", "--all", "--wait=false"])
        .await
        .success();
    let left = || async {
        let all = test
            .kubectl(&["get", "vm,vmi,pods,controllerrevisions", "--output=name"])
            .await;
        all.success().trim().to_owned()
    };
    let until = Instant::now() + DEADLINE;
    loop {
        let left = left().await;
        if left.is_empty() {
            return;
        }
        assert!(Instant::now() < until, "left after {DEADLINE:?}: {left}");
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// A change that makes a new generation of a VM without affecting its guest.
fn remark(number: u64) -> Value {
    json!({"spec": {"template": {"metadata": {"annotations": {"remark": number.to_string()}}}}})
}
