//! Guests that move between the two nodes while they run.

mod causes;
mod changes;
mod drain;
mod faults;
mod limits;
mod moves;
mod post_copy;
mod updates;

use std::path::PathBuf;
use std::time::Duration;

use e2e::{
    DEADLINE, GuestProcesses, Serial, VmManifest, processes_of_pod, reading, tiny_vm, wait_for,
};
use kube::api::ListParams;
use serde_json::{Value, json};
use tokio::time::{Instant, Interval};

use crate::TestNamespace;

const QEMU: &str = "qemu-system-x86";
/// Keeps the copy of a small guest busy for some seconds.
const SLOW: &str = "4Mi";
/// The copy does not end while a test runs.
const STALLED: &str = "256Ki";
/// Changes some MiB of the guest's memory over and over, beside the shell.
const WRITER: &str = "(while :; do cat /bin/busybox /bin/busybox >/dirty; done) &\n";

fn node(vmi: &Value) -> String {
    let name = vmi["status"]["nodeName"].as_str();
    name.expect("it is on a node").to_owned()
}

fn ticks() -> Interval {
    tokio::time::interval(Duration::from_millis(100))
}

/// Starts a guest that counts on its console, and writes to its memory beside that.
async fn start(test: &TestNamespace, name: &str) -> (Value, Serial) {
    start_vm(test, name, &tiny_vm(name), WRITER).await
}

async fn start_vm(
    test: &TestNamespace,
    name: &str,
    vm: &VmManifest,
    writer: &str,
) -> (Value, Serial) {
    test.apply(vm).await;
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
        let migration = newest(test).await.expect("there is a migration");
        if condition(&migration) {
            return migration;
        }
        assert!(Instant::now() < until, "not so in time: {migration:#}");
    }
}

/// Asks for a migration and waits for its end.
async fn migrate(test: &TestNamespace, vm: &str, serial: &mut Serial) -> Value {
    test.virtctl(&["migrate", vm]).await.success();
    wait_migration(test, serial, is_over).await
}

/// A policy for the migrations of one VM; dropping it deletes it.
struct Policy {
    name: String,
    kubeconfig: PathBuf,
}

impl Policy {
    /// One that slows them down.
    async fn slow(test: &TestNamespace, vm: &str, bandwidth: &str) -> Self {
        Self::of(test, vm, json!({"bandwidthPerMigration": bandwidth})).await
    }

    async fn of(test: &TestNamespace, vm: &str, mut spec: Value) -> Self {
        use e2e::Environment as _;
        let policy = Self {
            name: format!("{}-{vm}", test.namespace),
            kubeconfig: test.environment.kubeconfig(),
        };
        spec["selectors"] = json!({"virtualMachineInstanceSelector": {"kubevirt.io/vm": vm}});
        test.apply_object(&json!({
            "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy",
            "metadata": {"name": policy.name},
            "spec": spec,
        }))
        .await;
        policy
    }
}

impl Drop for Policy {
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

/// No guest was run by two processes at once.
fn assert_ran_once(seen: &GuestProcesses) {
    assert!(seen.samples() > 0);
    assert_eq!(seen.overlaps(), [""; 0]);
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
