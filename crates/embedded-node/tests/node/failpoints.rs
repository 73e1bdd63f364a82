//! Kills the node after each of its effects, and a pod supervisor after each of its own. A new
//! process continues, pods and claims reach the requested state, and nothing is left behind.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::PermissionsExt as _,
    panic::resume_unwind,
    path::Path,
    sync::{Arc, atomic::Ordering, mpsc},
    time::Duration,
};

use embedded_node::{Addresses, Failure, Network, SecondaryInterface};
use futures::future::BoxFuture;
use k8s_openapi::api::{
    core::v1::{ConfigMap, PersistentVolume, Pod},
    storage::v1::StorageClass,
};
use kube::{
    Api,
    api::{DeleteParams, ListParams, Patch, PatchParams, PostParams},
    runtime::wait::await_condition,
};
use parking_lot::Mutex;
use pod_network::Attachment;
use serde_json::json;

use super::{
    Environment, NoNetwork, TIMEOUT,
    networks::{change_networks_of_pod, run_pod_on_network},
    register_null_device, supervisor,
};

/// How often to check that the scenario has ended.
const POLL_INTERVAL: Duration = Duration::from_millis(5);
const CONCURRENCY: usize = 3;
/// Steps that need a volume of an administrator.
const FOREIGN_VOLUME_STEPS: [&str; 4] = [
    "embedded-node/storage/erase",
    "embedded-node/storage/protect-volume",
    "embedded-node/storage/take-volume",
    "embedded-node/storage/unprotect-volume",
];

pub(super) fn names(prefix: &str) -> Vec<&'static str> {
    let all = ::failpoints::NAMES.lines();
    all.filter(|name| name.starts_with(prefix)).collect()
}

/// Runs a scenario per failpoint, several in parallel: they mostly wait for processes.
pub(super) fn each(names: Vec<&'static str>, run: impl Fn(&str) + Sync) {
    assert!(!names.is_empty());
    let names = Mutex::new(names.into_iter());
    std::thread::scope(|scope| {
        for _ in 0..CONCURRENCY {
            scope.spawn(|| {
                loop {
                    let next = names.lock().next();
                    let Some(name) = next else { return };
                    let _report = ReportOnPanic(name);
                    run(name);
                }
            });
        }
    });
}

/// Prints the failpoint of a failing scenario.
struct ReportOnPanic(&'static str);

impl Drop for ReportOnPanic {
    #[expect(clippy::print_stderr, reason = "shown for a failed test")]
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the scenario with a kill at {} has failed", self.0);
        }
    }
}

/// Records which pods have an address.
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

    fn attach<'a>(
        &'a self,
        namespace: &'a Path,
        attachment: Attachment,
    ) -> BoxFuture<'a, Result<SecondaryInterface, Failure>> {
        NoNetwork.attach(namespace, attachment)
    }

    fn delete<'a>(&'a self, uid: &'a str) -> BoxFuture<'a, Result<(), Failure>> {
        self.0.lock().remove(uid);
        NoNetwork.delete(uid)
    }
}

/// Runs a scenario in which the node is killed at that failpoint, and checks for leftovers.
pub(super) fn run_with_kill(name: &str, scenario: fn(&Environment)) {
    let leases = Arc::new(Leases::default());
    let mut env = Environment::with_network(
        &name.replace('/', "-"),
        Arc::clone(&leases) as Arc<dyn Network>,
    );
    let (reached, on_reached) = mpsc::channel();
    let (release, on_release) = mpsc::channel::<()>();
    env.runs.trap.set(name, move || {
        reached.send(()).unwrap();
        // Block until the runtime is shut down, so that nothing runs after the failpoint.
        let _released = on_release.recv();
        resume_unwind(Box::new("killed"));
    });
    let (node, device) = (env.node.take().unwrap(), register_null_device(&env));
    let environment = &env;
    let (done, is_done) = mpsc::channel::<()>();
    let node = std::thread::scope(|scope| {
        let restarter = scope.spawn(move || {
            // Without a kill, the scenario has ended or failed.
            if on_reached.recv_timeout(TIMEOUT).is_err() {
                return node;
            }
            node.shutdown_background();
            drop((release, device));
            environment.until("stopped", || {
                environment.runs.threads.load(Ordering::Relaxed) == 0
            });
            let (node, _) = environment.run_node();
            let _device = register_null_device(environment);
            while is_done.recv_timeout(POLL_INTERVAL) == Err(mpsc::RecvTimeoutError::Timeout) {}
            node
        });
        scenario(environment);
        // An effect is visible a moment before its failpoint is reached.
        environment.until(&format!("at {name}"), || !environment.runs.trap.is_set());
        drop(done);
        restarter.join().unwrap()
    });
    env.node = Some(node);
    assert!(leases.0.lock().is_empty(), "{name}");
}

