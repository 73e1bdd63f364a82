//! Persistent volume claims: created, bound, retained and removed, used by real pods.

use std::{
    fs,
    path::{Path, PathBuf},
};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, PersistentVolumeClaim, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api,
    api::{DeleteParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use serde_json::{Value, json};

use super::{Environment, register_null_device};

impl Environment {
    pub(super) fn claims(&self) -> Api<PersistentVolumeClaim> {
        Api::default_namespaced(self.client.clone())
    }

    pub(super) fn volumes(&self) -> Api<PersistentVolume> {
        Api::all(self.client.clone())
    }

    pub(super) fn claim(&self, name: &str, size: &str, mode: &str) {
        let claim = serde_json::from_value(json!({
            "metadata": {"name": name},
            "spec": {
                "accessModes": ["ReadWriteOnce"], "volumeMode": mode,
                "resources": {"requests": {"storage": size}},
            },
        }))
        .unwrap();
        self.wait(self.claims().create(&PostParams::default(), &claim))
            .unwrap();
    }

    pub(super) fn wait_claim(
        &self,
        name: &str,
        done: impl Fn(&Value) -> bool,
    ) -> PersistentVolumeClaim {
        let condition = |claim: Option<&PersistentVolumeClaim>| {
            claim.is_some_and(|claim| done(&serde_json::to_value(claim).unwrap()))
        };
        self.wait(await_condition(self.claims(), name, condition))
            .unwrap()
            .unwrap()
    }

    pub(super) fn delete_claim(&self, name: &str) {
        self.wait(self.claims().delete(name, &DeleteParams::default()))
            .unwrap();
    }

    pub(super) fn wait_no_claim(&self, name: &str) {
        let gone = |claim: Option<&PersistentVolumeClaim>| claim.is_none();
        self.wait(await_condition(self.claims(), name, gone))
            .unwrap();
    }

    /// Creates a pod that runs the script with the claim's volume `v`, mounted or as a device.
    pub(super) fn pod_with_claim(
        &self,
        name: &str,
        claim: &str,
        attachment: Attachment,
        script: &str,
    ) -> Pod {
        let mut container = json!({
            "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
            "env": [{"name": "POD", "value": name}],
        });
        container[attachment.field] = attachment.value;
        self.create(
            name,
            json!({
                "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
                "securityContext": {"runAsUser": 107, "runAsGroup": 107, "fsGroup": 107},
                "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": claim}}],
                "containers": [container],
            }),
        )
    }

    pub(super) fn output(&self, pod: &str) -> String {
        self.wait_until(pod, "end", |status| {
            matches!(status["phase"].as_str(), Some("Succeeded" | "Failed"))
        });
        self.log(&format!("/containerLogs/default/{pod}/main")).1
    }

    pub(super) fn loop_devices(&self) -> usize {
        let all = fs::read_dir("/sys/block").unwrap();
        all.filter_map(|entry| {
            let file = entry.unwrap().path().join("loop/backing_file");
            let text = fs::read_to_string(file).ok()?;
            text.starts_with(self.root().to_str().unwrap())
                .then_some(())
        })
        .count()
    }
}

/// How a container uses the volume `v`.
pub(super) struct Attachment {
    /// `volumeMounts` or `volumeDevices`.
    field: &'static str,
    value: Value,
}

pub(super) fn device() -> Attachment {
    Attachment {
        field: "volumeDevices",
        value: json!([{"name": "v", "devicePath": "/dev/disk"}]),
    }
}

pub(super) fn mounted(more: &Value) -> Attachment {
    let mut mount = json!({"name": "v", "mountPath": "/data"});
    for (key, value) in more.as_object().unwrap() {
        mount[key] = value.clone();
    }
    Attachment {
        field: "volumeMounts",
        value: json!([mount]),
    }
}

fn path_of(volume: &PersistentVolume) -> PathBuf {
    let local = volume.spec.as_ref().unwrap().local.as_ref().unwrap();
    PathBuf::from(&local.path)
}

