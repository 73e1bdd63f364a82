//! `cargo xtask simulate` and `cargo xtask bench controller` run this.

mod progress;

use std::io::{self, Write as _};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use clap::{Parser, Subcommand};
use simulation::{Bench, Ending, measure, serve_controllers, tell};

use progress::Progress;

#[derive(Parser)]
#[command(about = "The controllers on virtual time, with faults")]
struct Arguments {
    #[command(subcommand)]
    task: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Tell stories until they are told or one ends badly.
    Stories {
        /// How many, from the first seed on.
        #[arg(long, default_value_t = 500)]
        seeds: u64,
        /// The first seed; alone, only this one is told, in full.
        #[arg(long)]
        seed: Option<u64>,
        /// At once; as many as there are processors when left out.
        #[arg(long)]
        threads: Option<usize>,
        /// Seconds that one story may take.
        #[arg(long, default_value_t = 300)]
        patience: u64,
    },
    /// Measure what many VMIs cost.
    Bench {
        #[arg(long, default_value_t = 10_000)]
        count: usize,
        /// Seconds in which nothing changes.
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
        Task::Stories {
            seeds: _,
            seed: Some(seed),
            ..
        } => tell_one(seed),
        Task::Stories {
            seeds,
            threads,
            patience,
            ..
        } => tell_all(seeds, threads, Duration::from_secs(patience)),
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

fn tell_one(seed: u64) -> Result<ExitCode> {
    let ending = tell(seed);
    writeln!(io::stdout(), "{ending:#?}")?;
    report(&ending)
}

fn report(ending: &Ending) -> Result<ExitCode> {
    let Some(violation) = &ending.violation else {
        return Ok(ExitCode::SUCCESS);
    };
    writeln!(io::stderr(), "seed {} ends badly: {violation}", ending.seed)?;
    Ok(ExitCode::FAILURE)
}

fn tell_all(seeds: u64, threads: Option<usize>, patience: Duration) -> Result<ExitCode> {
    let begin = Instant::now();
    let processors = std::thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicU64::new(0);
    let progress = Progress::new(seeds, patience);
    let endings = std::thread::scope(|scope| {
        let tellers: Vec<_> = (0..threads.unwrap_or(processors))
            .map(|_| scope.spawn(|| tell_some(&next, seeds, &progress)))
            .collect();
        let (done, is_done) = std::sync::mpsc::channel();
        scope.spawn(|| progress.watch(is_done));
        let joined = tellers.into_iter().map(std::thread::ScopedJoinHandle::join);
        let endings = joined.collect::<Result<Vec<_>, _>>();
        drop(done);
        endings
    });
    let Ok(endings) = endings else {
        anyhow::bail!("a story broke off");
    };
    let mut endings: Vec<Ending> = endings.into_iter().flatten().collect();
    endings.sort_by_key(|ending| ending.seed);
    let sum = |of: fn(&Ending) -> u64| endings.iter().map(of).sum::<u64>();
    let bad: Vec<&Ending> = endings
        .iter()
        .filter(|ending| ending.violation.is_some())
        .collect();
    writeln!(
        io::stdout(),
        "{} stories in {:.1} s: {} ended badly; {} requests, {} writes by controllers (at most {} in \
         one), {} changes by others",
        endings.len(),
        begin.elapsed().as_secs_f64(),
        bad.len(),
        sum(|ending| ending.requests),
        sum(|ending| ending.writes),
        endings
            .iter()
            .map(|ending| ending.writes)
            .max()
            .unwrap_or(0),
        sum(|ending| ending.changes),
    )?;
    bad.first()
        .map_or(Ok(ExitCode::SUCCESS), |first| report(first))
}

fn tell_some(next: &AtomicU64, seeds: u64, progress: &Progress) -> Vec<Ending> {
    let mut endings = Vec::new();
    loop {
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= seeds {
            return endings;
        }
        progress.begins(seed);
        let ending = tell(seed);
        progress.ends(seed, &ending);
        if let Some(violation) = &ending.violation {
            let first = violation.lines().next().unwrap_or_default();
            // At once: the rest may take hours. Where nobody reads, the summary tells again.
            let _told = writeln!(io::stderr(), "seed {seed}: {first}").is_ok();
        }
        endings.push(ending);
    }
}
