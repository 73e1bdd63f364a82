//! The program behind `cargo xtask simulate` and `cargo xtask bench controller`.

mod progress;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use simulation::{Bench, Outcome, measure, serve_controllers};

use progress::Progress;

#[derive(Parser)]
#[command(about = "The controllers on virtual time, with faults")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Run randomised scenarios.
    Scenarios {
        /// How many, from seed 0 on.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// Run only the scenario of this seed, and show its outcome in full.
        #[arg(long)]
        seed: Option<u64>,
        /// How many run concurrently; by default the number of processors.
        #[arg(long)]
        threads: Option<usize>,
        /// Seconds that one scenario may take.
        #[arg(long, default_value_t = 300)]
        time_limit: u64,
    },
    /// Measure the cost of many VMIs.
    Bench {
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// Seconds to measure while nothing changes.
        #[arg(long, default_value_t = 60)]
        idle: u64,
    },
    /// The controllers alone, as the bench runs them.
    #[command(hide = true)]
    Controllers {
        #[arg(long)]
        server: String,
    },
}

fn main() -> Result<ExitCode> {
    match Arguments::parse().task {
        Task::Scenarios {
            seed: Some(seed), ..
        } => run_one(seed),
        Task::Scenarios {
            seeds,
            threads,
            time_limit,
            ..
        } => run_all(seeds, threads, Duration::from_secs(time_limit)),
        Task::Bench { count, idle } => {
            let idle = Duration::from_secs(idle);
            let program = std::env::current_exe().context("find this program")?;
            let runtime = tokio::runtime::Runtime::new()?;
            let figures = runtime.block_on(measure(&Bench { count, idle }, &program))?;
            for (name, value, unit) in figures {
                writeln!(io::stdout(), "{name}\t{value:.3}\t{unit}")?;
            }
            Ok(ExitCode::SUCCESS)
        }
        Task::Controllers { server } => {
            let runtime = tokio::runtime::Runtime::new()?;
            runtime.block_on(serve_controllers(&server))?;
            Ok(ExitCode::SUCCESS)
        }
    }
}

fn run_one(seed: u64) -> Result<ExitCode> {
    let outcome = simulation::run(seed);
    writeln!(io::stdout(), "{outcome:#?}")?;
    report(&outcome)
}

fn report(outcome: &Outcome) -> Result<ExitCode> {
    let Some(violation) = &outcome.violation else {
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(io::stderr(), "seed {} failed: {violation}", outcome.seed)?;
    Ok(ExitCode::FAILURE)
}

fn run_all(seeds: u64, threads: Option<usize>, time_limit: Duration) -> Result<ExitCode> {
    let begin = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    let progress = Progress::new(seeds, time_limit);
    let outcomes = std::thread::scope(|scope| {
        let workers: Vec<_> = (0..threads.unwrap_or(processors))
            .map(|_| scope.spawn(|| run_some(&next, seeds, &progress)))
            .collect();
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(|| progress.watch(is_done));
        let joined = workers.into_iter().map(std::thread::ScopedJoinHandle::join);
        let outcomes = joined.collect::<Result<Vec<_>, _>>();
        drop(done);
        outcomes
    });
    let Ok(outcomes) = outcomes else {
        anyhow::bail!("a scenario panicked");
    };
    let mut outcomes: Vec<Outcome> = outcomes.into_iter().flatten().collect();
    outcomes.sort_by_key(|outcome| outcome.seed);
    let sum = |of: fn(&Outcome) -> u64| outcomes.iter().map(of).sum::<u64>();
    let failed: Vec<&Outcome> = outcomes
        .iter()
        .filter(|outcome| outcome.violation.is_some())
        .collect();
    writeln!(
        io::stdout(),
        "{} scenarios in {:.1} s: {} failed; {} requests, {} writes by controllers (at most {} in \
         one), {} other changes, {} guests moved",
        outcomes.len(),
        begin.elapsed().as_secs_f64(),
        failed.len(),
        sum(|outcome| outcome.requests),
        sum(|outcome| outcome.writes),
        outcomes
            .iter()
            .map(|outcome| outcome.writes)
            .max()
            .unwrap_or(0),
        sum(|outcome| outcome.changes),
        sum(|outcome| outcome.moves),
    )?;
    failed
        .first()
        .map_or(Ok(ExitCode::SUCCESS), |first| report(first))
}

fn run_some(next: &AtomicU64, seeds: u64, progress: &Progress) -> Vec<Outcome> {
    let mut outcomes = Vec::new();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds {
            return outcomes;
        }
        progress.begin(seed);
        let outcome = simulation::run(seed);
        progress.end(seed, &outcome);
        if let Some(violation) = &outcome.violation {
            let first = violation.lines().next().unwrap_or_default();
            // Reported at once, because the rest may take hours; the summary repeats it.
            let _written = writeln!(io::stderr(), "seed {seed}: {first}").is_ok();
        }
        outcomes.push(outcome);
    }
}
