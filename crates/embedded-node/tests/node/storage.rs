//! Persistent volume claims: made, shared out, kept and removed, with real pods on them.

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

use super::{Home, offer_null};

impl Home {
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

    /// A pod that runs the script on the volume `v` of that claim, by mount or as a device.
    fn on_claim(&self, name: &str, claim: &str, (field, at): (&str, Value), script: &str) -> Pod {
        let mut container = json!({
            "name": "main", "image": "busybox:1", "command": ["sh", "-c", script],
            "env": [{"name": "POD", "value": name}],
        });
        container[field] = at;
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

    fn output(&self, pod: &str) -> String {
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

fn mounted(more: &Value) -> (&'static str, Value) {
    let mut mount = json!({"name": "v", "mountPath": "/data"});
    for (key, value) in more.as_object().unwrap() {
        mount[key] = value.clone();
    }
    ("volumeMounts", json!([mount]))
}

fn path_of(volume: &PersistentVolume) -> PathBuf {
    let local = volume.spec.as_ref().unwrap().local.as_ref().unwrap();
    PathBuf::from(&local.path)
}

#[test]
fn claim_goes_on_when_the_node_has_what_its_pod_lacked() {
    let home = Home::new("late-device");
    home.claim("data", "8Mi", "Filesystem");
    home.create(
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
    home.wait_until("p", "waiting for a device", |status| {
        let message = status["conditions"][0]["message"].as_str();
        message.is_some_and(|message| message.ends_with("the node has no example.com/null"))
    });
    let _offer = offer_null(&home);
    home.wait_phase("p", "Succeeded");
}

#[test]
fn claim_waits_for_its_pod_and_keeps_what_pods_write() {
    let home = Home::new("claims");
    home.claim("data", "8Mi", "Filesystem");
    let waiting = home.wait_claim("data", |claim| {
        claim["spec"]["storageClassName"] == "local"
            && claim["metadata"]["finalizers"] == json!(["kubernetes.io/pvc-protection"])
    });
    let uid = waiting.metadata.uid.clone().unwrap();
    home.wait_for_reasons(&uid, &["WaitForFirstConsumer"]);
    home.on_claim(
        "one",
        "data",
        mounted(&json!({})),
        "echo kept > /data/file && stat -c '%a %g' /data && stat -c %g /data/file",
    );
    assert_eq!(home.output("one"), "2777 107\n107\n");
    let bound = home.wait_claim("data", |claim| claim["status"]["phase"] == "Bound");
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
    let object = home.wait(home.volumes().get(&volume)).unwrap();
    let path = path_of(&object);
    let object = serde_json::to_value(&object).unwrap();
    assert_eq!(object["spec"]["claimRef"]["name"], "data");
    assert_eq!(object["spec"]["persistentVolumeReclaimPolicy"], "Delete");
    let provisioner = &object["metadata"]["annotations"]["pv.kubernetes.io/provisioned-by"];
    assert_eq!(provisioner, "ferrovirt.io/local");
    // The same data, in part and for reading alone.
    let part = json!({"subPathExpr": "$(POD)", "mountPath": "/data"});
    home.on_claim("two", "data", mounted(&part), "echo mine > /data/file");
    assert_eq!(home.output("two"), "");
    let read_only = mounted(&json!({"readOnly": true}));
    let script = "cat /data/file /data/two/file; touch /data/new 2>&1";
    home.on_claim("three", "data", read_only, script);
    let text = home.output("three");
    assert!(text.starts_with("kept\nmine\n"), "{text}");
    assert!(text.contains("Read-only file system"), "{text}");
    // Deleted while pods have it: it stays until the last of them has gone.
    home.delete_claim("data");
    for pod in ["one", "two", "three"] {
        let claim = home.wait(home.claims().get("data")).unwrap();
        assert!(claim.metadata.deletion_timestamp.is_some());
        assert!(path.join("file").exists());
        home.delete_and_wait(pod);
    }
    home.wait_no_claim("data");
    let gone = |volume: Option<&PersistentVolume>| volume.is_none();
    home.wait(await_condition(home.volumes(), &volume, gone))
        .unwrap();
    assert!(!path.parent().unwrap().exists());
    home.wait_for_reasons(&uid, &["Provisioning", "ProvisioningSucceeded"]);
}

#[test]
fn block_volume_is_a_device_that_outlives_pods_and_node() {
    let mut home = Home::new("block");
    home.claim("disk", "4Mi", "Block");
    let device = || {
        (
            "volumeDevices",
            json!([{"name": "v", "devicePath": "/dev/disk"}]),
        )
    };
    let script = "stat -c '%F %a %u %g' /dev/disk && echo hello > /dev/disk && sleep 1000";
    let pod = home.on_claim("writes", "disk", device(), script);
    home.wait_phase("writes", "Running");
    home.until("written", || {
        home.log("/containerLogs/default/writes/main").1 == "block special file 660 107 107\n"
    });
    assert_eq!(home.loop_devices(), 1);
    let process = home.process(&pod);
    home.kill_node();
    home.start_node();
    assert!(process.is_alive());
    home.on_claim("reads", "disk", device(), "dd if=/dev/disk bs=6 count=1");
    assert!(home.output("reads").starts_with("hello\n"));
    assert_eq!(home.loop_devices(), 1);
    home.delete_and_wait("writes");
    home.delete_and_wait("reads");
    home.until("detached", || home.loop_devices() == 0);
    home.on_claim("again", "disk", device(), "dd if=/dev/disk bs=6 count=1");
    assert!(home.output("again").starts_with("hello\n"));
}

#[test]
fn what_a_dead_node_left_of_volumes_is_found_again() {
    let mut home = Home::new("leftovers");
    home.claim("disk", "1Mi", "Block");
    let device = (
        "volumeDevices",
        json!([{"name": "v", "devicePath": "/dev/disk"}]),
    );
    home.on_claim("p", "disk", device, "sleep 1000");
    home.wait_phase("p", "Running");
    home.kill_node();
    let volumes = home.root().join("volumes");
    // Made for a claim that has gone before anybody knew; half removed; a device of a dead pod.
    fs::create_dir_all(volumes.join("pvc-unknown/data")).unwrap();
    fs::create_dir_all(volumes.join("pvc-old.gone/data")).unwrap();
    let now = DeleteParams {
        grace_period_seconds: Some(0),
        ..DeleteParams::default()
    };
    home.wait(home.pods().delete("p", &now)).unwrap();
    home.start_node();
    home.until("swept", || {
        fs::read_dir(&volumes).unwrap().count() == 1 && home.loop_devices() == 0
    });
}

#[test]
fn retained_volume_stays_with_its_data() {
    let home = Home::new("retain");
    home.claim("data", "1Mi", "Filesystem");
    home.on_claim("p", "data", mounted(&json!({})), "echo kept > /data/file");
    home.output("p");
    let claim = home.wait(home.claims().get("data")).unwrap();
    let volume = claim.spec.unwrap().volume_name.unwrap();
    let keep = json!({"spec": {"persistentVolumeReclaimPolicy": "Retain"}});
    let patch = Patch::Merge(&keep);
    home.wait(
        home.volumes()
            .patch(&volume, &PatchParams::default(), &patch),
    )
    .unwrap();
    home.delete_and_wait("p");
    home.delete_claim("data");
    home.wait_no_claim("data");
    let released = |volume: Option<&PersistentVolume>| {
        let status = volume.and_then(|volume| volume.status.as_ref());
        status.is_some_and(|status| status.phase.as_deref() == Some("Released"))
    };
    let found = home
        .wait(await_condition(home.volumes(), &volume, released))
        .unwrap();
    let path = path_of(&found.unwrap());
    home.wait(home.volumes().delete(&volume, &DeleteParams::default()))
        .unwrap();
    let gone = |volume: Option<&PersistentVolume>| volume.is_none();
    home.wait(await_condition(home.volumes(), &volume, gone))
        .unwrap();
    assert_eq!(fs::read_to_string(path.join("file")).unwrap(), "kept\n");
}

#[test]
fn pod_says_what_is_wrong_with_its_claim_and_goes_on_once_it_is_right() {
    let home = Home::new("claim-trouble");
    home.on_claim("early", "late", mounted(&json!({})), "echo here");
    let scheduled = |status: &Value| {
        let all = status["conditions"].as_array().cloned().unwrap_or_default();
        all.into_iter().find(|one| one["type"] == "PodScheduled")
    };
    let says = |part: &'static str| {
        move |status: &Value| {
            scheduled(status).is_some_and(|one| {
                one["reason"] == "Unschedulable"
                    && one["message"].as_str().is_some_and(|m| m.contains(part))
            })
        }
    };
    let why = "persistentvolumeclaim \"late\" not found";
    home.wait_until("early", why, says(why));
    // More than any disk has.
    home.claim("late", "4Ei", "Filesystem");
    home.wait_until("early", "not enough space", says("not enough space"));
    let late = home.wait(home.claims().get("late")).unwrap();
    home.wait_for_reasons(&late.metadata.uid.unwrap(), &["ProvisioningFailed"]);
    home.delete_claim("late");
    home.wait_no_claim("late");
    home.claim("late", "1Mi", "Filesystem");
    assert_eq!(home.output("early"), "here\n");
    // By the wrong way into the container.
    let device = (
        "volumeDevices",
        json!([{"name": "v", "devicePath": "/dev/disk"}]),
    );
    home.on_claim("wrong", "late", device, "true");
    home.wait_until("wrong", "reason", |status| {
        let waiting = &status["containerStatuses"][0]["state"]["waiting"];
        waiting["reason"] == "CreateContainerConfigError"
            && waiting["message"]
                .as_str()
                .is_some_and(|m| m.contains("Filesystem"))
    });
    home.delete_and_wait("wrong");
}

#[test]
fn administrators_volume_is_bound_and_never_deleted() {
    let home = Home::new("static");
    let place = home.dir.path().join("place");
    fs::create_dir(&place).unwrap();
    fs::write(place.join("file"), "theirs").unwrap();
    let volume = serde_json::from_value(json!({
        "metadata": {"name": "theirs"},
        "spec": {
            "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Delete", "hostPath": {"path": place},
        },
    }))
    .unwrap();
    home.wait(home.volumes().create(&PostParams::default(), &volume))
        .unwrap();
    let claim = serde_json::from_value(json!({
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    }))
    .unwrap();
    home.wait(home.claims().create(&PostParams::default(), &claim))
        .unwrap();
    let bound = home.wait_claim("c", |claim| claim["status"]["phase"] == "Bound");
    let status = serde_json::to_value(bound.status).unwrap();
    assert_eq!(status["capacity"]["storage"], "1Gi");
    home.on_claim("p", "c", mounted(&json!({})), "cat /data/file");
    assert_eq!(home.output("p"), "theirs\n");
    home.delete_and_wait("p");
    home.delete_claim("c");
    let failed = |volume: Option<&PersistentVolume>| {
        let status = volume.and_then(|volume| volume.status.as_ref());
        status.is_some_and(|status| status.phase.as_deref() == Some("Failed"))
    };
    home.wait(await_condition(home.volumes(), "theirs", failed))
        .unwrap();
    assert!(Path::new(&place).join("file").exists());
}

#[test]
fn class_is_made_and_ephemeral_volumes_go_with_their_pod() {
    let home = Home::new("ephemeral");
    let classes = Api::<StorageClass>::all(home.client.clone());
    let class = home.wait(await_condition(
        classes,
        "local",
        |class: Option<&StorageClass>| class.is_some(),
    ));
    let class = class.unwrap().unwrap();
    assert_eq!(
        class.volume_binding_mode.as_deref(),
        Some("WaitForFirstConsumer")
    );
    home.create(
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
    home.wait_phase("p", "Running");
    let claim = home.wait_claim("p-v", |claim| claim["status"]["phase"] == "Bound");
    assert_eq!(claim.metadata.owner_references.unwrap()[0].name, "p");
    home.on_claim("other", "p-v", mounted(&json!({})), "true");
    let pod = home.wait_until("other", "refused", |status| {
        status["conditions"][0]["message"]
            .as_str()
            .is_some_and(|message| message.contains("ReadWriteOncePod"))
    });
    home.delete_and_wait("other");
    home.assert_nothing_left(&pod);
    home.delete_and_wait("p");
    home.wait_no_claim("p-v");
}