fn run_pods_with_claims(env: &Environment) {
    let map = json!({"metadata": {"name": "m"}, "data": {"k": "v"}});
    let map: ConfigMap = serde_json::from_value(map).unwrap();
    let maps = Api::<ConfigMap>::default_namespaced(env.client.clone());
    env.wait(maps.create(&PostParams::default(), &map)).unwrap();
    env.claim("data", "1Mi", "Filesystem");
    env.claim("disk", "1Mi", "Block");
    let mount = |name: &str| json!({"name": name, "mountPath": format!("/{name}")});
    let claim = |name: &str| json!({"name": name, "persistentVolumeClaim": {"claimName": name}});
    let script = "trap 'exit 0' TERM; ls /dev/disk && echo kept > /data/file; sleep 1000 & wait";
    env.create(
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
                "resources": {"limits": {"example.com/null": "1", "cpu": "1", "memory": "64Mi"}},
            }],
        }),
    );
    env.script("ends", "exit 0", "Never");
    let ends = env.wait_until("ends", "end", |status| {
        // A killed supervisor may lose the exit code that only it knew.
        let is_lost = status["phase"] == "Failed" && env.supervisor != supervisor();
        status["phase"] == "Succeeded" || is_lost
    });
    let stays = env.wait_phase("stays", "Running");
    let volume = env.wait(env.claims().get("data")).unwrap();
    let volume = volume.spec.unwrap().volume_name.unwrap();
    let file = env.root().join("volumes").join(volume).join("data/file");
    env.until("written", || {
        fs::read_to_string(&file).is_ok_and(|text| text == "kept\n")
    });
    for pod in ["stays", "ends"] {
        env.delete_and_wait(pod);
    }
    for pod in [&stays, &ends] {
        env.assert_no_leftovers(pod);
    }
    for claim in ["data", "disk"] {
        env.delete_claim(claim);
        env.wait_no_claim(claim);
    }
    env.wait_no_claim("stays-own");
    assert_no_volumes(env);
}

pub(super) fn assert_no_volumes(env: &Environment) {
    env.until("without volumes", || {
        let volumes = env.wait(env.volumes().list(&ListParams::default()));
        volumes.unwrap().items.is_empty()
    });
    env.until("without data", || {
        let entries = fs::read_dir(env.root().join("volumes"));
        entries.map_or(0, Iterator::count) == 0
    });
    assert_eq!(env.loop_devices(), 0);
}

/// Binds a claim to an administrator's volume with policy `Retain`.
fn use_foreign_volume(env: &Environment) {
    let dir = env.dir.join("place");
    fs::create_dir(&dir).unwrap();
    let volume = json!({
        "metadata": {"name": "theirs"},
        "spec": {
            "capacity": {"storage": "1Mi"}, "accessModes": ["ReadWriteOnce"],
            "persistentVolumeReclaimPolicy": "Retain", "hostPath": {"path": dir},
        },
    });
    let volume: PersistentVolume = serde_json::from_value(volume).unwrap();
    env.wait(env.volumes().create(&PostParams::default(), &volume))
        .unwrap();
    let claim = json!({
        "metadata": {"name": "c"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": "",
            "resources": {"requests": {"storage": "1Mi"}},
        },
    });
    let claim = serde_json::from_value(claim).unwrap();
    env.wait(env.claims().create(&PostParams::default(), &claim))
        .unwrap();
    env.wait_claim("c", |claim| claim["status"]["phase"] == "Bound");
    env.delete_claim("c");
    env.wait_no_claim("c");
    env.wait(env.volumes().delete("theirs", &DeleteParams::default()))
        .unwrap();
    assert_no_volumes(env);
    assert!(dir.exists());
}

