//! A guest moves between the two nodes while it runs.

use std::path::PathBuf;
use std::time::Duration;

use e2e::{
    Cluster, DEADLINE, FeatureGates, eventually, kill_if_alive, processes_of_pod, tiny_vm, wait_for,
};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval};

use crate::TestNamespace;

const GATE: &str = "LiveMigrationPreview";
const QEMU: &str = "qemu-system-x86";
/// Keeps the copy of a small guest busy for some seconds.
const SLOW: &str = "4Mi";
/// Changes some MiB of the guest's memory over and over, beside the shell.
const WRITER: &str = "(while :; do cat /bin/busybox /bin/busybox >/dirty; done) &\n";

fn node(vmi: &Value) -> String {
    let name = vmi["status"]["nodeName"].as_str();
    name.expect("it is on a node").to_owned()
}

fn name(object: &Value) -> &str {
    object["metadata"]["name"].as_str().expect("it has a name")
}

fn ticks() -> Interval {
    tokio::time::interval(Duration::from_millis(100))
}

/// All that a guest has written on its console, in its pods one after the other. The log of a pod goes with
/// it, so it has to be read all the time.
struct Serial {
    tail: String,
    logs: Vec<(PathBuf, Vec<u8>)>,
}

impl Serial {
    fn of(vmi: &Value) -> Self {
        let uid = vmi["metadata"]["uid"].as_str().expect("a VMI has a UID");
        Self {
            tail: format!("volumes/kubernetes.io~empty-dir/private/{uid}/virt-serial0-log"),
            logs: Vec::new(),
        }
    }

    fn read(&mut self, test: &TestNamespace) {
        for pod in test.pod_files() {
            let Ok(bytes) = std::fs::read(pod.join(&self.tail)) else {
                continue;
            };
            match self.logs.iter_mut().find(|(known, _)| *known == pod) {
                Some((_, before)) if before.len() >= bytes.len() => {}
                Some((_, before)) => *before = bytes,
                // The guest writes in one pod at a time: a new log follows the others.
                None if bytes.is_empty() => {}
                None => self.logs.push((pod, bytes)),
            }
        }
    }

    /// The numbers that the guest has counted so far, in their order.
    fn numbers(&self) -> Vec<u32> {
        let all: Vec<u8> = self.logs.iter().flat_map(|(_, log)| log).copied().collect();
        let text = String::from_utf8_lossy(&all);
        let number = |line: &str| line.trim().strip_prefix("count ")?.parse().ok();
        // The last line may be incomplete.
        let whole = text.rfind('\n').map_or("", |end| &text[..end]);
        whole.lines().filter_map(number).collect()
    }

    /// Waits until the guest has counted further. No number may be missing, and none may come twice.
    async fn goes_on(&mut self, test: &TestNamespace) {
        self.read(test);
        let from = self.numbers().last().copied().unwrap_or(0);
        let mut ticks = ticks();
        let until = Instant::now() + DEADLINE;
        while self.numbers().last().is_none_or(|last| *last < from + 5) {
            assert!(Instant::now() < until, "it does not count on from {from}");
            ticks.tick().await;
            self.read(test);
        }
        for pair in self.numbers().windows(2) {
            assert_eq!(pair[0] + 1, pair[1], "a count is lost, or came twice");
        }
    }
}

/// Starts a guest that counts on its console, and writes to its memory beside that.
async fn start(test: &TestNamespace, name: &str, writer: &str) -> (Value, Serial) {
    test.apply(&tiny_vm(name)).await;
    let mut console = test.shell(name).await;
    console.send(writer).await;
    console.send("count\n").await;
    console.expect("count 3").await;
    let vmi = test.wait_vmi_phase(name, "Running").await;
    let mut serial = Serial::of(&vmi);
    serial.goes_on(test).await;
    wait_migratable(test, name).await;
    (vmi, serial)
}

async fn wait_migratable(test: &TestNamespace, name: &str) {
    let is_migratable = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["type"] == "LiveMigratable" && one["status"] == "True")
    };
    wait_for(&test.vmis(), name, "migratable", is_migratable).await;
}

/// The newest migration.
async fn newest(test: &TestNamespace) -> Option<Value> {
    let migrations = test.objects("kubevirt.io", "v1", "VirtualMachineInstanceMigration");
    let all = migrations.list(&ListParams::default()).await;
    let mut all = all.expect("list migrations").items;
    all.sort_by_key(|one| one.metadata.creation_timestamp.clone().map(|at| at.0));
    let last = all.pop()?;
    Some(serde_json::to_value(last).expect("is JSON"))
}

fn phase(migration: &Value) -> &str {
    migration["status"]["phase"].as_str().unwrap_or_default()
}

fn is_over(migration: &Value) -> bool {
    matches!(phase(migration), "Succeeded" | "Failed")
}

