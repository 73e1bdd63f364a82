//! Kills the `ferrovirt` process repeatedly while a guest counts.

use std::sync::Arc;

use e2e::{Host, keeps_counting, processes_of_pod, rounds, start_counting};
use tokio::time::Instant;

use crate::TestNamespace;

#[tokio::test]
async fn guest_survives_host_process_kill() {
    let host = Arc::new(Host::up().await);
    let test = TestNamespace::on(Arc::clone(&host)).await;
    let vmi = start_counting(&test, "count").await;
    let pods = test.pod_list().await;
    let processes = processes_of_pod(&pods[0].1);
    for round in 0..rounds() {
        host.kill();
        let began = Instant::now();
        host.start(&[]).await.success();
        let vm = test.wait_vm_status("count", "Running").await;
        assert_eq!(vm["status"]["ready"], true);
        assert!(
            began.elapsed().as_secs() < 10,
            "round {round}: {:?}",
            began.elapsed()
        );
        let now = test.wait_vmi_phase("count", "Running").await;
        assert_eq!(
            now["metadata"]["uid"], vmi["metadata"]["uid"],
            "round {round}"
        );
        assert_eq!(test.pod_list().await, pods, "round {round}");
        assert_eq!(processes_of_pod(&pods[0].1), processes, "round {round}");
        keeps_counting(&test, &vmi).await;
    }
    // The VM can be controlled and stopped again.
    let mut console = test.console("count").await;
    console.expect("count ").await;
    test.virtctl(&["stop", "count"]).await.success();
    test.wait_vm_status("count", "Stopped").await;
}