#[test]
fn claim_is_bound_once_the_node_has_the_device() {
    let env = Environment::new("late-device");
    env.claim("data", "8Mi", "Filesystem");
    env.create(
        "p",
        json!({
            "restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "data"}}],
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", "exit 0"],
                "volumeMounts": [{"name": "v", "mountPath": "/data"}],
                "resources": {"limits": {"example.com/null": "1"}},
            }],
        }),
    );
    env.wait_until("p", "waiting for a device", |status| {
        let message = status["conditions"][0]["message"].as_str();
        message.is_some_and(|message| message.ends_with("the node has no example.com/null"))
    });
    let _device = register_null_device(&env);
    env.wait_phase("p", "Succeeded");
}

#[test]
fn claim_waits_for_its_pod_and_keeps_data() {
    let env = Environment::new("claims");
    env.claim("data", "8Mi", "Filesystem");
    let waiting = env.wait_claim("data", |claim| {
        claim["spec"]["storageClassName"] == "local"
            && claim["metadata"]["finalizers"] == json!(["kubernetes.io/pvc-protection"])
    });
    let uid = waiting.metadata.uid.clone().unwrap();
    env.wait_for_reasons(&uid, &["WaitForFirstConsumer"]);
    env.pod_with_claim(
        "one",
        "data",
        mounted(&json!({})),
        "echo kept > /data/file && stat -c '%a %g' /data && stat -c %g /data/file",
    );
    assert_eq!(env.output("one"), "2777 107\n107\n");
    let bound = env.wait_claim("data", |claim| claim["status"]["phase"] == "Bound");
    let bound = serde_json::to_value(&bound).unwrap();
    let volume = format!("pvc-{uid}");
    assert_eq!(bound["spec"]["volumeName"], json!(volume));
    assert_eq!(bound["status"]["capacity"]["storage"], "8Mi");
    let annotations = &bound["metadata"]["annotations"];
    for (name, value) in [
        ("volume.kubernetes.io/selected-node", "here"),
        (
            "volume.kubernetes.io/storage-provisioner",
            "ferrovirt.io/local",
        ),
        ("pv.kubernetes.io/bind-completed", "yes"),
        ("pv.kubernetes.io/bound-by-controller", "yes"),
    ] {
        assert_eq!(annotations[name], value, "{name}");
    }
    let object = env.wait(env.volumes().get(&volume)).unwrap();
    let path = path_of(&object);
    let object = serde_json::to_value(&object).unwrap();
    assert_eq!(object["spec"]["claimRef"]["name"], "data");
    assert_eq!(object["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let provisioner = &object["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"];
    assert_eq!(provisioner, "ferrovirt.io/local");
    // The same data, by sub-path and read-only.
    let part = json!({"subPathExpr": "$(POD)", "mountPath": "/data"});
    env.pod_with_claim("two", "data", mounted(&part), "echo mine > /data/file");
    assert_eq!(env.output("two"), "");
    let read_only = mounted(&json!({"readOnly": true}));
    let script = "cat /data/file /data/two/file; touch /data/new 2>&1";
    env.pod_with_claim("three", "data", read_only, script);
    let text = env.output("three");
    assert!(text.starts_with("kept\nmine\n"), "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
    // A deleted claim stays until its last pod is gone.
    env.delete_claim("data");
    for pod in ["one", "two", "three"] {
        let claim = env.wait(env.claims().get("data")).unwrap();
        assert!(claim.metadata.deletion_timestamp.is_some());
        assert!(path.join("file").exists());
        env.delete_and_wait(pod);
    }
    env.wait_no_claim("data");
    let gone = |volume: Option<&PersistentVolume>| volume.is_none();
    env.wait(await_condition(env.volumes(), &volume, gone))
        .unwrap();
    assert!(!path.parent().unwrap().exists());
    env.wait_for_reasons(&uid, &["Provisioning", "ProvisioningSucceeded"]);
}

#[test]
fn block_volume_survives_pods_and_node() {
    let mut env = Environment::new("block");
    env.claim("disk", "4Mi", "Block");
    let script = "stat -c '%F %a %u %g' /dev/disk && echo hello > /dev/disk && sleep 1000";
    let pod = env.pod_with_claim("writes", "disk", device(), script);
    env.wait_phase("writes", "Running");
    env.until("written", || {
        env.log("/containerLogs/default/writes/main").1 == "block special file 660 107 107\n"
    });
    assert_eq!(env.loop_devices(), 1);
    let process = env.process(&pod);
    env.kill_node();
    env.start_node();
    assert!(process.is_alive());
    env.pod_with_claim("reads", "disk", device(), "dd if=/dev/disk bs=6 count=1");
    assert!(env.output("reads").starts_with("hello\n"));
    assert_eq!(env.loop_devices(), 1);
    env.delete_and_wait("writes");
    env.delete_and_wait("reads");
    env.until("detached", || env.loop_devices() == 0);
    env.pod_with_claim("again", "disk", device(), "dd if=/dev/disk bs=6 count=1");
    assert!(env.output("again").starts_with("hello\n"));
}

#[test]
fn volume_leftovers_of_a_killed_node_are_removed() {
    let mut env = Environment::new("leftovers");
    env.claim("disk", "1Mi", "Block");
    env.pod_with_claim("p", "disk", device(), "sleep 1000");
    env.wait_phase("p", "Running");
    env.kill_node();
    let volumes = env.root().join("volumes");
    // An unpublished volume of a deleted claim, a partly removed one, and the device of a deleted
    // pod.
    fs::create_dir_all(volumes.join("pvc-unknown/data")).unwrap();
    let record = json!({"bytes": 4096, "mode": "Filesystem", "state": "Making"});
    fs::write(volumes.join("pvc-unknown/volume.json"), record.to_string()).unwrap();
    fs::create_dir_all(volumes.join("pvc-old.gone/data")).unwrap();
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    env.wait(env.pods().delete("p", &now)).unwrap();
    env.start_node();
    env.until("swept", || {
        fs::read_dir(&volumes).unwrap().count() == 1 && env.loop_devices() == 0
    });
}

#[test]
fn retained_volume_keeps_its_data() {
    let env = Environment::new("retain");
    env.claim("data", "1Mi", "Filesystem");
    env.pod_with_claim("p", "data", mounted(&json!({})), "echo kept > /data/file");
    env.output("p");
    let claim = env.wait(env.claims().get("data")).unwrap();
    let volume = claim.spec.unwrap().volume_name.unwrap();
    let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    let patch = Patch::Merge(&keep);
    env.wait(
        env.volumes()
            .patch(&volume, &PatchParams::default(), &patch),
    )
    .unwrap();
    env.delete_and_wait("p");
    env.delete_claim("data");
    env.wait_no_claim("data");
    let released = |volume: Option<&PersistentVolume>| {
        let status = volume.and_then(|volume| volume.status.as_ref());
        status.is_some_and(|status| status.phase.as_deref() == Some("Released"))
    };
    let found = env
        .wait(await_condition(env.volumes(), &volume, released))
        .unwrap();
    let path = path_of(&found.unwrap());
    env.wait(env.volumes().delete(&volume, &DeleteParams::default()))
        .unwrap();
    let gone = |volume: Option<&PersistentVolume>| volume.is_none();
    env.wait(await_condition(env.volumes(), &volume, gone))
        .unwrap();
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "kept\n");
}

#[test]
fn pod_reports_claim_failures_and_recovers() {
    let env = Environment::new("claim-trouble");
    env.pod_with_claim("early", "late", mounted(&json!({})), "echo here");
    let scheduled = |status: &Value| {
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == "PodScheduled")
    };
    let reports = |part: &'static str| {
        move |status: &Value| {
            scheduled(status).is_some_and(|one| {
                one["reason"] == "Unschedulable"
                    && one["message"].as_str().is_some_and(|m| m.contains(part))
            })
        }
    };
    let message = "persistentvolumeclaim \"late\" not found";
    env.wait_until("early", message, reports(message));
    // More than any disk has.
    env.claim("late", "4Ei", "Filesystem");
    env.wait_until("early", "not enough space", reports("not enough space"));
    let late = env.wait(env.claims().get("late")).unwrap();
    env.wait_for_reasons(&late.metadata.uid.unwrap(), &["ProvisioningFailed"]);
    env.delete_claim("late");
    env.wait_no_claim("late");
    env.claim("late", "1Mi", "Filesystem");
    assert_eq!(env.output("early"), "here\n");
    // A filesystem volume used as a device.
    env.pod_with_claim("wrong", "late", device(), "true");
    env.wait_until("wrong", "reason", |status| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "CreateContainerConfigError"
            && waiting["message"]
                .as_str()
                .is_some_and(|m| m.contains("Filesystem"))
    });
    env.delete_and_wait("wrong");
}