/// Waits for a state of the newest migration, and reads the guest's console meanwhile.
async fn wait_migration(
    test: &TestNamespace,
    serial: &mut Serial,
    condition: impl Fn(&Value) -> bool,
) -> Value {
    let until = Instant::now() + DEADLINE;
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        serial.read(test);
        // The components may be about to restart.
        if let Some(migration) = newest(test).await {
            if condition(&migration) {
                return migration;
            }
            assert!(Instant::now() < until, "not so in time: {migration:#}");
        }
    }
}

/// Asks for a migration and waits for its end.
async fn migrate(test: &TestNamespace, vm: &str, serial: &mut Serial) -> Value {
    test.virtctl(&["migrate", vm]).await.success();
    wait_migration(test, serial, is_over).await
}

/// A policy that slows the migrations of one VM down; dropping it deletes it.
struct SlowPolicy {
    name: String,
    kubeconfig: PathBuf,
}

impl SlowPolicy {
    async fn of(test: &TestNamespace, vm: &str) -> Self {
        use e2e::Environment as _;
        let policy = Self {
            name: format!("{}-{vm}", test.namespace),
            kubeconfig: test.environment.kubeconfig(),
        };
        test.apply_object(&json!({
            "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy",
            "metadata": {"name": policy.name},
            "spec": {
                "bandwidthPerMigration": SLOW,
                "selectors": {"virtualMachineInstanceSelector": {"kubevirt.io/vm": vm}},
            },
        }))
        .await;
        policy
    }
}

impl Drop for SlowPolicy {
    fn drop(&mut self) {
        // A policy that stays matches no VM of a later test.
        let deleted = std::process::Command::new("kubectl")
            .env("KUBECONFIG", &self.kubeconfig)
            .args([
                "--request-timeout=10s",
                "delete",
                "migrationpolicy",
                &self.name,
            ])
            .output();
        drop(deleted);
    }
}

/// Waits until one pod of the namespace runs a QEMU, that of the VMI's node, and no other pod is left.
async fn runs_once(test: &TestNamespace, vm: &str) -> Value {
    let until = Instant::now() + DEADLINE;
    let mut ticks = ticks();
    loop {
        ticks.tick().await;
        let pods = test.pod_list().await;
        let vmi = test.wait_vmi_phase(vm, "Running").await;
        let runs = |uid: &str| processes_of_pod(uid).iter().any(|(_, name)| name == QEMU);
        let running: Vec<&str> = pods
            .iter()
            .map(|(_, uid)| uid.as_str())
            .filter(|uid| runs(uid))
            .collect();
        if let ([uid], 1) = (&running[..], pods.len())
            && vmi["status"]["activePods"] == json!({(*uid): node(&vmi)})
        {
            return vmi;
        }
        assert!(
            Instant::now() < until,
            "pods {pods:?}, with a guest {running:?}: {:#}",
            vmi["status"]
        );
    }
}

#[tokio::test]
async fn counting_guest_moves_to_the_other_node_and_back_ten_times() {
    let test = TestNamespace::create_exclusive().await;
    let _gates = FeatureGates::switch(test.environment.as_ref(), &[GATE], &[]).await;
    let (first, mut serial) = start(&test, "mobile", WRITER).await;
    let mut here = node(&first);
    for round in 0..10 {
        wait_migratable(&test, "mobile").await;
        let began = Instant::now();
        let migration = migrate(&test, "mobile", &mut serial).await;
        assert_eq!(phase(&migration), "Succeeded", "{round}: {migration:#}");
        println!("move {round} took {:.1?}", began.elapsed());
        let now = test.wait_vmi_phase("mobile", "Running").await;
        assert_eq!(now["metadata"]["uid"], first["metadata"]["uid"]);
        assert_ne!(node(&now), here, "{round}");
        here = node(&now);
        let state = &migration["status"]["migrationState"];
        for field in ["startTimestamp", "endTimestamp", "targetNode", "sourceNode"] {
            assert!(state[field].is_string(), "{round}: {field} in {state:#}");
        }
        serial.goes_on(&test).await;
        runs_once(&test, "mobile").await;
    }
}

#[tokio::test]
async fn cancelled_migration_leaves_the_guest_where_it_is() {
    let test = TestNamespace::create_exclusive().await;
    let _gates = FeatureGates::switch(test.environment.as_ref(), &[GATE], &[]).await;
    let (first, mut serial) = start(&test, "stays", WRITER).await;
    let _policy = SlowPolicy::of(&test, "stays").await;
    // At once, while the new pod is prepared, and during the copy.
    for until in ["", "Scheduling", "PreparingTarget", "Running"] {
        wait_migratable(&test, "stays").await;
        test.virtctl(&["migrate", "stays"]).await.success();
        // A short phase may be over before it is observed.
        wait_migration(&test, &mut serial, |migration| {
            let order = [
                "",
                "Pending",
                "Scheduling",
                "Scheduled",
                "PreparingTarget",
                "TargetReady",
            ];
            let at = |phase: &str| {
                order
                    .iter()
                    .position(|one| *one == phase)
                    .unwrap_or(order.len())
            };
            at(phase(migration)) >= at(until)
        })
        .await;
        test.virtctl(&["migrate-cancel", "stays"]).await.success();
        let deadline = Instant::now() + DEADLINE;
        let mut ticks = ticks();
        while let Some(left) = newest(&test).await {
            assert!(Instant::now() < deadline, "{until:?}: not gone: {left:#}");
            ticks.tick().await;
            serial.read(&test);
        }
        let now = runs_once(&test, "stays").await;
        assert_eq!(node(&now), node(&first), "{until:?}");
        serial.goes_on(&test).await;
    }
}

