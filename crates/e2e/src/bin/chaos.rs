//! `cargo xtask nothing-notices` runs this: everything around counting guests is killed for a while.

use std::{
    io::{self, Write as _},
    process::ExitCode,
    sync::Arc,
    time::Duration,
};

use e2e::{ChaosRun, Cluster, Host, Until, run_chaos};

const USAGE: &str = "usage: chaos host|cluster GUESTS MINUTES SEED";

#[tokio::main(flavor = "current_thread")]
async fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let environment = arguments.next().unwrap_or_default();
    let given: Vec<Option<u64>> = arguments.map(|text| text.parse().ok()).collect();
    let [Some(guests), Some(minutes), Some(seed)] = given[..] else {
        print(USAGE);
        return ExitCode::FAILURE;
    };
    let chaos_run = ChaosRun {
        guests: usize::try_from(guests).unwrap_or(usize::MAX),
        seed,
        until: Until::Time(Duration::from_secs(minutes.saturating_mul(60))),
    };
    let report = match environment.as_str() {
        "host" => run_chaos(Arc::new(Host::up().await), &chaos_run, print).await,
        "cluster" => run_chaos(Arc::new(Cluster::found()), &chaos_run, print).await,
        _ => {
            print(USAGE);
            return ExitCode::FAILURE;
        }
    };
    print(&report.to_string());
    if report.is_good() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

/// A closed standard output is ignored: the exit code still reports the result.
fn print(line: &str) {
    if writeln!(io::stdout(), "{line}").is_err() {
        // The run continues.
    }
}
