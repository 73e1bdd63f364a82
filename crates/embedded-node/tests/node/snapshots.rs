//! Volume snapshots: taken, restored, cloned, retained and removed, with real pods.

use std::fs;

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::{
    Api,
    api::{DeleteParams, ListParams, PostParams},
    runtime::wait::await_condition,
};
use kubevirt_api::volume_snapshot::{VolumeSnapshot, VolumeSnapshotClass, VolumeSnapshotContent};
use serde_json::{Value, json};

use super::{
    Environment,
    failpoints::{assert_no_volumes, each, names, run_with_kill},
    storage::{device, mounted},
};

impl Environment {
    fn snapshots(&self) -> Api<VolumeSnapshot> {
        Api::default_namespaced(self.client.clone())
    }

    fn contents(&self) -> Api<VolumeSnapshotContent> {
        Api::all(self.client.clone())
    }

    fn snapshot(&self, name: &str, source: &Value, class: Option<&str>) {
        // The class is created by the node.
        let local = Api::<VolumeSnapshotClass>::all(self.client.clone());
        let exists = |class: Option<&VolumeSnapshotClass>| class.is_some();
        self.wait(await_condition(local, "local", exists)).unwrap();
        let mut spec = json!({"source": source});
        if let Some(class) = class {
            spec["volumeSnapshotClassName"] = json!(class);
        }
        let snapshot = json!({"metadata": {"name": name}, "spec": spec});
        let snapshot: VolumeSnapshot = serde_json::from_value(snapshot).unwrap();
        self.wait(self.snapshots().create(&PostParams::default(), &snapshot))
            .unwrap();
    }

    fn wait_snapshot(&self, name: &str, done: impl Fn(&Value) -> bool) -> Value {
        let condition = |one: Option<&VolumeSnapshot>| {
            one.is_some_and(|one| done(&serde_json::to_value(&one.status).unwrap()))
        };
        let found = self.wait(await_condition(self.snapshots(), name, condition));
        serde_json::to_value(found.unwrap().unwrap()).unwrap()
    }

    fn wait_ready(&self, name: &str) -> Value {
        self.wait_snapshot(name, |status| status["readyToUse"] == true)
    }

    fn delete_snapshot(&self, name: &str) {
        self.wait(self.snapshots().delete(name, &DeleteParams::default()))
            .unwrap();
    }

    fn wait_no_snapshot(&self, name: &str) {
        let gone = |one: Option<&VolumeSnapshot>| one.is_none();
        self.wait(await_condition(self.snapshots(), name, gone))
            .unwrap();
    }

    /// A claim with a data source.
    fn claim_from(&self, name: &str, size: &str, mode: &str, source: &Value) {
        let claim = json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeMode": mode,
                "resources": {"requests": {"storage": size}}, "dataSource": source,
            },
        });
        let claim: PersistentVolumeClaim = serde_json::from_value(claim).unwrap();
        self.wait(self.claims().create(&PostParams::default(), &claim))
            .unwrap();
    }

    fn snapshot_files(&self) -> usize {
        fs::read_dir(self.root().join("snapshots")).map_or(0, Iterator::count)
    }
}

fn of_claim(name: &str) -> Value {
    json!({"persistentVolumeClaimName": name})
}

fn from_snapshot(name: &str) -> Value {
    json!({"apiGroup": "snapshot.storage.k8s.io", "kind": "VolumeSnapshot", "name": name})
}

#[test]
fn snapshot_keeps_the_data_of_its_moment() {
    let env = Environment::new("snapshots");
    env.claim("data", "4Mi", "Filesystem");
    env.claim("disk", "4Mi", "Block");
    let write = |pod: &str, text: &str| {
        let files = format!("mkdir -p /data/d && echo {text} > /data/d/file");
        env.pod_with_claim(&format!("{pod}-data"), "data", mounted(&json!({})), &files);
        let raw = format!("echo {text} | dd of=/dev/disk conv=notrunc,fsync 2>/dev/null");
        env.pod_with_claim(&format!("{pod}-disk"), "disk", device(), &raw);
        for claim in ["data", "disk"] {
            env.output(&format!("{pod}-{claim}"));
        }
    };
    write("before", "first");
    for claim in ["data", "disk"] {
        env.snapshot(claim, &of_claim(claim), None);
        let snapshot = env.wait_ready(claim);
        assert_eq!(snapshot["status"]["restoreSize"], "4194304");
        assert!(snapshot["status"]["creationTime"].is_string());
    }
    write("after", "second");
    env.claim_from("old-data", "8Mi", "Filesystem", &from_snapshot("data"));
    env.claim_from("old-disk", "8Mi", "Block", &from_snapshot("disk"));
    env.pod_with_claim(
        "old-data",
        "old-data",
        mounted(&json!({})),
        "cat /data/d/file",
    );
    let read = "dd if=/dev/disk bs=6 count=1 2>/dev/null; blockdev --getsize64 /dev/disk";
    env.pod_with_claim("old-disk", "old-disk", device(), read);
    assert_eq!(env.output("old-data"), "first\n");
    let disk = env.output("old-disk");
    assert!(disk.starts_with("first\n"), "{disk}");
    // A claim is copied when no pod uses it.
    env.claim_from(
        "copy",
        "4Mi",
        "Filesystem",
        &json!({"kind": "PersistentVolumeClaim", "name": "data"}),
    );
    env.pod_with_claim("copy", "copy", mounted(&json!({})), "cat /data/d/file");
    let waits = "is in use by a pod";
    env.wait_until("copy", waits, |status| {
        let message = status["conditions"][0]["message"].as_str();
        message.is_some_and(|message| message.contains(waits))
    });
    for pod in ["before-data", "after-data"] {
        env.delete_and_wait(pod);
    }
    assert_eq!(env.output("copy"), "second\n");
    for claim in ["data", "disk"] {
        env.delete_snapshot(claim);
        env.wait_no_snapshot(claim);
    }
    assert_eq!(env.snapshot_files(), 0);
}

