//! Changes of a running VM that take effect by a move of its guest.

use std::path::PathBuf;
use std::process::Command;

use e2e::{Environment as _, GuestProcesses, NAMESPACE, answer, tiny_vm, wait_for};
use serde_json::{Value, json};

use super::{
    WRITER, assert_ran_once, is_over, phase, reading, runs_once, start, start_vm, wait_migration,
};
use crate::TestNamespace;

/// Guests move by themselves; dropping it ends that.
struct Moves {
    kubeconfig: PathBuf,
}

impl Moves {
    fn allowed(test: &TestNamespace) -> Self {
        let moves = Self {
            kubeconfig: test.environment.kubeconfig(),
        };
        moves.set(&json!(["LiveMigrate"]));
        moves
    }

    fn set(&self, methods: &Value) {
        let strategy = json!({"workloadUpdateMethods": methods});
        let patch = json!({"spec": {"workloadUpdateStrategy": strategy}}).to_string();
        let output = Command::new("kubectl")
            .env("KUBECONFIG", &self.kubeconfig)
            .args(["--request-timeout=30s", "--namespace", NAMESPACE])
            .args(["patch", "kubevirt", "kubevirt", "--type=merge", "--patch"])
            .arg(&patch)
            .output();
        let is_done = output.as_ref().is_ok_and(|output| output.status.success());
        assert!(is_done || std::thread::panicking(), "{patch}: {output:?}");
    }
}

impl Drop for Moves {
    fn drop(&mut self) {
        self.set(&Value::Null);
    }
}

/// Whether the object has a condition of that type.
fn has(object: &Value, condition: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.any(|one| one["type"] == condition)
}

/// What libvirt has requested of the guest shows that the memory is plugged in, with a driver in the guest or without.
#[tokio::test]
async fn guest_is_offered_memory_by_a_move() {
    let test = TestNamespace::create_exclusive().await;
    let vm = tiny_vm("swells").domain("memory", json!({"guest": "1Gi"}));
    let (first, mut serial) = start_vm(&test, "swells", &vm, WRITER).await;
    let mut seen = GuestProcesses::of(&test.namespace);
    let moves = async {
        let _moves = Moves::allowed(&test);
        let memory = json!({"guest": "1280Mi"});
        let patch = json!({"spec": {"template": {"spec": {"domain": {"memory": memory}}}}});
        let patch = patch.to_string();
        let arguments = ["patch", "vm", "swells", "--type=merge", "--patch", &patch];
        test.kubectl(&arguments).await.success();
        let is_offered = |vmi: &Value| {
            vmi["status"]["memory"]["guestRequested"] == "1280Mi" && !has(vmi, "HotMemoryChange")
        };
        let vmis = test.vmis();
        let grown = wait_for(&vmis, "swells", "with more memory", is_offered);
        let grown = reading(&test, std::slice::from_mut(&mut serial), grown).await;
        assert_eq!(grown["metadata"]["uid"], first["metadata"]["uid"]);
        assert_ne!(grown["status"]["nodeName"], first["status"]["nodeName"]);
        let migration = wait_migration(&test, &mut serial, is_over).await;
        assert_eq!(phase(&migration), "Succeeded", "{migration:#}");
        runs_once(&test, "swells").await;
        serial.goes_on(&test).await;
        let is_followed = |vm: &Value| !has(vm, "RestartRequired") && !has(vm, "HotMemoryChange");
        wait_for(&test.vms(), "swells", "without a restart", is_followed).await;
    };
    Box::pin(seen.during(moves)).await;
    assert_ran_once(&seen);
}

#[tokio::test]
async fn guest_gets_a_processor_by_a_move() {
    let test = TestNamespace::create_exclusive().await;
    let (first, mut serial) = start(&test, "grows").await;
    assert_eq!(first["status"]["currentCPUTopology"]["sockets"], 1);
    let mut seen = GuestProcesses::of(&test.namespace);
    let moves = async {
        let cpu = json!({"sockets": 2});
        let patch = json!({"spec": {"template": {"spec": {"domain": {"cpu": cpu}}}}});
        let patch = patch.to_string();
        let arguments = ["patch", "vm", "grows", "--type=merge", "--patch", &patch];
        test.kubectl(&arguments).await.success();
        let waits = answer("change-awaits-move", "HotVCPUChange", "migrate grows");
        test.why_answers("grows", waits).await;
        let _moves = Moves::allowed(&test);
        let has_both = |vmi: &Value| {
            vmi["status"]["currentCPUTopology"]["sockets"] == 2 && !has(vmi, "HotVCPUChange")
        };
        let vmis = test.vmis();
        let grown = wait_for(&vmis, "grows", "with two processors", has_both);
        let grown = reading(&test, std::slice::from_mut(&mut serial), grown).await;
        assert_eq!(grown["metadata"]["uid"], first["metadata"]["uid"]);
        let migration = wait_migration(&test, &mut serial, is_over).await;
        assert_eq!(phase(&migration), "Succeeded", "{migration:#}");
        runs_once(&test, "grows").await;
        serial.goes_on(&test).await;
        let is_followed = |vm: &Value| !has(vm, "RestartRequired") && !has(vm, "HotVCPUChange");
        wait_for(&test.vms(), "grows", "without a restart", is_followed).await;
    };
    Box::pin(seen.during(moves)).await;
    assert_ran_once(&seen);
}
