//! A nearly full disk stops new pods, and nothing that runs.

use std::fs;

use k8s_openapi::api::core::v1::Node;
use kube::Api;
use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::{Value, json};

use super::Environment;

/// A file system of 64 MiB at the node's directory.
struct SmallDisk<'a>(&'a std::path::Path);

impl<'a> SmallDisk<'a> {
    fn mount(dir: &'a std::path::Path) -> Self {
        fs::create_dir_all(dir).unwrap();
        mount(
            "tmpfs",
            dir,
            "tmpfs",
            MountFlags::empty(),
            Some(c"size=64m"),
        )
        .unwrap();
        Self(dir)
    }
}

impl Drop for SmallDisk<'_> {
    fn drop(&mut self) {
        unmount(self.0, UnmountFlags::DETACH).unwrap();
    }
}

fn condition(status: &Value, kind: &str) -> Value {
    let all = status["conditions"].as_array().cloned().unwrap_or_default();
    let found = all.into_iter().find(|one| one["type"] == kind);
    found.unwrap_or_default()
}

fn wait_for_pressure(env: &Environment, expected: &str) {
    let api = Api::<Node>::all(env.client.clone());
    env.until(&format!("DiskPressure={expected}"), || {
        let node = env.wait(api.get("here")).unwrap();
        let status = serde_json::to_value(node.status).unwrap();
        let ready = condition(&status, "Ready");
        assert_eq!(ready["status"], "True", "a full disk ends nothing");
        condition(&status, "DiskPressure")["status"] == expected
    });
}

#[test]
fn nearly_full_disk_stops_new_pods_until_there_is_space() {
    let dir = tempfile::Builder::new()
        .prefix("embedded-node-")
        .tempdir()
        .unwrap();
    let root = dir.path().join("node");
    let _disk = SmallDisk::mount(&root);
    let env = Environment::in_directory("disk", dir.path());
    env.create("before", json!({"terminationGracePeriodSeconds": 0}));
    let before = env.wait_phase("before", "Running");
    wait_for_pressure(&env, "False");

    let filler = root.join("filler");
    fs::write(&filler, vec![1; 60 << 20]).unwrap();
    wait_for_pressure(&env, "True");
    env.create("late", json!({"terminationGracePeriodSeconds": 0}));
    env.wait_until("late", "PodScheduled", |status| {
        let scheduled = condition(status, "PodScheduled");
        let message = scheduled["message"].as_str().unwrap_or_default();
        scheduled["status"] == "False" && message.contains("DiskPressure")
    });
    env.create(
        "bound",
        json!({
            "nodeName": "here", "terminationGracePeriodSeconds": 0,
            "containers": [{"name": "main", "image": "missing:1"}],
        }),
    );
    env.wait_until("bound", "refused pull", |status| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        let message = waiting["message"].as_str().unwrap_or_default();
        message.contains("its disk is nearly full")
    });
    assert!(env.process(&before).is_alive());

    fs::remove_file(filler).unwrap();
    env.wait_phase("late", "Running");
    wait_for_pressure(&env, "False");
}

#[test]
fn pod_with_a_volume_above_its_limit_is_evicted() {
    let env = Environment::new("limit");
    let pod = |bytes: &str| {
        let script = format!("head -c {bytes} /dev/zero > /v/file; sleep 1000");
        json!({
            "terminationGracePeriodSeconds": 0, "restartPolicy": "Never",
            "volumes": [{"name": "v", "emptyDir": {"sizeLimit": "1Mi"}}],
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }],
        })
    };
    env.create("within", pod("500000"));
    env.create("above", pod("3000000"));
    let within = env.wait_phase("within", "Running");
    let status = env.wait_phase("above", "Failed").status.unwrap();
    assert_eq!(status.reason.as_deref(), Some("Evicted"));
    let message = "Usage of EmptyDir volume \"v\" exceeds the limit \"1Mi\". ";
    assert_eq!(status.message.as_deref(), Some(message));
    assert!(env.process(&within).is_alive());
}