#[test]
fn problems_of_snapshots_and_their_claims_are_reported() {
    let env = Environment::new("snapshot-trouble");
    let error = |name: &str, part: &str| {
        env.wait_snapshot(name, |status| {
            let message = status["error"]["message"].as_str();
            message.is_some_and(|message| message.contains(part))
        });
    };
    env.snapshot("s", &of_claim("data"), None);
    error("s", "claim \"data\" not found");
    env.claim("data", "1Mi", "Filesystem");
    error("s", "has no volume yet");
    env.pod_with_claim("p", "data", mounted(&json!({})), "echo kept > /data/file");
    env.output("p");
    env.wait_ready("s");
    // It may be older than the file.
    env.delete_snapshot("s");
    env.wait_no_snapshot("s");
    env.snapshot("s", &of_claim("data"), None);
    env.wait_ready("s");
    for (name, size, mode, part) in [
        ("small", "4Ki", "Filesystem", "is less than the size"),
        ("raw", "1Mi", "Block", "volumeMode Filesystem"),
    ] {
        env.claim_from(name, size, mode, &from_snapshot("s"));
        let attachment = match mode {
            "Block" => device(),
            _ => mounted(&json!({})),
        };
        env.pod_with_claim(name, name, attachment, "true");
        env.wait_until(name, part, |status| {
            let message = status["conditions"][0]["message"].as_str();
            message.is_some_and(|message| message.contains(part))
        });
        env.delete_and_wait(name);
        env.delete_claim(name);
        env.wait_no_claim(name);
    }
    // A snapshot stays until the claims that are to have its data have it.
    env.claim_from("late", "1Mi", "Filesystem", &from_snapshot("s"));
    env.wait_claim("late", |claim| claim["spec"]["storageClassName"] == "local");
    env.delete_snapshot("s");
    env.pod_with_claim("late", "late", mounted(&json!({})), "cat /data/file");
    assert_eq!(env.output("late"), "kept\n");
    env.wait_no_snapshot("s");
    assert_eq!(env.snapshot_files(), 0);
}

/// Takes, restores and deletes a snapshot, and adopts the data of one that was retained.
fn take_restore_and_adopt(env: &Environment) {
    env.claim("data", "1Mi", "Filesystem");
    env.pod_with_claim(
        "writes",
        "data",
        mounted(&json!({})),
        "echo kept > /data/file",
    );
    env.wait_phase("writes", "Succeeded");
    let class = json!({
        "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotClass",
        "metadata": {"name": "kept"}, "driver": "ferrovirt.io/local", "deletionPolicy": "Retain",
    });
    env.create_object(&class);
    env.snapshot("s", &of_claim("data"), Some("local"));
    env.wait_ready("s");
    env.claim_from("back", "1Mi", "Filesystem", &from_snapshot("s"));
    // The node, which has the logs, may be dead at this moment.
    let compares = "test \"$(cat /data/file)\" = kept";
    env.pod_with_claim("reads", "back", mounted(&json!({})), compares);
    env.wait_phase("reads", "Succeeded");
    env.delete_snapshot("s");
    env.wait_no_snapshot("s");

    env.snapshot("t", &of_claim("data"), Some("kept"));
    let kept = env.wait_ready("t");
    let content = kept["status"]["boundVolumeSnapshotContentName"]
        .as_str()
        .unwrap();
    let found = env.wait(env.contents().get(content)).unwrap();
    let handle = found.status.unwrap().snapshot_handle.unwrap();
    env.delete_snapshot("t");
    env.wait_no_snapshot("t");
    env.wait(env.contents().delete(content, &DeleteParams::default()))
        .unwrap();
    let gone = |one: Option<&VolumeSnapshotContent>| one.is_none();
    env.wait(await_condition(env.contents(), content, gone))
        .unwrap();
    assert!(env.root().join("snapshots").join(&handle).exists());

    for (name, handle, owner) in [
        (
            "adopted",
            handle.as_str(),
            json!({"namespace": "default", "name": "u"}),
        ),
        (
            "stray",
            "snapshot-none",
            json!({"namespace": "default", "name": "v", "uid": "none"}),
        ),
    ] {
        env.create_object(&json!({
            "apiVersion": "snapshot.storage.k8s.io/v1", "kind": "VolumeSnapshotContent",
            "metadata": {"name": name},
            "spec": {
                "driver": "ferrovirt.io/local", "deletionPolicy": "Delete",
                "source": {"snapshotHandle": handle}, "volumeSnapshotRef": owner,
            },
        }));
    }
    env.wait(await_condition(env.contents(), "stray", gone))
        .unwrap();
    env.snapshot("u", &json!({"volumeSnapshotContentName": "adopted"}), None);
    env.wait_ready("u");
    env.delete_snapshot("u");
    env.wait_no_snapshot("u");
    env.until("without copies", || env.snapshot_files() == 0);
    for pod in ["writes", "reads"] {
        env.delete_and_wait(pod);
    }
    for claim in ["data", "back"] {
        env.delete_claim(claim);
        env.wait_no_claim(claim);
    }
    let left = env
        .wait(env.contents().list(&ListParams::default()))
        .unwrap();
    assert_eq!(left.items.len(), 0);
    assert_no_volumes(env);
}

#[test]
fn snapshots_survive_node_kill_at_every_failpoint() {
    each(names("embedded-node/snapshot/"), |name| {
        run_with_kill(name, take_restore_and_adopt);
    });
}
