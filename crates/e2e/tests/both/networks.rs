//! Network bindings.

use e2e::{Console, tiny_vm};
use serde_json::json;

use crate::test_namespace;

async fn pings(console: &mut Console, address: &str) {
    let answer = console.shell(&format!("ping -c 2 -W 5 {address}")).await;
    assert!(answer.contains(" 0% packet loss"), "{address}: {answer}");
}

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
    pings(&mut given, &format!("{network}.1")).await;

    // There is no address translation between it and the other pods.
    let mut behind = test.shell("behind").await;
    pings(&mut behind, address).await;
    let other = test.wait_vmi_phase("behind", "Running").await;
    let other = &other["status"]["interfaces"][0]["ipAddress"];
    pings(&mut given, other.as_str().expect("an address")).await;

    let vmi = test.wait_vmi_phase("given", "Running").await;
    let conditions = vmi["status"]["conditions"].as_array().expect("conditions");
    let migratable = conditions
        .iter()
        .find(|one| one["type"] == "LiveMigratable");
    let migratable = migratable.expect("the condition");
    assert_eq!(migratable["status"], "False");
    assert_eq!(migratable["reason"], "InterfaceNotLiveMigratable");
}
