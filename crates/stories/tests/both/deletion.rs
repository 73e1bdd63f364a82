//! Deleting a machine at every phase of its life leaves nothing of it.

use stories::{eventually, machine, processes_of_pod};

use crate::{Story, story};

/// Deletes the machine and waits until nothing is left, on the API and on the nodes.
async fn delete(story: &Story, name: &str) {
    let pods = story.pod_list().await;
    story
        .kubectl(&["delete", "vm", name, "--timeout=90s"])
        .await
        .good();
    story.is_gone(&story.vmis(), name).await;
    for (pod, uid) in pods {
        story.is_gone(&story.pods(), &pod).await;
        eventually("without traces", || {
            let left = processes_of_pod(&uid);
            let files: Vec<_> = story
                .pod_files()
                .filter(|pod| pod.ends_with(&uid))
                .collect();
            if left.is_empty() && files.is_empty() {
                Ok(())
            } else {
                Err((left, files))
            }
        })
        .await;
    }
    assert_eq!(story.pod_list().await, []);
}

#[tokio::test]
async fn a_machine_can_be_deleted_right_after_it_was_made() {
    let story = story().await;
    story.apply(&machine("early")).await;
    delete(&story, "early").await;
}

#[tokio::test]
async fn a_machine_can_be_deleted_while_it_starts() {
    let story = story().await;
    story.apply(&machine("starting")).await;
    stories::wait_for(&story.vmis(), "starting", "on its way", |vmi| {
        matches!(
            vmi["status"]["phase"].as_str(),
            Some("Scheduling" | "Scheduled")
        )
    })
    .await;
    delete(&story, "starting").await;
}

#[tokio::test]
async fn a_machine_can_be_deleted_while_it_runs() {
    let story = story().await;
    story.apply(&machine("running")).await;
    story.vmi_is("running", "Running").await;
    delete(&story, "running").await;
}

#[tokio::test]
async fn a_machine_can_be_deleted_while_it_is_paused() {
    let story = story().await;
    story.apply(&machine("paused")).await;
    story.greeting("paused").await;
    story.virtctl(&["pause", "vm", "paused"]).await.good();
    story.vm_is("paused", "Paused").await;
    delete(&story, "paused").await;
}

#[tokio::test]
async fn a_machine_can_be_deleted_while_it_stops() {
    let story = story().await;
    story.apply(&machine("stopping")).await;
    story.greeting("stopping").await;
    story.virtctl(&["stop", "stopping"]).await.good();
    delete(&story, "stopping").await;
}
