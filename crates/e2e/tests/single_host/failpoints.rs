//! Kills the host process right after each effect of virt-handler, and of the embedded node on a real
//! network, while a VM starts, fails, stops and is deleted. Other VMs keep running and nothing is left.

use std::{fs, path::Path, sync::Arc, time::Duration};

use e2e::{Host, Inventory, claim, differences, tiny_vm};
use serde_json::json;
use tokio::time::{Instant, sleep, timeout};

use crate::TestNamespace;

/// The failpoints tested here; the tests of their crates reach all others.
const OF_THE_HANDLER: &str = "virt-handler/";
/// No guest of this test moves; a test of the crate kills virt-handler at these.
const OF_MIGRATIONS: &str = "virt-handler/migration/";
/// No guest of this test gets or loses an interface.
const OF_INTERFACES: &str = "virt-handler/interfaces/";
/// Failpoints of the network, which those tests do not have.
const OF_THE_NODE: [&str; 3] = [
    "embedded-node/pod/add-network",
    "embedded-node/pod/delete-network",
    "embedded-node/pod/join-network",
];
/// Dozens of processes die in this test, and each restart takes time.
const PATIENCE: Duration = Duration::from_mins(5);
const INTERVAL: Duration = Duration::from_millis(200);
/// Nearly always one attempt suffices.
const ROUNDS: usize = 5;

/// Whether the background process runs and has written its PID.
fn is_up(host: &Host) -> bool {
    let number = fs::read_to_string(host.state_dir().join("lock"));
    let number = number.unwrap_or_default();
    let stat = fs::read_to_string(format!("/proc/{}/stat", number.trim()));
    !number.is_empty() && stat.is_ok_and(|stat| !stat.contains(") Z "))
}

/// Restarts the background process whenever it is gone.
async fn keep_up(host: &Host) {
    loop {
        if !is_up(host) {
            // It may die again while starting.
            drop(timeout(Duration::from_mins(1), host.start(&[])).await);
        }
        sleep(INTERVAL).await;
    }
}

/// Runs `kubectl` until its output satisfies a condition, also while the API server is down.
async fn until(test: &TestNamespace, command: &[&str], wanted: impl Fn(&str) -> bool) -> String {
    let until = Instant::now() + PATIENCE;
    loop {
        let outcome = test.kubectl(command).await;
        let output = outcome.stdout.trim().to_owned();
        if outcome.is_success && wanted(&output) {
            return output;
        }
        assert!(Instant::now() < until, "{command:?}: {outcome:?}");
        sleep(INTERVAL).await;
    }
}

async fn apply(test: &TestNamespace, manifest: &[u8]) {
    let until = Instant::now() + PATIENCE;
    loop {
        let outcome = test
            .kubectl_with(&["apply", "--filename=-"], manifest)
            .await;
        if outcome.is_success {
            return;
        }
        assert!(Instant::now() < until, "{outcome:?}");
        sleep(INTERVAL).await;
    }
}

const STATUS: [&str; 4] = [
    "get",
    "vm",
    "mortal",
    "--output=jsonpath={.status.printableStatus}",
];
const INSTANCE: [&str; 4] = [
    "get",
    "vmi",
    "--selector=kubevirt.io/vm=mortal",
    "--output=jsonpath={.items[?(@.status.phase==\"Running\")].metadata.uid}",
];

/// The UID of a running VMI other than the earlier one.
async fn wait_new_vmi(test: &TestNamespace, earlier: &str) -> String {
    let uid = until(test, &INSTANCE, |uid| !uid.is_empty() && uid != earlier).await;
    until(test, &STATUS, |status| status == "Running").await;
    uid
}

