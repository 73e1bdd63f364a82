//! `down` keeps definitions, `reset` leaves nothing.

use std::sync::Arc;

use e2e::{Host, leftovers, tiny_vm};

use crate::TestNamespace;

#[tokio::test]
async fn down_keeps_definitions_and_reset_leaves_nothing() {
    let host = Arc::new(Host::up().await);
    let test = TestNamespace::on(Arc::clone(&host)).await;
    test.apply(&tiny_vm("kept")).await;
    let first = test.wait_vmi_phase("kept", "Running").await;

    host.ferrovirt("down", &[], b"").await.success();
    let state_dir = host.state_dir();
    let files = format!("files in {}", state_dir.display());
    assert_eq!(leftovers(&state_dir), [files]);
    let output = host.ferrovirt("status", &[], b"").await.success();
    assert!(output.contains("Ferrovirt is down"), "{output}");

    // Its strategy is `Always`, so it runs again with the host.
    host.start(&[]).await.success();
    test.wait_new_vmi("kept", &first).await;
    host.ferrovirt("reset", &["--yes"], b"").await.success();
    assert_eq!(leftovers(&state_dir), [""; 0]);
}
