//! A short chaos run: every component around counting guests is killed (`cargo xtask chaos`).

use std::sync::Arc;

use e2e::{ChaosRun, Host, Until, run_chaos};

#[tokio::test]
async fn guests_survive_chaos_run() {
    let chaos_run = ChaosRun {
        guests: 2,
        seed: 1,
        // Each kind twice.
        until: Until::Kills(8),
    };
    let report = run_chaos(Arc::new(Host::up().await), &chaos_run, |line| {
        println!("{line}");
    })
    .await;
    assert!(report.is_good(), "{report}");
    assert_eq!(report.kills.len(), 4, "{report}");
}
