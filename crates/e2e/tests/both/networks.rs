//! Network bindings.

use e2e::{Console, kill, processes_of_pod, tiny_vm};
use serde_json::json;

use crate::test_namespace;

#[tokio::test]
async fn bridge_binding_gives_guest_the_pod_address() {
    let test = test_namespace().await;
    let interfaces = json!([{"name": "default", "bridge": {}}]);
    test.apply(&tiny_vm("given").device("interfaces", interfaces))
        .await;
    test.apply(&tiny_vm("behind")).await;
    let vmi = test.wait_vmi_phase("given", "Running").await;
    let interface = &vmi["status"]["interfaces"][0];
    let address = interface["ipAddress"].as_str().expect("an address");
    let pods = test.pods();
    let labels = kube::api::ListParams::default().labels("kubevirt.io/vm=given");
    let pods = pods.list(&labels).await.expect("list pods").items;
    assert_eq!(pods[0].data["status"]["podIP"], address);
    assert_eq!(interface["podInterfaceName"], "eth0");

    let shown = test.greeting("given").await;
    let greeted = format!("guest given (address {address})");
    assert!(shown.contains(&greeted), "{shown}");
    let mut given = test.shell("given").await;
    let own = given.shell("cat /sys/class/net/eth0/address").await;
    assert_eq!(interface["mac"], own.trim());
    let (network, _) = address.rsplit_once('.').expect("an IPv4 address");
    let routes = given.shell("ip route").await;
    assert!(
        routes.contains(&format!("default via {network}.1 ")),
        "{routes}"
    );
    given.pings(&format!("{network}.1")).await;

    // There is no address translation between it and the other pods.
    let mut behind = test.shell("behind").await;
    behind.pings(address).await;
    let other = test.wait_vmi_phase("behind", "Running").await;
    let other = &other["status"]["interfaces"][0]["ipAddress"];
    given.pings(other.as_str().expect("an address")).await;

    let vmi = test.wait_vmi_phase("given", "Running").await;
    let conditions = vmi["status"]["conditions"].as_array().expect("conditions");
    let migratable = conditions
        .iter()
        .find(|one| one["type"] == "LiveMigratable");
    let migratable = migratable.expect("the condition");
    assert_eq!(migratable["status"], "False");
    assert_eq!(migratable["reason"], "InterfaceNotLiveMigratable");
}

/// The text that a guest serves on its port 80, as another guest gets it.
async fn fetch(console: &mut Console, address: &str) -> String {
    let command = format!("nc -w 5 {address} 80 </dev/null 2>/dev/null");
    for _ in 0..30 {
        let text = console.shell(&command).await;
        if !text.is_empty() {
            return text;
        }
    }
    String::new()
}

#[tokio::test]
async fn passt_gives_guest_the_pod_address_and_survives_a_kill() {
    let test = test_namespace().await;
    let interfaces = json!([{
        "name": "default", "passtBinding": {}, "ports": [{"name": "web", "port": 80}],
    }]);
    test.apply(&tiny_vm("served").device("interfaces", interfaces))
        .await;
    test.apply(&tiny_vm("client")).await;
    let vmi = test.wait_vmi_phase("served", "Running").await;
    let address = &vmi["status"]["interfaces"][0]["ipAddress"];
    let address = address.as_str().expect("an address");
    let shown = test.greeting("served").await;
    let greeted = format!("guest served (address {address})");
    assert!(shown.contains(&greeted), "{shown}");
    let mut served = test.shell("served").await;
    let serve = "{ (while :; do echo hello | nc -l -p 80; done) >/dev/null 2>&1 & }";
    served.shell(serve).await;
    let mut client = test.shell("client").await;
    assert_eq!(fetch(&mut client, address).await, "hello");

    let uid = vmi["metadata"]["uid"].as_str().expect("a UID");
    let pods = test.pod_list().await;
    let pod = pods.iter().find(|(name, _)| name.contains("served"));
    let (_, pod) = pod.unwrap_or_else(|| panic!("the pod of {uid}: {pods:?}"));
    let processes = processes_of_pod(pod);
    let passt = processes.iter().find(|(_, name)| name.starts_with("passt"));
    kill(passt.expect("passt").0);
    // The new passt learns the guest's hardware address from the first packet that the guest sends.
    let (network, _) = address.rsplit_once('.').expect("an IPv4 address");
    let greet = format!("ping -c 5 -W 1 {network}.1 | grep received");
    let answers = served.shell(&greet).await;
    assert!(answers.contains("packets received"), "{answers}");
    assert!(!answers.contains(" 0 packets received"), "{answers}");
    assert_eq!(fetch(&mut client, address).await, "hello");
    let after = processes_of_pod(pod);
    let is_qemu = |(_, name): &&(i32, String)| name.starts_with("qemu");
    assert_eq!(
        processes.iter().find(is_qemu),
        after.iter().find(is_qemu),
        "the guest is the same"
    );
}
