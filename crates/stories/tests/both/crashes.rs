//! `kill -9` of everything, while a guest counts.

use stories::{
    DEADLINE, Home, counting, counts_on, eventually, kill_in_pod, machine, processes_of_pod, rounds,
};
use tokio::time::Instant;

use crate::{Story, story};

#[tokio::test]
async fn a_guest_does_not_notice_that_all_components_die() {
    let story = Story::alone().await;
    let vmi = counting(&story, "count").await;
    let pods = story.pod_list().await;
    let processes = processes_of_pod(&pods[0].1);
    story.home.kill_components().await;
    counts_on(&story, &vmi).await;
    let vm = story.vm_is("count", "Running").await;
    assert_eq!(vm["status"]["ready"], true);
    let now = story.vmi_is("count", "Running").await;
    assert_eq!(now["metadata"]["uid"], vmi["metadata"]["uid"]);
    assert_eq!(story.pod_list().await, pods);
    assert_eq!(processes_of_pod(&pods[0].1), processes);
    // What came back acts.
    story.virtctl(&["pause", "vm", "count"]).await.good();
    story.vm_is("count", "Paused").await;
    story.virtctl(&["unpause", "vm", "count"]).await.good();
    counts_on(&story, &vmi).await;
    story.virtctl(&["stop", "count"]).await.good();
    story.vm_is("count", "Stopped").await;
}

/// Kills a process of the pod again and again; another takes its place and the guest goes on.
async fn survives_the_death_of(name: &str, vm: &str) {
    let story = story().await;
    let vmi = counting(&story, vm).await;
    let pods = story.pod_list().await;
    let uid = &pods[0].1;
    for round in 0..rounds() {
        let killed = kill_in_pod(uid, name);
        eventually("replaced", || {
            let all = processes_of_pod(uid);
            let is_new = all.iter().any(|(pid, own)| own == name && *pid != killed);
            if is_new { Ok(()) } else { Err(all) }
        })
        .await;
        counts_on(&story, &vmi).await;
        let now = story.vmi_is(vm, "Running").await;
        assert_eq!(
            now["metadata"]["uid"], vmi["metadata"]["uid"],
            "round {round}"
        );
        assert_eq!(story.pod_list().await, pods, "round {round}");
    }
    story.virtctl(&["pause", "vm", vm]).await.good();
    story.vm_is(vm, "Paused").await;
    story.virtctl(&["unpause", "vm", vm]).await.good();
    story.virtctl(&["stop", vm]).await.good();
    story.vm_is(vm, "Stopped").await;
}

#[tokio::test]
async fn a_guest_does_not_notice_that_its_launcher_dies() {
    survives_the_death_of("virt-launcher", "launcher").await;
}

#[tokio::test]
async fn a_guest_does_not_notice_that_its_libvirtd_dies() {
    survives_the_death_of("libvirtd", "libvirtd").await;
}

#[tokio::test]
async fn a_guest_whose_qemu_dies_has_failed_and_says_why() {
    let story = story().await;
    story.apply(&machine("dies").strategy("Once")).await;
    story.vmi_is("dies", "Running").await;
    let began = Instant::now();
    kill_in_pod(&story.pod_uid().await, "qemu-system-x86");
    let vmi = story.vmi_is("dies", "Failed").await;
    assert!(began.elapsed() < DEADLINE / 4, "{:?}", began.elapsed());
    let status = &vmi["status"];
    assert_eq!(status["reason"], "QEMUCrashed", "{status}");
    let conditions = status["conditions"].as_array().expect("conditions");
    let ready = conditions.iter().find(|one| one["type"] == "Ready");
    let message = ready.and_then(|ready| ready["message"].as_str());
    let message = message.expect("a message");
    assert!(message.contains("ended by signal 9"), "{message}");
}