#[test]
fn administrator_volume_is_bound_and_never_deleted() {
    let env = Environment::new("static");
    let dir = env.dir.join("admin-volume");
    fs::create_dir(&dir).unwrap();
    fs::write(dir.join("file"), "theirs").unwrap();
    let volume = serde_json::from_value(json!({
        "metadata": {"name": "theirs"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": dir},
        },
    }))
    .unwrap();
    env.wait(env.volumes().create(&PostParams::default(), &volume))
        .unwrap();
    let claim = serde_json::from_value(json!({
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }))
    .unwrap();
    env.wait(env.claims().create(&PostParams::default(), &claim))
        .unwrap();
    let bound = env.wait_claim("c", |claim| claim["status"]["phase"] == "Bound");
    let status = serde_json::to_value(bound.status).unwrap();
    assert_eq!(status["capacity"]["storage"], "1Gi");
    env.pod_with_claim("p", "c", mounted(&json!({})), "cat /data/file");
    assert_eq!(env.output("p"), "theirs\n");
    env.delete_and_wait("p");
    env.delete_claim("c");
    let failed = |volume: Option<&PersistentVolume>| {
        let status = volume.and_then(|volume| volume.status.as_ref());
        status.is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    };
    env.wait(await_condition(env.volumes(), "theirs", failed))
        .unwrap();
    assert!(Path::new(&dir).join("file").exists());
}

