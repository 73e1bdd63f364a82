//! The node dies right after each of its effects, and a supervisor of pods after each of its own:
//! others go on, pods and claims become as they were asked for, and nothing is left in the end.

use std::{
    collections::BTreeSet,
    panic::resume_unwind,
    sync::{Arc, mpsc},
};

use k8s_openapi::api::{
    core::v1::{PersistentVolume, Pod},
    storage::v1::StorageClass,
};
use kube::api::{Patch, PatchParams};
use parking_lot::Mutex;

use super::*;

/// Longer than a thread takes to come from one place to the next.
const GLANCE: Duration = Duration::from_millis(5);
const AT_ONCE: usize = 3;
/// What is told of volumes that others made or take away.
const OF_OTHERS: [&str; 4] = [
    "embedded-node/storage/erase",
    "embedded-node/storage/protect-volume",
    "embedded-node/storage/take-volume",
    "embedded-node/storage/unprotect-volume",
];

fn names(of: &str) -> Vec<&'static str> {
    let all = failpoints::NAMES.lines();
    all.filter(|name| name.starts_with(of)).collect()
}

/// Several at once: most of the time they wait for programs and the kernel.
fn each(names: Vec<&'static str>, tell: impl Fn(&str) + Sync) {
    assert!(!names.is_empty());
    let names = Mutex::new(names.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                loop {
                    let next = names.lock().next();
                    let Some(name) = next else { return };
                    let _told = Told(name);
                    tell(name);
                }
            });
        }
    });
}

/// Says on the way out of a story that fails which one it was.
struct Told(&'static str);

impl Drop for Told {
    #[expect(clippy::print_stderr, reason = "read where a story has failed")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the story of a death at {} has failed", self.0);
        }
    }
}

/// Knows who has an address.
#[derive(Debug, Default)]
struct Leases(Mutex<BTreeSet<String>>);

impl Network for Leases {
    fn add<'a>(
        &'a self,
        uid: &'a str,
        namespace: &'a Path,
    ) -> BoxFuture<'a, Result<Addresses, Failure>> {
        self.0.lock().insert(uid.to_owned());
        NoNetwork.add(uid, namespace)
    }

    fn delete<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        self.0.lock().remove(uid);
        NoNetwork.delete(uid)
    }
}

/// Tells a story with a death of the node at that place, and looks for what is left.
fn tell(name: &str, story: fn(&Home)) {
    let leases = Arc::new(Leases::default());
    let mut home = Home::with_network(
        &name.replace('/', "-"),
        Arc::clone(&leases) as Arc<dyn Network>,
    );
    let (died, death) = mpsc::channel();
    let (let_go, held) = mpsc::channel::<()>();
    home.lives.trap.set(name, move || {
        died.send(()).unwrap();
        // What is let go is the end of this life: nothing follows.
        let _gone = held.recv();
        resume_unwind(Box::new("death"));
    });
    let (node, offer) = (home.node.take().unwrap(), offer_null(&home));
    let at_home = &home;
    let (done, is_done) = mpsc::channel::<()>();
    let node = std::thread::scope(|scope| {
        let nurse = scope.spawn(move || {
            // Only a story that has ended comes without a death.
            if death.recv_timeout(PATIENCE).is_err() {
                return node;
            }
            node.shutdown_background();
            drop((let_go, offer));
            at_home.until("dead", || {
                at_home.lives.threads.load(Ordering::Relaxed) == 0
            });
            let (node, _) = at_home.run_node();
            let _offer = offer_null(at_home);
            while is_done.recv_timeout(GLANCE) == Err(mpsc::RecvTimeoutError::Timeout) {}
            node
        });
        story(at_home);
        // An effect is seen a moment before its place is come to.
        at_home.until(&format!("come to {name}"), || !at_home.lives.trap.is_set());
        drop(done);
        nurse.join().unwrap()
    });
    home.node = Some(node);
    assert!(leases.0.lock().is_empty(), "{name}");
}

