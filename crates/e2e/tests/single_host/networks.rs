//! Guests on secondary networks of the host.

use e2e::{Console, Environment as _, VmManifest, later_answer, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

const NETWORK: &str = "lan";
const MAC: &str = "02:00:00:00:00:0b";

/// A guest on the pod network and on the secondary one.
fn on_both_networks(name: &str, lan: &Value) -> VmManifest {
    let interfaces = json!([{"name": "default", "masquerade": {}}, lan]);
    let networks = json!([
        {"name": "default", "pod": {}},
        {"name": NETWORK, "multus": {"networkName": NETWORK}},
    ]);
    tiny_vm(name)
        .device("interfaces", interfaces)
        .spec("networks", networks)
}

async fn define(test: &TestNamespace, config: &Value) {
    test.apply_object(&json!({
        "apiVersion": "k8s.cni.cncf.io/v1", "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": NETWORK}, "spec": {"config": config.to_string()},
    }))
    .await;
}

async fn waits_for_network(test: &TestNamespace, name: &str) {
    let is_explained = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["type"] == "Synchronized" && one["reason"] == "NetworkDefinitionMissing")
    };
    wait_for(&test.vmis(), name, "NetworkDefinitionMissing", is_explained).await;
}

/// The address that the guest gets on its second interface.
async fn address_on_lan(console: &mut Console) -> String {
    let lease = "udhcpc -i eth1 -t 8 -T 1 -A 1 -n -q -s /etc/udhcpc >/dev/null 2>&1";
    console
        .shell(&format!("ip link set eth1 up; {lease}"))
        .await;
    let shown = console.shell("ip -o -4 address show dev eth1").await;
    let mut words = shown.split_whitespace().skip_while(|word| *word != "inet");
    let address = words.nth(1).and_then(|cidr| cidr.split('/').next());
    address
        .unwrap_or_else(|| panic!("no address: {shown}"))
        .to_owned()
}

/// Sets the link of the second interface in the VM's template, and waits until the guest has it.
async fn set_link(test: &TestNamespace, name: &str, state: &str) {
    let path = "/spec/template/spec/domain/devices/interfaces/1/state";
    let patch = json!([{"op": "add", "path": path, "value": state}]).to_string();
    let patched = test
        .kubectl(&["patch", "vm", name, "--type=json", "--patch", &patch])
        .await;
    patched.success();
    let what = format!("link {state}");
    let has_link = |vmi: &Value| vmi["status"]["interfaces"][1]["linkState"] == state;
    wait_for(&test.vmis(), name, &what, has_link).await;
}

/// The guest sees a change of its link a moment after the status does.
async fn sees_carrier(console: &mut Console, value: u8) {
    let carrier = "/sys/class/net/eth1/carrier";
    let wait = format!("until grep -q {value} {carrier}; do sleep 1; done; cat {carrier}");
    assert_eq!(console.shell(&wait).await, value.to_string());
}

#[tokio::test]
async fn guests_reach_each_other_on_a_secondary_network_whose_link_goes_down_and_up() {
    let test = test_namespace().await;
    let fixed = json!({"name": NETWORK, "bridge": {}, "macAddress": MAC});
    let plain = json!({"name": NETWORK, "bridge": {}});
    test.apply_all([
        on_both_networks("first", &fixed),
        on_both_networks("second", &plain),
    ])
    .await;
    waits_for_network(&test, "first").await;
    // A host has one set of names for bridges, which other tests share.
    let bridge = format!("lan{}", test.environment.port());
    let config = json!({
        "cniVersion": "1.0.0", "name": "lan", "type": "bridge", "bridge": bridge,
        "ipam": {"type": "host-local", "subnet": "10.88.0.0/24"},
    });
    define(&test, &config).await;

    let mut guests = Vec::new();
    for name in ["first", "second"] {
        let vmi = test.wait_vmi_phase(name, "Running").await;
        let [default, lan] = vmi["status"]["interfaces"]
            .as_array()
            .expect("a list")
            .as_slice()
        else {
            panic!("two interfaces: {vmi}")
        };
        assert_eq!(default["podInterfaceName"], "eth0");
        assert_eq!(lan["name"], NETWORK);
        assert_eq!(lan["infoSource"], "domain, multus-status");
        let in_pod = lan["podInterfaceName"].as_str().expect("a name");
        assert!(in_pod.starts_with("pod") && in_pod.len() == 14, "{in_pod}");
        let mut console = test.shell(name).await;
        let own = console.shell("cat /sys/class/net/eth1/address").await;
        assert_eq!(lan["mac"], own.trim());
        let address = address_on_lan(&mut console).await;
        assert_eq!(lan["ipAddress"], *address);
        guests.push((console, address, lan["mac"].clone()));
    }
    assert_eq!(guests[0].2, MAC);
    let other = guests[1].1.clone();
    assert!(other.starts_with("10.88.0."), "{other}");
    guests[0].0.pings(&other).await;
    let other = guests[0].1.clone();
    guests[1].0.pings(&other).await;
    // By the pod network.
    let gateway = test.environment.gateway();
    guests[0].0.pings(&gateway).await;

    // The link goes down and up while the guest runs.
    set_link(&test, "first", "down").await;
    sees_carrier(&mut guests[0].0, 0).await;
    set_link(&test, "first", "up").await;
    sees_carrier(&mut guests[0].0, 1).await;
    let other = guests[1].1.clone();
    guests[0].0.pings(&other).await;
}

