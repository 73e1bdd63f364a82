//! Kills every process around a counting guest.

use e2e::{
    Environment, eventually, keeps_counting, kill_in_pod, processes_of_pod, rounds, start_counting,
    tiny_vm,
};

use crate::{TestNamespace, test_namespace};

#[tokio::test]
async fn guest_survives_kill_of_every_component() {
    let test = TestNamespace::create_exclusive().await;
    let vmi = start_counting(&test, "count").await;
    let pods = test.pod_list().await;
    let processes = processes_of_pod(&pods[0].1);
    test.environment.kill_components().await;
    keeps_counting(&test, &vmi).await;
    let vm = test.wait_vm_status("count", "Running").await;
    assert_eq!(vm["status"]["ready"], true);
    let now = test.wait_vmi_phase("count", "Running").await;
    assert_eq!(now["metadata"]["uid"], vmi["metadata"]["uid"]);
    assert_eq!(test.pod_list().await, pods);
    assert_eq!(processes_of_pod(&pods[0].1), processes);
    // The restarted components work.
    test.virtctl(&["pause", "vm", "count"]).await.success();
    test.wait_vm_status("count", "Paused").await;
    test.virtctl(&["unpause", "vm", "count"]).await.success();
    keeps_counting(&test, &vmi).await;
    test.virtctl(&["stop", "count"]).await.success();
    test.wait_vm_status("count", "Stopped").await;
}

/// Kills a process of the pod repeatedly; it is replaced and the guest keeps running.
async fn check_guest_survives_kill_of(name: &str, vm: &str) {
    let test = test_namespace().await;
    let vmi = start_counting(&test, vm).await;
    let pods = test.pod_list().await;
    let uid = &pods[0].1;
    for round in 0..rounds() {
        let killed = kill_in_pod(uid, name);
        eventually("replaced", || {
            let all = processes_of_pod(uid);
            let is_new = all.iter().any(|(pid, own)| own == name && *pid != killed);
            if is_new { Ok(()) } else { Err(all) }
        })
        .await;
        keeps_counting(&test, &vmi).await;
        let now = test.wait_vmi_phase(vm, "Running").await;
        assert_eq!(
            now["metadata"]["uid"], vmi["metadata"]["uid"],
            "round {round}"
        );
        assert_eq!(test.pod_list().await, pods, "round {round}");
    }
    test.virtctl(&["pause", "vm", vm]).await.success();
    test.wait_vm_status(vm, "Paused").await;
    test.virtctl(&["unpause", "vm", vm]).await.success();
    test.virtctl(&["stop", vm]).await.success();
    test.wait_vm_status(vm, "Stopped").await;
}

#[tokio::test]
async fn guest_survives_launcher_kill() {
    check_guest_survives_kill_of("virt-launcher", "launcher").await;
}

#[tokio::test]
async fn guest_survives_libvirtd_kill() {
    check_guest_survives_kill_of("libvirtd", "libvirtd").await;
}

#[tokio::test]
async fn qemu_kill_fails_vmi_with_reason() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("dies").strategy("Once")).await;
    test.wait_vmi_phase("dies", "Running").await;
    kill_in_pod(&test.pod_uid().await, "qemu-system-x86");
    let vmi = test.wait_vmi_phase("dies", "Failed").await;
    let status = &vmi["status"];
    assert_eq!(status["reason"], "QEMUCrashed", "{status}");
    let conditions = status["conditions"].as_array().expect("conditions");
    let ready = conditions.iter().find(|one| one["type"] == "Ready");
    let message = ready.and_then(|ready| ready["message"].as_str());
    let message = message.expect("a message");
    assert!(message.contains("ended by signal 9"), "{message}");
}
