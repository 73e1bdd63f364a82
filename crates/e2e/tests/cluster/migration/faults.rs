//! Kills during a migration: a guest runs once, in its old pod or in the new one, and its status says so.

use std::time::Duration;

use e2e::{Cluster, DEADLINE, GuestProcesses, NAMESPACE, kill_if_alive, processes_of_pod, tiny_vm};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams};
use serde_json::Value;
use tokio::time::Instant;

use super::{
    Policy, QEMU, SLOW, Serial, WRITER, assert_ran_once, is_over, migrate, node, phase, runs_once,
    start, start_vm, ticks, wait_migratable, wait_migration,
};
use crate::TestNamespace;

/// How long the status may be wrong after everything is back.
const STATUS_DEADLINE: Duration = Duration::from_secs(15);
/// How long the API server is away.
const AWAY: Duration = Duration::from_secs(20);

/// What is killed during a migration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Victim {
    ApiServer,
    Component(&'static str),
    /// The virt-handler of the node that the guest leaves, or enters.
    OldHandler,
    NewHandler,
    InOldPod(&'static str),
    InNewPod(&'static str),
    /// Every process of the pod.
    NewPod,
}

/// Those that keep the guest's memory, or decide where it runs.
const CORE: [Victim; 4] = [
    Victim::OldHandler,
    Victim::NewHandler,
    Victim::InOldPod("virt-launcher"),
    Victim::NewPod,
];

const OTHERS: [Victim; 7] = [
    Victim::ApiServer,
    Victim::Component("api"),
    Victim::Component("controller"),
    Victim::InOldPod("libvirtd"),
    Victim::InNewPod("virt-launcher"),
    Victim::InNewPod("libvirtd"),
    Victim::InNewPod(QEMU),
];

impl Victim {
    /// Returns how many processes were killed, and how many of them are those of components.
    fn kill(self, cluster: &Cluster, vmi: &Value) -> (usize, usize) {
        let state = &vmi["status"]["migrationState"];
        let handler_of = |node: &Value| -> Vec<i32> {
            let node = node.as_str().expect("the state names both nodes");
            let all = cluster.component("handler").into_iter();
            all.filter(|process| cluster.is_on(*process, node))
                .collect()
        };
        let in_pod_on = |node: &Value, name: Option<&str>| -> Vec<i32> {
            let pods = vmi["status"]["activePods"].as_object().expect("has pods");
            let here = pods.iter().filter(|(_, on)| *on == node);
            let all = here.flat_map(|(uid, _)| processes_of_pod(uid));
            all.filter(|(_, own)| name.is_none_or(|name| own == name))
                .map(|(process, _)| process)
                .collect()
        };
        let victims = match self {
            Self::ApiServer => {
                cluster.kill_api_server();
                return (1, 0);
            }
            Self::Component(component) => cluster.component(component),
            Self::OldHandler => handler_of(&state["sourceNode"]),
            Self::NewHandler => handler_of(&state["targetNode"]),
            Self::InOldPod(name) => in_pod_on(&state["sourceNode"], Some(name)),
            Self::InNewPod(name) => in_pod_on(&state["targetNode"], Some(name)),
            Self::NewPod => in_pod_on(&state["targetNode"], None),
        };
        for process in &victims {
            kill_if_alive(*process);
        }
        let killed = victims.len();
        let is_component = matches!(
            self,
            Self::Component(_) | Self::OldHandler | Self::NewHandler
        );
        (killed, if is_component { killed } else { 0 })
    }

    /// Waits until everything is back: `before` is how often the components had been restarted.
    async fn recovered(self, test: &TestNamespace, serial: &mut Serial, before: usize) {
        if self == Self::ApiServer {
            let until = Instant::now() + AWAY;
            let mut ticks = ticks();
            while Instant::now() < until {
                ticks.tick().await;
                serial.read(test);
            }
            test.environment.complete().await;
        }
        let until = Instant::now() + DEADLINE;
        let mut ticks = ticks();
        loop {
            ticks.tick().await;
            serial.read(test);
            let (restarts, unready) = components(test).await;
            if restarts >= before && unready.is_empty() {
                return;
            }
            assert!(Instant::now() < until, "{self:?}: not ready: {unready:?}");
        }
    }
}

/// How often the containers of the components were restarted, and which of them are not ready.
async fn components(test: &TestNamespace) -> (usize, Vec<String>) {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let pods: Api<DynamicObject> = Api::namespaced_with(test.client.clone(), NAMESPACE, &kind);
    let all = pods.list(&ListParams::default()).await;
    let (mut restarts, mut unready) = (0, Vec::new());
    for pod in all.expect("list pods of the installation") {
        for container in pod.data["status"]["containerStatuses"]
            .as_array()
            .into_iter()
            .flatten()
        {
            let count = container["restartCount"].as_u64().unwrap_or_default();
            restarts += usize::try_from(count).unwrap_or_default();
            if container["ready"] != true {
                unready.push(pod.metadata.name.clone().unwrap_or_default());
            }
        }
    }
    (restarts, unready)
}

/// Begins a migration and waits until a part of the guest has been copied.
async fn begin(test: &TestNamespace, vm: &str, serial: &mut Serial) -> Value {
    wait_migratable(test, vm).await;
    test.virtctl(&["migrate", vm]).await.success();
    let begun = |migration: &Value| has_progress(migration) || is_over(migration);
    let migration = wait_migration(test, serial, begun).await;
    assert_eq!(phase(&migration), "Running", "{migration:#}");
    test.wait_vmi_phase(vm, "Running").await
}

fn has_progress(migration: &Value) -> bool {
    let all = migration["status"]["conditions"].as_array();
    let mut all = all.into_iter().flatten();
    all.any(|one| one["type"] == "migrationProgress")
}

async fn kill_each(name: &str, writer: &str, victims: &[Victim]) {
    let test = TestNamespace::create_exclusive().await;
    let (first, mut serial) = start_vm(&test, name, &tiny_vm(name), writer).await;
    let policy = Policy::slow(&test, name, SLOW).await;
    let mut seen = GuestProcesses::of(&test.namespace);
    let kills = async {
        for victim in victims {
            let vmi = begin(&test, name, &mut serial).await;
            let (restarts, _) = components(&test).await;
            let began = Instant::now();
            let (killed, of_components) = victim.kill(&test.environment, &vmi);
            assert!(killed > 0, "{victim:?}: none in {:#}", vmi["status"]);
            let restarts = restarts + of_components;
            victim.recovered(&test, &mut serial, restarts).await;
            let back = Instant::now();
            let migration = wait_migration(&test, &mut serial, is_over).await;
            let now = runs_once(&test, name).await;
            let took = back.elapsed();
            println!(
                "{victim:?} killed: {}; back after {:.1?}, right {took:.1?} later",
                phase(&migration),
                back.duration_since(began),
            );
            assert_eq!(
                now["metadata"]["uid"], first["metadata"]["uid"],
                "{victim:?}"
            );
            let has_moved = phase(&migration) == "Succeeded";
            assert_eq!(node(&now) != node(&vmi), has_moved, "{victim:?}");
            // A copy that goes on takes its time.
            assert!(
                has_moved || took < STATUS_DEADLINE,
                "{victim:?}: right only after {took:?}"
            );
            serial.goes_on(&test).await;
        }
        // Nothing is left that would keep it from moving.
        drop(policy);
        wait_migratable(&test, name).await;
        let last = migrate(&test, name, &mut serial).await;
        assert_eq!(phase(&last), "Succeeded", "{last:#}");
        serial.goes_on(&test).await;
    };
    seen.during(kills).await;
    assert_ran_once(&seen);
}

#[tokio::test]
async fn guest_runs_once_whatever_is_killed_during_its_move() {
    kill_each("robust", WRITER, &CORE).await;
}

#[tokio::test]
#[ignore = "takes minutes: scripts/e2e.sh --include-ignored migration::faults"]
async fn guest_runs_once_whatever_else_is_killed_during_its_move() {
    // These do not end the copy, so it has to end by itself.
    kill_each("sturdy", "", &OTHERS).await;
}

#[tokio::test]
#[ignore = "takes minutes: scripts/e2e.sh --include-ignored migration::faults"]
async fn guest_whose_pod_dies_during_its_move_restarts_once() {
    let test = TestNamespace::create_exclusive().await;
    let (first, mut serial) = start(&test, "mortal").await;
    let _policy = Policy::slow(&test, "mortal", SLOW).await;
    let mut seen = GuestProcesses::of(&test.namespace);
    let dies = async {
        let vmi = begin(&test, "mortal", &mut serial).await;
        let pods = vmi["status"]["activePods"].as_object().expect("has pods");
        let old = pods
            .iter()
            .filter(|(_, on)| **on == vmi["status"]["nodeName"]);
        for (process, _) in old.flat_map(|(uid, _)| processes_of_pod(uid)) {
            kill_if_alive(process);
        }
        let began = Instant::now();
        let migration = wait_migration(&test, &mut serial, is_over).await;
        assert_eq!(phase(&migration), "Failed", "{migration:#}");
        println!("the migration has failed after {:.1?}", began.elapsed());
        test.wait_new_vmi("mortal", &first).await;
        println!("the VM runs again after {:.1?}", began.elapsed());
        runs_once(&test, "mortal").await;
    };
    seen.during(dies).await;
    assert_ran_once(&seen);
}