/// The binding tells a guest nothing, so each gets its address by hand.
#[tokio::test]
async fn guests_with_a_binding_of_the_administrator_start_once_it_is_registered() {
    let test = TestNamespace::create_exclusive().await;
    let bridge = format!("lan{}", test.environment.port());
    let config = json!({"cniVersion": "1.0.0", "name": "lan", "type": "bridge", "bridge": bridge});
    define(&test, &config).await;
    let bound = json!({"name": NETWORK, "binding": {"name": "layer2"}});
    test.apply_all([
        on_both_networks("first", &bound),
        on_both_networks("second", &bound),
    ])
    .await;
    let is_explained = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| {
            let message = one["message"].as_str().unwrap_or_default();
            one["reason"] == "FailedCreate" && message.contains("no network binding \"layer2\"")
        })
    };
    wait_for(&test.vmis(), "first", "the missing binding", is_explained).await;

    let binding = json!({"layer2": {"domainAttachmentType": "managedTap"}});
    let kubevirt = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": {"name": "kubevirt", "namespace": "kubevirt"},
        "spec": {"configuration": {"network": {"binding": binding}}},
    });
    let apply = ["apply", "--filename=-"];
    let text = kubevirt.to_string();
    let applied = test.environment.kubectl(&apply, text.as_bytes()).await;
    applied.success();
    let mut consoles = Vec::new();
    for (name, address) in [("first", "10.99.0.1"), ("second", "10.99.0.2")] {
        let vmi = test.wait_vmi_phase(name, "Running").await;
        let lan = &vmi["status"]["interfaces"][1];
        assert_eq!(lan["name"], NETWORK);
        assert_eq!(lan["infoSource"], "domain, multus-status");
        let mut console = test.shell(name).await;
        let own = console.shell("cat /sys/class/net/eth1/address").await;
        assert_eq!(lan["mac"], own.trim());
        let set_up = format!("ip link set eth1 up; ip address add {address}/24 dev eth1");
        console.shell(&set_up).await;
        consoles.push(console);
    }
    consoles[0].pings("10.99.0.2").await;
    let all = ["delete", "kubevirt", "kubevirt", "--namespace=kubevirt"];
    test.environment.kubectl(&all, b"").await.success();
    // The pod keeps its binding: the guest is prepared again, and its link still follows the VM.
    let again = [
        "annotate",
        "vmi",
        "first",
        "kubevirt.io/pause-guest-agent-probes=true",
    ];
    test.kubectl(&again).await.success();
    set_link(&test, "first", "down").await;
    sees_carrier(&mut consoles[0], 0).await;
    set_link(&test, "first", "up").await;
    sees_carrier(&mut consoles[0], 1).await;
    consoles[0].pings("10.99.0.2").await;
}

/// Changes the VM's template by a JSON patch.
async fn change(test: &TestNamespace, name: &str, patch: &Value) {
    let patch = patch.to_string();
    let patched = test
        .kubectl(&["patch", "vm", name, "--type=json", "--patch", &patch])
        .await;
    patched.success();
}

/// Gives the VM's template an interface on the secondary network.
async fn add_lan(test: &TestNamespace, name: &str) {
    let interface = json!({"name": NETWORK, "bridge": {}, "macAddress": MAC});
    let network = json!({"name": NETWORK, "multus": {"networkName": NETWORK}});
    let interfaces = "/spec/template/spec/domain/devices/interfaces/-";
    let patch = json!([
        {"op": "add", "path": interfaces, "value": interface},
        {"op": "add", "path": "/spec/template/spec/networks/-", "value": network},
    ]);
    change(test, name, &patch).await;
}

