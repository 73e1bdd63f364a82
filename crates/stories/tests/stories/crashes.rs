//! `kill -9` of the one process of a host, again and again, while a guest counts.

use std::sync::Arc;

use stories::{Host, counting, counts_on, processes_of_pod, rounds};
use tokio::time::Instant;

use crate::Story;

#[tokio::test]
async fn a_guest_does_not_notice_that_the_host_process_dies() {
    let host = Arc::new(Host::up().await);
    let story = Story::on(Arc::clone(&host)).await;
    let vmi = counting(&story, "count").await;
    let pods = story.pod_list().await;
    let processes = processes_of_pod(&pods[0].1);
    for round in 0..rounds() {
        host.kill();
        let began = Instant::now();
        host.start(&[]).await.good();
        let vm = story.vm_is("count", "Running").await;
        assert_eq!(vm["status"]["ready"], true);
        assert!(
            began.elapsed().as_secs() < 10,
            "round {round}: {:?}",
            began.elapsed()
        );
        let now = story.vmi_is("count", "Running").await;
        assert_eq!(
            now["metadata"]["uid"], vmi["metadata"]["uid"],
            "round {round}"
        );
        assert_eq!(story.pod_list().await, pods, "round {round}");
        assert_eq!(processes_of_pod(&pods[0].1), processes, "round {round}");
        counts_on(&story, &vmi).await;
    }
    // It can be talked to again, and stopped.
    let mut console = story.console("count").await;
    console.expect("count ").await;
    story.virtctl(&["stop", "count"]).await.good();
    story.vm_is("count", "Stopped").await;
}
