//! What `down` keeps and what `reset` leaves: nothing.

use std::sync::Arc;

use stories::{Host, machine, traces};

use crate::Story;

#[tokio::test]
async fn down_keeps_what_was_defined_and_reset_leaves_nothing() {
    let host = Arc::new(Host::up().await);
    let story = Story::on(Arc::clone(&host)).await;
    story.apply(&machine("kept")).await;
    let first = story.vmi_is("kept", "Running").await;

    host.ferrovirt("down", &[], b"").await.good();
    let state_dir = host.state_dir();
    let files = format!("files in {}", state_dir.display());
    assert_eq!(traces(&state_dir), [files]);
    let said = host.ferrovirt("status", &[], b"").await.good();
    assert!(said.contains("Ferrovirt is down"), "{said}");

    // It is kept running, so it runs again as soon as there is a host.
    host.start(&[]).await.good();
    story.runs_again("kept", &first).await;
    host.ferrovirt("reset", &["--yes"], b"").await.good();
    assert_eq!(traces(&state_dir), [""; 0]);
}
