//! Old manifests and fields that this version does not support are accepted.

use serde_json::{Value, json};

use super::{OLD_MANIFEST, Stage, call, call_under, config_from_legacy_map, patch_of, vm, vmi};

#[test]
fn hook_sidecars_are_accepted_without_a_warning() {
    let config = config_from_legacy_map(&[("feature-gates", "Sidecar")]);
    let key = "hooks.kubevirt.io/hookSidecars";
    let (mut instance, mut machine) = (vmi(), vm());
    instance["metadata"]["annotations"] = json!({ key: "[]" });
    machine["spec"]["template"]["metadata"] = json!({ "annotations": { key: "[]" } });
    for mut object in [instance, machine] {
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call_under(Stage::Mutate, "a-user", request, &config);
        json_patch::patch(&mut object, &patch_of(&response)).expect("applies");
        let request = json!({ "operation": "CREATE", "object": object });
        let response = call_under(Stage::Validate, "a-user", request, &config);
        assert_eq!(response["allowed"], true, "{response}");
        assert_eq!(response["warnings"], Value::Null);
    }
}

#[test]
fn old_manifest_is_accepted_unchanged() {
    let config = config_from_legacy_map(&[("feature-gates", "HostDisk,LiveMigration")]);
    let mut object: Value = serde_saphyr::from_str(OLD_MANIFEST).expect("YAML");
    let written = object.clone();
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call_under(Stage::Mutate, "a-user", request, &config);
    json_patch::patch(&mut object, &patch_of(&response)).expect("applies");
    let request = json!({ "operation": "CREATE", "object": object });
    let response = call_under(Stage::Validate, "a-user", request, &config);
    assert_eq!(response["allowed"], true, "{response:#}");
    // Nothing that was set is changed, except the empty machine type.
    for pointer in [
        "/apiVersion",
        "/metadata/labels",
        "/spec/domain/cpu/model",
        "/spec/domain/cpu/cores",
        "/spec/domain/devices",
        "/spec/domain/resources",
        "/spec/networks",
        "/spec/terminationGracePeriodSeconds",
        "/spec/volumes",
    ] {
        assert_eq!(
            object.pointer(pointer),
            written.pointer(pointer),
            "{pointer}"
        );
    }
    assert_eq!(object["spec"]["domain"]["machine"]["type"], "q35");
    assert_eq!(object["spec"]["domain"]["memory"]["guest"], "2048M");
    assert_eq!(response["warnings"], Value::Null, "all of it is supported");
}

#[test]
fn unsupported_field_of_a_stored_vm_is_accepted_with_a_remedy() {
    let patch = json!({
        "domain": { "devices": { "interfaces": [{ "name": "a", "slirp": {} }] } },
        "networks": [{ "name": "a", "pod": {} }],
    });
    let mut object = vm();
    let spec = &mut object["spec"]["template"]["spec"];
    spec["domain"]["resources"] = json!({ "requests": { "memory": "128Mi" } });
    json_patch::merge(spec, &patch);
    let request = json!({ "operation": "UPDATE", "object": object, "oldObject": object });
    let response = call(Stage::Validate, "a-user", request);
    assert_eq!(response["allowed"], true, "{response:#}");
    let wanted = "accepted, but this version cannot run it yet: spec.template.spec.domain.devices.interfaces[0].slirp: \
                  use masquerade: {}, bridge: {} or passtBinding: {}";
    assert_eq!(response["warnings"], json!([wanted]));
}