fn shown<'a>(vmi: &'a Value, name: &str) -> Option<&'a Value> {
    let all = vmi["status"]["interfaces"].as_array()?;
    all.iter().find(|one| one["name"] == name)
}

fn has_lan(spec: &Value) -> bool {
    let interfaces = spec["domain"]["devices"]["interfaces"].as_array();
    let networks = spec["networks"].as_array();
    let mut all = interfaces.into_iter().chain(networks).flatten();
    all.any(|one| one["name"] == NETWORK)
}

#[tokio::test]
async fn running_guest_gets_and_loses_an_interface() {
    let test = test_namespace().await;
    let manifest = tiny_vm("grows")
        .device("interfaces", json!([{"name": "default", "masquerade": {}}]))
        .spec("networks", json!([{"name": "default", "pod": {}}]));
    test.apply(&manifest).await;
    let vmi = test.wait_vmi_phase("grows", "Running").await;
    let uid = vmi["metadata"]["uid"].clone();
    let mut console = test.shell("grows").await;

    // It waits for the definition of the network.
    add_lan(&test, "grows").await;
    let is_pending = |vm: &Value| {
        let all = vm["status"]["conditions"].as_array();
        all.into_iter().flatten().any(|one| {
            let message = one["message"].as_str().unwrap_or_default();
            one["type"] == "ChangePending" && message.contains("NetworkAttachmentDefinition lan")
        })
    };
    wait_for(&test.vms(), "grows", "a pending change", is_pending).await;
    let bridge = format!("lan{}", test.environment.port());
    let config = json!({
        "cniVersion": "1.0.0", "name": "lan", "type": "bridge", "bridge": bridge,
        "ipam": {"type": "host-local", "subnet": "10.88.0.0/24"},
    });
    define(&test, &config).await;

    for round in 0..2 {
        let came = |vmi: &Value| {
            shown(vmi, NETWORK).is_some_and(|lan| lan["infoSource"] == "domain, multus-status")
        };
        let vmi = wait_for(&test.vmis(), "grows", "the interface", came).await;
        assert_eq!(shown(&vmi, NETWORK).expect("it came")["mac"], MAC);
        let wait = "until [ -e /sys/class/net/eth1/address ]; do sleep 1; done; \
                    cat /sys/class/net/eth1/address";
        assert_eq!(console.shell(wait).await.trim(), MAC, "round {round}");
        let address = address_on_lan(&mut console).await;
        assert!(address.starts_with("10.88.0."), "{address}");
        // The first network still works.
        let gateway = test.environment.gateway();
        console.pings(&gateway).await;

        if round == 0 {
            // A guest that does not run does not release anything.
            test.virtctl(&["pause", "vmi", "grows"]).await.success();
        }
        let path = "/spec/template/spec/domain/devices/interfaces/1/state";
        let absent = json!([{"op": "add", "path": path, "value": "absent"}]);
        change(&test, "grows", &absent).await;
        if round == 0 {
            let is_explained = |vmi: &Value| {
                let all = vmi["status"]["conditions"].as_array();
                let mut all = all.into_iter().flatten();
                all.any(|one| one["reason"] == "InterfaceNotReleased")
            };
            wait_for(&test.vmis(), "grows", "InterfaceNotReleased", is_explained).await;
            // The first cause is that the guest is paused.
            let held = later_answer("interface-not-plugged", "interface lan", "edit vm grows");
            test.why_answers("grows", held).await;
            test.virtctl(&["unpause", "vmi", "grows"]).await.success();
        }
        let left = |vmi: &Value| shown(vmi, NETWORK).is_none() && !has_lan(&vmi["spec"]);
        let vmi = wait_for(&test.vmis(), "grows", "no interface", left).await;
        assert_eq!(vmi["metadata"]["uid"], uid, "the same guest");
        let dropped = |vm: &Value| !has_lan(&vm["spec"]["template"]["spec"]);
        wait_for(&test.vms(), "grows", "the template without it", dropped).await;
        let gone = console.shell("ls /sys/class/net/eth1 2>&1").await;
        assert!(gone.contains("No such file"), "round {round}: {gone}");
        if round == 0 {
            add_lan(&test, "grows").await;
        }
    }
}
