//! A guest moves to the other node and back while it runs, by request.

use e2e::{GuestProcesses, rounds};
use serde_json::json;
use tokio::time::Instant;

use super::{
    Policy, STALLED, assert_ran_once, is_over, migrate, newest, node, phase, reading, runs_once,
    start, ticks, wait_migratable, wait_migration,
};
use crate::TestNamespace;

#[tokio::test]
async fn counting_guest_moves_to_the_other_node_and_back() {
    let test = TestNamespace::create_exclusive().await;
    let (first, mut serial) = start(&test, "mobile").await;
    let mut seen = GuestProcesses::of(&test.namespace);
    let mut here = node(&first);
    let moves = async {
        for round in 0..rounds() {
            wait_migratable(&test, "mobile").await;
            let began = Instant::now();
            let migration = migrate(&test, "mobile", &mut serial).await;
            assert_eq!(phase(&migration), "Succeeded", "{round}: {migration:#}");
            println!("move {round} took {:.1?}", began.elapsed());
            let now = test.wait_vmi_phase("mobile", "Running").await;
            assert_eq!(now["metadata"]["uid"], first["metadata"]["uid"]);
            assert_ne!(node(&now), here, "{round}");
            here = node(&now);
            let state = &migration["status"]["migrationState"];
            for field in ["startTimestamp", "endTimestamp", "targetNode", "sourceNode"] {
                assert!(state[field].is_string(), "{round}: {field} in {state:#}");
            }
            serial.goes_on(&test).await;
            runs_once(&test, "mobile").await;
        }
    };
    seen.during(moves).await;
    assert_ran_once(&seen);
}

#[tokio::test]
async fn cancelled_migration_leaves_the_guest_where_it_is() {
    let test = TestNamespace::create_exclusive().await;
    let (first, mut serial) = start(&test, "stays").await;
    let _policy = Policy::slow(&test, "stays", STALLED).await;
    let mut seen = GuestProcesses::of(&test.namespace);
    let cancels = async {
        // At once, while the new pod is prepared, and during the copy.
        for until in [
            "",
            "Scheduling",
            "PreparingTarget",
            "TargetReady",
            "Running",
        ] {
            wait_migratable(&test, "stays").await;
            let began = Instant::now();
            test.virtctl(&["migrate", "stays"]).await.success();
            // A short phase may be over before it is observed.
            let order = [
                "",
                "Pending",
                "Scheduling",
                "Scheduled",
                "PreparingTarget",
                "TargetReady",
            ];
            let at = |phase: &str| {
                let mut known = order.iter();
                let found = known.position(|one| *one == phase);
                found.unwrap_or(order.len())
            };
            let begun = wait_migration(&test, &mut serial, |migration| {
                at(phase(migration)) >= at(until)
            })
            .await;
            assert!(!is_over(&begun), "{until:?}: {begun:#}");
            test.virtctl(&["migrate-cancel", "stays"]).await.success();
            let deadline = Instant::now() + e2e::DEADLINE;
            let mut ticks = ticks();
            while let Some(left) = newest(&test).await {
                assert!(Instant::now() < deadline, "{until:?}: not gone: {left:#}");
                ticks.tick().await;
                serial.read(&test);
            }
            let now = runs_once(&test, "stays").await;
            assert_eq!(node(&now), node(&first), "{until:?}");
            println!("cancelled at {until:?} after {:.1?}", began.elapsed());
            serial.goes_on(&test).await;
        }
    };
    seen.during(cancels).await;
    assert_ran_once(&seen);
}

#[tokio::test]
async fn virtctl_shows_a_migration_to_its_end() {
    let test = TestNamespace::create_exclusive().await;
    let (first, mut serial) = start(&test, "watched").await;
    let packed = json!({"experimental": {"compression": "zstd"}});
    let packed = Policy::of(&test, "watched", packed).await;
    let watch = test.virtctl(&["migrate", "--watch", "watched"]);
    let shown = reading(&test, std::slice::from_mut(&mut serial), watch).await;
    let shown = shown.success();
    let now = runs_once(&test, "watched").await;
    assert_ne!(node(&now), node(&first));
    let expected = format!("Succeeded: VM watched runs on {}", node(&now));
    assert!(shown.contains(&expected), "{shown}");
    serial.goes_on(&test).await;

    drop(packed);
    // The one before is not taken for the one that is cancelled.
    let _policy = Policy::slow(&test, "watched", STALLED).await;
    wait_migratable(&test, "watched").await;
    let arguments = ["migrate", "--watch", "watched"];
    let cancel = async {
        let is_copying = |migration: &serde_json::Value| phase(migration) == "Running";
        wait_migration(&test, &mut serial, is_copying).await;
        test.virtctl(&["migrate-cancel", "watched"]).await.success();
    };
    let (shown, ()) = tokio::join!(test.virtctl(&arguments), cancel);
    let message = shown.failure();
    assert!(message.contains("cancel"), "{message}");
    let still = runs_once(&test, "watched").await;
    assert_eq!(node(&still), node(&now));
    serial.goes_on(&test).await;
}