fn pods_and_claims_come_and_go(home: &Home) {
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(home.client.clone());
    home.wait(maps.create(&PostParams::default(), &map))
        .unwrap();
    home.claim("data", "1Mi", "Filesystem");
    home.claim("disk", "1Mi", "Block");
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let script = "trap 'exit 0' TERM; ls /dev/disk && echo kept > /data/file; sleep 1000 & wait";
    home.create(
        "stays",
        json!({
            "terminationGracePeriodSeconds": 20,
            "securityContext": {"fsGroup": 107},
            "volumes": [
                {"name": "map", "configMap": {"name": "m"}},
                {"name": "empty", "emptyDir": {}},
                {"name": "memory", "emptyDir": {"medium": "Memory"}},
                {"name": "own", "ephemeral": {"volumeClaimTemplate": {"spec": {
                    "accessModes": ["ReadWriteOnce"],
                    "resources": {"requests": {"storage": "1Mi"}},
                }}}},
                claim("data"), claim("disk"),
            ],
            "containers": [{
                "name": "main", "image": "busybox:1",
                "command": ["sh", "-c", script],
                "volumeMounts": [mount("map"), mount("empty"), mount("memory"), mount("own"),
                    mount("data")],
                "volumeDevices": [{"name": "disk", "devicePath": "/dev/disk"}],
                "resources": {"limits": {"example.com/null": "1"}},
            }],
        }),
    );
    home.script("ends", "exit 0", "Never");
    let ends = home.wait_until("ends", "end", |status| {
        // With a supervisor dies what it alone has heard of an end.
        let is_lost = status["phase"] == "Failed" && home.supervisor != supervisor();
        status["phase"] == "Succeeded" || is_lost
    });
    let stays = home.wait_phase("stays", "Running");
    let volume = home.wait(home.claims().get("data")).unwrap();
    let volume = volume.spec.unwrap().volume_name.unwrap();
    let file = home.root().join("volumes").join(volume).join("data/file");
    home.until("written", || {
        fs::read_to_string(&file).is_ok_and(|text| text == "kept\n")
    });
    for pod in ["stays", "ends"] {
        home.delete_and_wait(pod);
    }
    for pod in [&stays, &ends] {
        home.assert_nothing_left(pod);
    }
    for claim in ["data", "disk"] {
        home.delete_claim(claim);
        home.wait_no_claim(claim);
    }
    home.wait_no_claim("stays-own");
    no_volumes_are_left(home);
}

fn no_volumes_are_left(home: &Home) {
    home.until("without volumes", || {
        let volumes = home.wait(home.volumes().list(&ListParams::default()));
        volumes.unwrap().items.is_empty()
    });
    home.until("without data", || {
        let left = fs::read_dir(home.root().join("volumes"));
        left.map_or(0, Iterator::count) == 0
    });
    assert_eq!(home.loop_devices(), 0);
}

/// A volume of an administrator, who keeps it.
fn volume_of_others_is_used(home: &Home) {
    let place = home.dir.path().join("place");
    fs::create_dir(&place).unwrap();
    let volume = json!({
        "metadata": {"name": "theirs"},
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": place},
        },
    });
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    home.wait(home.volumes().create(&PostParams::default(), &volume))
        .unwrap();
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    });
    let claim = serde_json::from_value(claim).unwrap();
    home.wait(home.claims().create(&PostParams::default(), &claim))
        .unwrap();
    home.wait_claim("c", |claim| claim["status"]["phase"] == "Bound");
    home.delete_claim("c");
    home.wait_no_claim("c");
    home.wait(home.volumes().delete("theirs", &DeleteParams::default()))
        .unwrap();
    no_volumes_are_left(home);
    assert!(place.exists());
}