/// Sets the phase of the VMI to `Failed`, as the controller does when its node is silent for long. Status
/// written by others is ignored.
async fn fails(test: &TestNamespace) {
    let token = [
        "create",
        "token",
        "--namespace=kubevirt",
        "kubevirt-controller",
    ];
    let token = until(test, &token, |token| !token.is_empty()).await;
    let server = [
        "config",
        "view",
        "--output=jsonpath={.clusters[0].cluster.server}",
    ];
    let server = until(test, &server, |server| !server.is_empty()).await;
    let server = format!("--server={server}");
    let token = format!("--token={token}");
    let failed = "--patch={\"status\":{\"phase\":\"Failed\"}}";
    let patch = [
        "--kubeconfig=/dev/null",
        "--insecure-skip-tls-verify",
        &server,
        &token,
        "patch",
        "vmi",
        "mortal",
        "--type=merge",
        failed,
    ];
    until(test, &patch, |_| true).await;
}

async fn comes_fails_stops_and_goes(test: &TestNamespace) {
    let data = claim("data", "Filesystem");
    apply(test, data.to_string().as_bytes()).await;
    let disks =
        ["root", "seed", "data"].map(|name| json!({"name": name, "disk": {"bus": "virtio"}}));
    let volumes = json!([
        {"name": "root", "containerDisk": {"image": "ferrovirt/guest-tiny:devel"}},
        {"name": "seed", "cloudInitNoCloud": {"userData": "#!/bin/sh\necho seeded\n"}},
        {"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
    ]);
    let mortal = tiny_vm("mortal")
        .set("/spec/template/spec/domain/devices/disks", json!(disks))
        .set("/spec/template/spec/volumes", volumes);
    apply(test, &mortal.manifest()).await;
    let first = wait_new_vmi(test, "").await;

    fails(test).await;
    wait_new_vmi(test, &first).await;

    let halted = "--patch={\"spec\":{\"runStrategy\":\"Halted\"}}";
    until(
        test,
        &["patch", "vm", "mortal", "--type=merge", halted],
        |_| true,
    )
    .await;
    until(test, &STATUS, |status| status == "Stopped").await;

    let all = ["delete", "vm,pvc", "--all", "--wait=false"];
    until(test, &all, |_| true).await;
    let left = [
        "get",
        "vm,vmi,pods,pvc,controllerrevisions",
        "--output=name",
    ];
    until(test, &left, str::is_empty).await;
    let volumes = ["get", "pv", "--output=name"];
    until(test, &volumes, str::is_empty).await;
}

/// After a restart an effect may no longer be needed, because the pod is gone. Then a later attempt
/// reaches its failpoint.
async fn come_to_all(test: &TestNamespace, names: &Path) {
    for _ in 0..ROUNDS {
        comes_fails_stops_and_goes(test).await;
        if names_to_come(names).is_empty() {
            return;
        }
    }
}

fn names_to_come(file: &Path) -> Vec<String> {
    let text = fs::read_to_string(file).expect("read the names to come");
    text.lines().map(str::to_owned).collect()
}

#[tokio::test]
async fn vm_lifecycle_survives_handler_kill_at_every_failpoint() {
    let host = Host::new();
    let file = host.base().join("failpoints");
    fs::write(&file, "").expect("write the names to come");
    let host = host
        .with_environment(failpoints::VARIABLE, &file)
        .bring_up()
        .await;
    let host = Arc::new(host);
    let test = TestNamespace::on(Arc::clone(&host)).await;
    // The first VM runs without kills, so that everything made once per host exists.
    comes_fails_stops_and_goes(&test).await;
    let before = Inventory::of(&host.state_dir());

    let names = failpoints::NAMES.lines();
    let mut names: Vec<&str> = names
        .filter(|name| name.starts_with(OF_THE_HANDLER) && !name.starts_with(OF_MIGRATIONS))
        .filter(|name| !name.starts_with(OF_INTERFACES))
        .collect();
    assert!(!names.is_empty());
    names.extend(OF_THE_NODE);
    fs::write(&file, names.join("\n") + "\n").expect("write the names to come");
    tokio::select! {
        () = keep_up(&host) => {}
        () = come_to_all(&test, &file) => {}
    }
    assert_eq!(
        names_to_come(&file),
        [""; 0],
        "these failpoints were not reached"
    );
    let now = || Inventory::of(&host.state_dir());
    assert_eq!(differences(now, &before).await, [""; 0]);
}
