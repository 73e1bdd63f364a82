//! Hook sidecars, which change a guest before it starts.

use e2e::{FeatureGates, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::TestNamespace;

const GATE: &str = "Sidecar";
const ANNOTATION: &str = "hooks.kubevirt.io/hookSidecars";
const VENDOR: &str = "printf '%s' \"$4\" | sed \"s|<baseBoard>|<baseBoard><entry name='manufacturer'>Acme</entry>|\"";
const SEED: &str = "printf '%s' \"$4\" | sed 's|echo seeded|echo changed by a hook|'";

fn script(key: &str, path: &str) -> Value {
    json!({
        "args": ["--version", "v1alpha2"],
        "configMap": {"name": "scripts", "key": key, "hookPath": path},
    })
}

async fn set_scripts(test: &TestNamespace, vendor: &str) {
    let shell = |line: &str| format!("#!/bin/sh\n{line}\n");
    test.apply_object(&json!({
        "apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "scripts"},
        "data": {"vendor": shell(vendor), "seed": shell(SEED)},
    }))
    .await;
}

#[tokio::test]
async fn scripts_change_hardware_and_seed_of_a_guest_once_they_are_right() {
    let test = TestNamespace::create_exclusive().await;
    let feature_gates = FeatureGates::switch(test.environment.as_ref(), &[GATE], &[]).await;
    set_scripts(&test, "echo no domain").await;
    let sidecars = json!([
        script("vendor", "/usr/bin/onDefineDomain"),
        script("seed", "/usr/bin/preCloudInitIso"),
    ]);
    let vm = tiny_vm("hooked").annotation(ANNOTATION, sidecars.to_string());
    test.apply_gated(&vm, GATE).await;
    let is_explained = |vmi: &Value| {
        let conditions = vmi["status"]["conditions"].as_array();
        conditions.into_iter().flatten().any(|one| {
            let message = one["message"].as_str().unwrap_or_default();
            one["reason"] == "HookSidecarFailed" && message.contains("hook-sidecar-0")
        })
    };
    wait_for(&test.vmis(), "hooked", "the failing sidecar", is_explained).await;

    set_scripts(&test, VENDOR).await;
    let mut console = test.shell("hooked").await;
    let vendor = console.shell("cat /sys/class/dmi/id/board_vendor").await;
    assert_eq!(vendor, "Acme");
    assert!(test.greeting("hooked").await.contains("changed by a hook"));
    drop(feature_gates);
}