/// A volume of ours that somebody deletes before its claim.
fn volume_is_deleted_before_its_claim(home: &Home) {
    home.claim("c", "1Mi", "Filesystem");
    let pod: Pod = home.create(
        "p",
        json!({
            "restartPolicy": "Never",
            "volumes": [{"name": "v", "persistentVolumeClaim": {"claimName": "c"}}],
            "containers": [{
                "name": "main", "image": "busybox:1", "command": ["sh", "-c", "exit 0"],
                "volumeMounts": [{"name": "v", "mountPath": "/v"}],
            }],
        }),
    );
    home.wait_phase("p", "Succeeded");
    let bound = home.wait_claim("c", |claim| claim["status"]["phase"] == "Bound");
    let volume = bound.spec.unwrap().volume_name.unwrap();
    home.wait(home.volumes().delete(&volume, &DeleteParams::default()))
        .unwrap();
    home.delete_and_wait("p");
    home.assert_nothing_left(&pod);
    home.delete_claim("c");
    home.wait_no_claim("c");
    no_volumes_are_left(home);
}

/// A claim from a time without a class for such, which the server could give to no class.
fn claim_is_older_than_its_class(home: &Home) {
    let classes = Api::<StorageClass>::all(home.client.clone());
    home.wait(await_condition(
        classes.clone(),
        "local",
        |class: Option<&StorageClass>| class.is_some(),
    ))
    .unwrap();
    let is_default = |value: &str| {
        let name = "storageclass.kubernetes.io/is-default-class";
        let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
        home.wait(classes.patch("local", &PatchParams::default(), &patch))
            .unwrap();
    };
    is_default("false");
    home.claim("c", "1Mi", "Filesystem");
    is_default("true");
    home.wait_claim("c", |claim| claim["spec"]["storageClassName"] == "local");
    home.delete_claim("c");
    home.wait_no_claim("c");
    no_volumes_are_left(home);
}

#[test]
fn pods_outlive_a_death_of_their_node_after_each_effect() {
    each(names("embedded-node/pod/"), |name| {
        tell(name, pods_and_claims_come_and_go);
    });
}

#[test]
fn volumes_outlive_a_death_of_their_node_after_each_effect() {
    let mut names = names("embedded-node/volumes/");
    names.extend(self::names("embedded-node/storage/"));
    each(names, |name| match name {
        "embedded-node/storage/erase" => tell(name, volume_is_deleted_before_its_claim),
        "embedded-node/storage/set-class" => tell(name, claim_is_older_than_its_class),
        _ if OF_OTHERS.contains(&name) => tell(name, volume_of_others_is_used),
        _ => tell(name, pods_and_claims_come_and_go),
    });
}

#[test]
fn pods_outlive_a_death_of_their_supervisor_after_each_effect() {
    each(names("pod-supervisor/"), |name| {
        let mut home = Home::new(&name.replace('/', "-"));
        let file = home.dir.path().join("places");
        fs::write(&file, format!("{name}\n")).unwrap();
        home.kill_node();
        home.supervisor = home.dir.path().join("supervisor");
        let script = format!(
            "#!/bin/sh\nexport {}='{}'\nexec '{}' \"$@\"\n",
            failpoints::VARIABLE,
            file.display(),
            supervisor().display(),
        );
        fs::write(&home.supervisor, script).unwrap();
        fs::set_permissions(&home.supervisor, fs::Permissions::from_mode(0o755)).unwrap();
        home.start_node();
        let _offer = offer_null(&home);
        pods_and_claims_come_and_go(&home);
        home.until(&format!("come to {name}"), || {
            fs::read_to_string(&file).is_ok_and(|left| left.is_empty())
        });
    });
}

#[test]
fn each_name_of_node_and_supervisors_has_its_story() {
    let told =
        ["pod/", "volumes/", "storage/"].map(|of| names(&format!("embedded-node/{of}")).len());
    assert_eq!(told.iter().sum::<usize>(), names("embedded-node/").len());
}
