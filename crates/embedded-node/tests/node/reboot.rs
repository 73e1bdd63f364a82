//! A reboot of the host ends all pods; their records stay.

use std::fs;

use k8s_openapi::api::core::v1::Pod;
use pod_supervisor::{cgroup, layout};
use serde_json::{Value, json};

use super::Environment;

/// Ends the pod's processes as a reboot does, and leaves the records of an earlier boot.
fn reboot(env: &Environment, pod: &Pod) {
    let uid = pod.metadata.uid.as_deref().unwrap();
    let group = format!("{}/pod{uid}", env.cgroup);
    env.until("killed", || {
        cgroup::kill(&group).unwrap();
        cgroup::pids(&group).unwrap().is_empty()
    });
    cgroup::remove(&group).unwrap();
    let path = env.pod_dir(pod).join(layout::STATUS_FILE);
    let mut status: Value = serde_json::from_slice(&fs::read(&path).unwrap()).unwrap();
    status["bootId"] = json!("another boot");
    fs::write(&path, status.to_string()).unwrap();
}

#[test]
fn pods_of_an_earlier_boot_fail_or_run_again() {
    let mut env = Environment::new("reboot");
    env.create(
        "fails",
        json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0}),
    );
    env.create("again", json!({"terminationGracePeriodSeconds": 0}));
    let pods = ["fails", "again"].map(|name| env.wait_phase(name, "Running"));
    let processes = pods.each_ref().map(|pod| env.process(pod));
    env.kill_node();
    for pod in &pods {
        reboot(&env, pod);
    }
    env.start_node();
    let failed = serde_json::to_value(env.wait_phase("fails", "Failed").status).unwrap();
    assert_eq!(failed["reason"], "NodeRestarted");
    env.wait_until("again", "a new process", |status| {
        let id = status["containerStatuses"][0]["state"]["running"]["startedAt"].as_str();
        id.is_some() && env.pod_dir(&pods[1]).join(layout::STATUS_FILE).exists()
    });
    env.until("running again", || {
        fs::read_to_string(env.pod_dir(&pods[1]).join(layout::STATUS_FILE))
            .is_ok_and(|text| !text.contains("another boot") && text.contains("\"running\""))
    });
    assert_ne!(env.process(&pods[1]), processes[1]);
    assert!(processes.iter().all(|process| !process.is_alive()));
    env.delete_and_wait("fails");
    env.assert_no_leftovers(&pods[0]);
}
