//! What happens to a machine when its guest ends, by run strategy.

use stories::{kill_in_pod, machine};

use crate::story;

const QEMU: &str = "qemu-system-x86";

#[tokio::test]
async fn always_starts_again_after_the_guest_powered_off() {
    let story = story().await;
    story.apply(&machine("always")).await;
    let mut console = story.shell("always").await;
    let first = story.vmi_is("always", "Running").await;
    console.send("poweroff -f\n").await;
    story.runs_again("always", &first).await;
    story.vm_is("always", "Running").await;
}

#[tokio::test]
async fn rerun_on_failure_starts_again_after_a_crash_only() {
    let story = story().await;
    story
        .apply(&machine("rerun").strategy("RerunOnFailure"))
        .await;
    let first = story.vmi_is("rerun", "Running").await;
    kill_in_pod(&story.pod_uid().await, QEMU);
    let second = story.runs_again("rerun", &first).await;
    assert_ne!(first["metadata"]["uid"], second["metadata"]["uid"]);
    let mut console = story.shell("rerun").await;
    console.send("poweroff -f\n").await;
    story.vm_is("rerun", "Stopped").await;
}

#[tokio::test]
async fn manual_starts_and_stays_as_it_is_told() {
    let story = story().await;
    story.apply(&machine("manual").strategy("Manual")).await;
    story.vm_is("manual", "Stopped").await;
    assert!(
        story
            .vmis()
            .get_opt("manual")
            .await
            .expect("ask for it")
            .is_none()
    );
    story.virtctl(&["start", "manual"]).await.good();
    let mut console = story.shell("manual").await;
    console.send("poweroff -f\n").await;
    story.vm_is("manual", "Stopped").await;
}

#[tokio::test]
async fn once_runs_one_time() {
    let story = story().await;
    story.apply(&machine("once").strategy("Once")).await;
    let mut console = story.shell("once").await;
    console.send("poweroff -f\n").await;
    story.vm_is("once", "Stopped").await;
}

#[tokio::test]
async fn a_halted_machine_does_not_run_until_its_strategy_changes() {
    let story = story().await;
    story.apply(&machine("halted").strategy("Halted")).await;
    story.vm_is("halted", "Stopped").await;
    assert!(
        story
            .vmis()
            .get_opt("halted")
            .await
            .expect("ask for it")
            .is_none()
    );
    story.apply(&machine("halted").strategy("Always")).await;
    story.vm_is("halted", "Running").await;
}

#[tokio::test]
async fn the_old_field_running_still_works() {
    let story = story().await;
    story.apply(&machine("old").running(true)).await;
    story.vm_is("old", "Running").await;
    story.apply(&machine("old").running(false)).await;
    story.vm_is("old", "Stopped").await;
}