#[test]
fn ephemeral_volume_is_deleted_with_its_pod() {
    let env = Environment::new("ephemeral");
    let classes = Api::<StorageClass>::all(env.client.clone());
    let class = env.wait(await_condition(
        classes,
        "local",
        |class: Option<&StorageClass>| class.is_some(),
    ));
    let class = class.unwrap().unwrap();
    assert_eq!(
        class.volume_binding_mode.as_deref(),
        Some("WaitForFirstConsumer")
    );
    env.create(
        "p",
        json!({
            "terminationGracePeriodSeconds": 0,
            "volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": {"spec": {
                "accessModes": ["ReadWriteOncePod"],
                "resources": {"requests": {"storage": "1Mi"}},
            }}}}],
            "containers": [{
                "name": "main", "image": "busybox:1",
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }],
        }),
    );
    env.wait_phase("p", "Running");
    let claim = env.wait_claim("p-v", |claim| claim["status"]["phase"] == "Bound");
    assert_eq!(claim.metadata.owner_references.unwrap()[0].name, "p");
    env.pod_with_claim("other", "p-v", mounted(&json!({})), "true");
    let pod = env.wait_until("other", "refused", |status| {
        status["conditions"][0]["message"]
            .as_str()
            .is_some_and(|message| message.contains("ReadWriteOncePod"))
    });
    env.delete_and_wait("other");
    env.assert_no_leftovers(&pod);
    env.delete_and_wait("p");
    env.wait_no_claim("p-v");
}
