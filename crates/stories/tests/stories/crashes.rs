//! `kill -9` of everything, while a guest counts.

use std::sync::Arc;

use serde_json::Value;
use stories::{DEADLINE, Host, Story, eventually, kill_in_pod, machine, processes_of_pod, story};
use tokio::time::Instant;

/// How often each is killed, unless the environment says otherwise.
fn rounds() -> u32 {
    let given = std::env::var("FERROVIRT_STORY_ROUNDS").ok();
    given.and_then(|text| text.parse().ok()).unwrap_or(10)
}

/// The numbers that the guest has counted on its console.
fn counted(story: &Story, vmi: &Value) -> Vec<u32> {
    let log = story.serial_log(vmi);
    let number = |line: &str| line.trim().strip_prefix("count ")?.parse().ok();
    // The last line may be half written.
    let whole = log.rfind('\n').map_or("", |end| &log[..end]);
    whole.lines().filter_map(number).collect()
}

/// Waits until the guest has counted on from where it is now, then looks for gaps.
async fn counts_on(story: &Story, vmi: &Value) {
    let before = counted(story, vmi).last().copied().unwrap_or(0);
    let numbers = eventually("counting", || {
        let numbers = counted(story, vmi);
        let last = numbers.last().copied().unwrap_or(0);
        if last >= before + 5 {
            Ok(numbers)
        } else {
            Err((before, last))
        }
    })
    .await;
    for pair in numbers.windows(2) {
        assert_eq!(pair[0] + 1, pair[1], "the count has a gap");
    }
}

async fn counting(story: &Story, name: &str) -> Value {
    story.apply(&machine(name)).await;
    let mut console = story.shell(name).await;
    console.send("count\n").await;
    console.expect("count 3").await;
    story.vmi_is(name, "Running").await
}

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
    let text = vmi["status"].to_string();
    assert!(text.contains("eason"), "nothing says why: {text}");
}
