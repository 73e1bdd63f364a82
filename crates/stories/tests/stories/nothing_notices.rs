//! Everything around guests that count dies in turn: `cargo xtask nothing-notices` in short.

use std::sync::Arc;

use stories::{Host, Ordeal, Until, nothing_notices};

#[tokio::test]
async fn nothing_of_what_is_killed_around_them_is_noticed_by_guests() {
    let ordeal = Ordeal {
        guests: 2,
        seed: 1,
        // Each kind twice.
        until: Until::Kills(8),
    };
    let report = nothing_notices(Arc::new(Host::up().await), &ordeal, |line| {
        println!("{line}");
    })
    .await;
    assert!(report.is_good(), "{report}");
    assert_eq!(report.kills.len(), 4, "{report}");
}