/// What is killed during a migration.
#[derive(Debug, Clone, Copy)]
enum Victim {
    Component(&'static str),
    /// The virt-handler of the node that the guest leaves, or enters.
    OldHandler,
    NewHandler,
    InOldPod(&'static str),
    InNewPod(&'static str),
}

const VICTIMS: [Victim; 9] = [
    Victim::Component("api"),
    Victim::Component("controller"),
    Victim::OldHandler,
    Victim::NewHandler,
    Victim::InOldPod("virt-launcher"),
    Victim::InOldPod("libvirtd"),
    Victim::InNewPod("virt-launcher"),
    Victim::InNewPod("libvirtd"),
    Victim::InNewPod(QEMU),
];

impl Victim {
    fn kill(self, cluster: &Cluster, vmi: &Value) -> usize {
        let state = &vmi["status"]["migrationState"];
        let handler_of = |node: &Value| -> Vec<i32> {
            let node = node.as_str().expect("the state names both nodes");
            let all = cluster.component("handler").into_iter();
            all.filter(|process| cluster.is_on(*process, node))
                .collect()
        };
        let in_pod_on = |node: &Value, name: &str| -> Vec<i32> {
            let pods = vmi["status"]["activePods"].as_object().expect("has pods");
            let here = pods.iter().filter(|(_, on)| *on == node);
            let all = here.flat_map(|(uid, _)| processes_of_pod(uid));
            all.filter(|(_, own)| own == name)
                .map(|(process, _)| process)
                .collect()
        };
        let victims = match self {
            Self::Component(component) => cluster.component(component),
            Self::OldHandler => handler_of(&state["sourceNode"]),
            Self::NewHandler => handler_of(&state["targetNode"]),
            Self::InOldPod(name) => in_pod_on(&state["sourceNode"], name),
            Self::InNewPod(name) => in_pod_on(&state["targetNode"], name),
        };
        for process in &victims {
            kill_if_alive(*process);
        }
        victims.len()
    }
}

#[tokio::test]
async fn guest_runs_once_whatever_is_killed_during_its_move() {
    let test = TestNamespace::create_exclusive().await;
    let _gates = FeatureGates::switch(test.environment.as_ref(), &[GATE], &[]).await;
    let (first, mut serial) = start(&test, "robust", WRITER).await;
    let _policy = SlowPolicy::of(&test, "robust").await;
    for victim in VICTIMS {
        wait_migratable(&test, "robust").await;
        // virt-api may still be restarting.
        let until = Instant::now() + DEADLINE;
        let mut attempts = ticks();
        while !test.virtctl(&["migrate", "robust"]).await.is_success {
            assert!(Instant::now() < until, "{victim:?}: no migration begins");
            attempts.tick().await;
            serial.read(&test);
        }
        let begun = |migration: &Value| phase(migration) == "Running" || is_over(migration);
        let migration = wait_migration(&test, &mut serial, begun).await;
        assert_eq!(phase(&migration), "Running", "{victim:?}: {migration:#}");
        let vmi = test.wait_vmi_phase("robust", "Running").await;
        let killed = victim.kill(&test.environment, &vmi);
        assert!(
            killed > 0,
            "{victim:?}: nothing to kill: {:#}",
            vmi["status"]
        );
        let migration = wait_migration(&test, &mut serial, is_over).await;
        println!("{victim:?} killed: {}", phase(&migration));
        let now = runs_once(&test, "robust").await;
        assert_eq!(
            now["metadata"]["uid"], first["metadata"]["uid"],
            "{victim:?}"
        );
        let has_moved = phase(&migration) == "Succeeded";
        assert_eq!(node(&now) != node(&vmi), has_moved, "{victim:?}");
        serial.goes_on(&test).await;
        eventually("components back", || {
            let count = |name| test.environment.component(name).len();
            let found = (count("api"), count("controller"), count("handler"));
            let nodes = test.environment.nodes().len();
            if found.0 > 0 && found.1 > 0 && found.2 == nodes {
                Ok(())
            } else {
                Err(found)
            }
        })
        .await;
    }
    // Nothing is left that would keep it from moving.
    wait_migratable(&test, "robust").await;
    let last = migrate(&test, "robust", &mut serial).await;
    assert_eq!(phase(&last), "Succeeded", "{last:#}");
    serial.goes_on(&test).await;
}
