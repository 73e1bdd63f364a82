//! What a namespace offers for a VM: networks, instance types and preferences.

use serde_json::{Value, json};

use super::Browser;
use crate::support::{Environment, network_kind, user, vm};

fn sized(kind: &str, name: &str, spec: &Value) -> Value {
    let mut object = json!({
        "apiVersion": "instancetype.kubevirt.io/v1beta1", "kind": kind,
        "metadata": {"name": name}, "spec": spec,
    });
    if !kind.contains("Cluster") {
        object["metadata"]["namespace"] = "default".into();
    }
    object
}

#[tokio::test]
async fn form_offers_networks_sizes_and_preferences_of_the_namespace() {
    let environment = Environment::start(user()).await;
    environment.create(network_kind()).await;
    let vlan = json!({"type": "bridge", "bridge": "br1", "vlan": 5});
    environment.create_network("default", "office", vlan).await;
    environment
        .create_network(
            "default",
            "lab",
            json!({"type": "macvlan", "master": "eth1"}),
        )
        .await;
    let size =
        |cpus: u32, memory: &str| json!({"cpu": {"guest": cpus}, "memory": {"guest": memory}});
    for object in [
        sized("VirtualMachineInstancetype", "small", &size(1, "256Mi")),
        sized(
            "VirtualMachineClusterInstancetype",
            "small",
            &size(4, "8Gi"),
        ),
        sized(
            "VirtualMachinePreference",
            "large-only",
            &json!({"requirements": {"memory": {"guest": "4Gi"}}, "devices": {"preferredDiskBus": "scsi"},
                   "cpu": {"preferredCPUTopology": "cores"}}),
        ),
    ] {
        environment.create(object).await;
    }
    let browser = Browser::open(&environment.link()).await;
    browser.view("#/networks").await;
    browser.until_text("tbody", "bridge br1, vlan 5").await;
    browser.until_text("tbody", "macvlan").await;

    browser.view("#/create").await;
    browser.until_text("#result", "1 CPU and 1Gi").await;
    let options = "document.querySelectorAll('#field-size optgroup option').length === 2";
    browser.until(options).await;
    choose(&browser, "#field-size", "VirtualMachineInstancetype/small").await;
    browser
        .until_text("#result", "1 CPU and 256Mi of memory")
        .await;
    choose(
        &browser,
        "#field-preference",
        "VirtualMachinePreference/large-only",
    )
    .await;
    browser
        .until_text("#result", "requires 4Gi of memory")
        .await;
    choose(
        &browser,
        "#field-size",
        "VirtualMachineClusterInstancetype/small",
    )
    .await;
    browser
        .until_text("#result", "4 CPUs as cores and 8Gi of memory")
        .await;
    let hidden = "return document.querySelector('#field-cores').checkVisibility()";
    assert_eq!(browser.run(hidden).await, false);
    let second = "const select = document.querySelector('#field-networks'); \
        for (const one of select.options) one.selected = one.value === 'office';";
    browser.run(second).await;
    browser.fill("#field-name", "tiny").await;
    browser
        .fill("#field-image", "registry.example/debian:12")
        .await;
    browser.click("#create").await;
    browser.until("location.hash === '#/vm/default/tiny'").await;
    let made = environment.object(&vm("tiny")).await.unwrap();
    assert_eq!(
        made.data["spec"]["instancetype"]["kind"],
        "VirtualMachineClusterInstancetype"
    );
    assert_eq!(made.data["spec"]["preference"]["name"], "large-only");
    let spec = &made.data["spec"]["template"]["spec"];
    assert_eq!(spec["networks"][1]["multus"]["networkName"], "office");
    assert_eq!(
        spec["domain"]["devices"]["interfaces"][1]["bridge"],
        json!({})
    );
    browser
        .until_text("section[aria-label=Networks]", "multus office")
        .await;
    browser.check_log(&[]).await;
    environment.api.stop.cancel();
}

/// Chooses an option as a user does, with the event that follows.
async fn choose(browser: &Browser, selector: &str, value: &str) {
    let script = format!(
        "const select = document.querySelector({}); select.value = {}; \
         select.dispatchEvent(new Event('input', {{ bubbles: true }})); return select.value",
        json!(selector),
        json!(value)
    );
    assert_eq!(browser.run(&script).await, value);
}
