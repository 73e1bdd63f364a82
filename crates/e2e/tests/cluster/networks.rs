//! Guests on a secondary network that Multus joins, on the bridge that the nodes of the test cluster share.

use e2e::{Console, VmManifest, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

const NETWORK: &str = "lan";

/// A guest on the pod network and on the secondary one, with this hardware address there.
fn on_both_networks(name: &str, mac: &str) -> VmManifest {
    let interfaces = json!([
        {"name": "default", "masquerade": {}},
        {"name": NETWORK, "bridge": {}, "macAddress": mac},
    ]);
    let networks = json!([
        {"name": "default", "pod": {}},
        {"name": NETWORK, "multus": {"networkName": NETWORK}},
    ]);
    tiny_vm(name)
        .device("interfaces", interfaces)
        .spec("networks", networks)
}

/// Without addresses: a node knows only those that it has given out itself.
async fn define(test: &TestNamespace) {
    let config = json!({"cniVersion": "1.0.0", "name": "lan", "type": "bridge", "bridge": "lan0"});
    test.apply_object(&json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": NETWORK}, "spec": {"config": config.to_string()},
    }))
    .await;
}

fn has_condition(vmi: &Value, kind: &str, member: &str, value: &str) -> bool {
    let conditions = vmi["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.any(|one| one["type"] == kind && one[member] == value)
}

/// Gives the guest an address on the secondary network, after checking that it has the interface there.
async fn join(test: &TestNamespace, name: &str, mac: &str, address: &str) -> (Value, Console) {
    let joined = |vmi: &Value| vmi["status"]["interfaces"][1]["infoSource"].is_string();
    test.wait_vmi_phase(name, "Running").await;
    let vmi = wait_for(&test.vmis(), name, "on both networks", joined).await;
    let lan = &vmi["status"]["interfaces"][1];
    assert_eq!(lan["name"], NETWORK);
    assert_eq!(lan["infoSource"], "domain, multus-status");
    assert_eq!(lan["mac"], mac);
    let in_pod = lan["podInterfaceName"].as_str().expect("a name");
    assert!(in_pod.starts_with("pod") && in_pod.len() == 14, "{in_pod}");
    let mut console = test.shell(name).await;
    let own = console.shell("cat /sys/class/net/eth1/address").await;
    assert_eq!(own.trim(), mac);
    let set_up = format!("ip link set eth1 up; ip address add {address}/24 dev eth1");
    console.shell(&set_up).await;
    (vmi, console)
}

#[tokio::test]
async fn guests_of_two_nodes_wait_for_a_secondary_network_and_reach_each_other_on_it() {
    let test = test_namespace().await;
    let nodes = test.environment.nodes();
    let guests = [
        ("first", "02:00:00:00:0a:01", "10.88.1.1"),
        ("second", "02:00:00:00:0a:02", "10.88.1.2"),
    ];
    let manifests = guests.iter().zip(&nodes).map(|((name, mac, _), node)| {
        let selector = json!({"kubernetes.io/hostname": node});
        on_both_networks(name, mac).spec("nodeSelector", selector)
    });
    test.apply_all(manifests).await;
    for (name, ..) in guests {
        let waits =
            |vmi: &Value| has_condition(vmi, "Synchronized", "reason", "NetworkDefinitionMissing");
        wait_for(&test.vmis(), name, "NetworkDefinitionMissing", waits).await;
    }
    let pods = test.pod_list().await;
    assert!(pods.is_empty(), "{pods:?} before the network");
    define(&test).await;

    let mut consoles = Vec::new();
    for ((name, mac, address), node) in guests.iter().zip(&nodes) {
        let (vmi, console) = join(&test, name, mac, address).await;
        assert_eq!(vmi["status"]["nodeName"], **node);
        consoles.push(console);
    }
    let answers = [guests[1].2, guests[0].2];
    for (console, address) in consoles.iter_mut().zip(answers) {
        console.pings(address).await;
    }
    // By the pod network.
    let second = test.wait_vmi_phase("second", "Running").await;
    let address = second["status"]["interfaces"][0]["ipAddress"].as_str();
    consoles[0].pings(address.expect("an address")).await;
}

/// Lines of a connection that the other guest has received; the last one may be incomplete.
async fn received(console: &mut Console, more_than: usize) -> Vec<String> {
    let wait = format!("until [ $(wc -l </got) -gt {more_than} ]; do sleep 1; done; cat /got");
    let text = console.shell(&wait).await;
    let whole = text.lines().map(|line| line.trim().to_owned());
    whole.filter(|line| line.ends_with('.')).collect()
}

#[tokio::test]
async fn connection_on_a_secondary_network_survives_a_migration() {
    let test = TestNamespace::create_exclusive().await;
    define(&test).await;
    let (moves, stays) = ("02:00:00:00:0b:01", "02:00:00:00:0b:02");
    test.apply_all([
        on_both_networks("moves", moves),
        on_both_networks("stays", stays),
    ])
    .await;
    let (before, mut sender) = join(&test, "moves", moves, "10.88.2.1").await;
    let (_, mut receiver) = join(&test, "stays", stays, "10.88.2.2").await;
    sender.pings("10.88.2.2").await;
    // A side whose input ends closes its half, and the other one would leave.
    let quiet = "(while :; do sleep 60; done)";
    let listen = format!("touch /got; {{ {quiet} | nc -l -p 7000 >/got 2>/dev/null & }}");
    let wait = "until cat /proc/net/tcp* | grep -q :1B58; do sleep 1; done";
    receiver.shell(&format!("{listen}; {wait}")).await;
    let lines = "(n=0; while :; do n=$((n + 1)); echo line $n.; sleep 1; done)";
    let send = format!("{{ ({lines} | nc 10.88.2.2 7000) >/dev/null 2>&1 & }}");
    sender.shell(&send).await;
    let count = received(&mut receiver, 3).await.len();
    drop(sender);

    let can_move = |vmi: &Value| has_condition(vmi, "LiveMigratable", "status", "True");
    wait_for(&test.vmis(), "moves", "migratable", can_move).await;
    let migrated = test.virtctl(&["migrate", "--watch", "moves"]).await;
    migrated.success();
    let after = test.wait_vmi_phase("moves", "Running").await;
    assert_eq!(after["metadata"]["uid"], before["metadata"]["uid"]);
    let node = |vmi: &Value| vmi["status"]["nodeName"].clone();
    assert_ne!(node(&after), node(&before));
    let lan = &after["status"]["interfaces"][1];
    assert_eq!(lan["mac"], moves);

    // What came before is there, and what comes now follows it.
    let now = received(&mut receiver, count).await.len();
    let later = received(&mut receiver, now + 5).await;
    for (index, line) in later.iter().enumerate() {
        assert_eq!(*line, format!("line {}.", index + 1));
    }
}