/// Deletes a provisioned volume before its claim.
fn delete_volume_before_claim(env: &Environment) {
    env.claim("c", "1Mi", "Filesystem");
    let pod: Pod = env.create(
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
    env.wait_phase("p", "Succeeded");
    let bound = env.wait_claim("c", |claim| claim["status"]["phase"] == "Bound");
    let volume = bound.spec.unwrap().volume_name.unwrap();
    env.wait(env.volumes().delete(&volume, &DeleteParams::default()))
        .unwrap();
    env.delete_and_wait("p");
    env.assert_no_leftovers(&pod);
    env.delete_claim("c");
    env.wait_no_claim("c");
    assert_no_volumes(env);
}

/// Creates a claim while there is no default class.
fn create_claim_before_default_class(env: &Environment) {
    let classes = Api::<StorageClass>::all(env.client.clone());
    env.wait(await_condition(
        classes.clone(),
        "local",
        |class: Option<&StorageClass>| class.is_some(),
    ))
    .unwrap();
    let is_default = |value: &str| {
        let name = "storageclass.kubernetes.io/is-default-class";
        let patch = Patch::Merge(json!({"metadata": {"annotations": {name: value}}}));
        env.wait(classes.patch("local", &PatchParams::default(), &patch))
            .unwrap();
    };
    is_default("false");
    env.claim("c", "1Mi", "Filesystem");
    is_default("true");
    env.wait_claim("c", |claim| claim["spec"]["storageClassName"] == "local");
    env.delete_claim("c");
    env.wait_no_claim("c");
    assert_no_volumes(env);
}

#[test]
fn pods_survive_node_kill_at_every_failpoint() {
    each(names("embedded-node/pod/"), |name| match name {
        "embedded-node/pod/attach-network" => run_with_kill(name, run_pod_on_network),
        "embedded-node/pod/attach-further-network"
        | "embedded-node/pod/detach-network"
        | "embedded-node/pod/record-networks" => run_with_kill(name, change_networks_of_pod),
        _ => run_with_kill(name, run_pods_with_claims),
    });
}

#[test]
fn volumes_survive_node_kill_at_every_failpoint() {
    let mut names = names("embedded-node/volumes/");
    names.extend(self::names("embedded-node/storage/"));
    each(names, |name| match name {
        "embedded-node/storage/erase" => run_with_kill(name, delete_volume_before_claim),
        "embedded-node/storage/set-class" => run_with_kill(name, create_claim_before_default_class),
        _ if FOREIGN_VOLUME_STEPS.contains(&name) => run_with_kill(name, use_foreign_volume),
        _ => run_with_kill(name, run_pods_with_claims),
    });
}

#[test]
fn pods_survive_supervisor_kill_at_every_failpoint() {
    each(names("pod-supervisor/"), |name| {
        let mut env = Environment::new(&name.replace('/', "-"));
        let file = env.dir.join("failpoints");
        fs::write(&file, format!("{name}\n")).unwrap();
        env.kill_node();
        env.supervisor = env.dir.join("supervisor");
        let script = format!(
            "#!/bin/sh\nexport {}='{}'\nexec '{}' \"$@\"\n",
            ::failpoints::VARIABLE,
            file.display(),
            supervisor().display(),
        );
        fs::write(&env.supervisor, script).unwrap();
        fs::set_permissions(&env.supervisor, fs::Permissions::from_mode(0o755)).unwrap();
        env.start_node();
        let _device = register_null_device(&env);
        run_pods_with_claims(&env);
        env.until(&format!("at {name}"), || {
            fs::read_to_string(&file).is_ok_and(|left| left.is_empty())
        });
    });
}

#[test]
fn every_failpoint_of_the_node_is_tested() {
    // Those of snapshots are in snapshots.rs.
    let tested = ["pod/", "volumes/", "storage/", "snapshot/"]
        .map(|group| names(&format!("embedded-node/{group}")).len());
    assert_eq!(tested.iter().sum::<usize>(), names("embedded-node/").len());
}
