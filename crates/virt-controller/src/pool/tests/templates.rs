//! Revisions and VMs as they are written.

use super::*;
use crate::pool::template::{change, member, member_name, ordinal, pool_of, revision_name};

fn spec() -> Value {
    let volumes = json!([
        {"name": "root", "dataVolume": {"name": "root"}},
        {"name": "same", "persistentVolumeClaim": {"claimName": "root"}},
        {"name": "shared", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "config", "configMap": {"name": "config"}},
        {"name": "secret", "secret": {"secretName": "secret"}},
        {"name": "answers", "sysprep": {"configMap": {"name": "answers"}}},
        {"name": "keys", "sysprep": {"secret": {"name": "keys"}}},
        {"name": "seed", "cloudInitNoCloud": {"secretRef": {"name": "user"},
                                              "networkDataSecretRef": {"name": "net"}}},
        {"name": "drive", "cloudInitConfigDrive": {"secretRef": {"name": "user"}}},
    ]);
    json!({
        "virtualMachineTemplate": {
            "metadata": {"labels": {"app": "web"}, "annotations": {"note": "a"}, "name": "ignored"},
            "spec": {
                "runStrategy": "Always",
                "unknown": 1,
                "dataVolumeTemplates": [{"metadata": {"name": "root"}, "spec": {"source": {}}}],
                "template": {"metadata": {"labels": {"app": "web"}},
                             "spec": {"domain": {"devices": {}}, "volumes": volumes}},
            },
        },
    })
}

#[test]
fn names_have_numbers() {
    let table = [
        ("web-0", Some(0)),
        ("web-12", Some(12)),
        ("web-012", None),
        ("web-+1", None),
        ("web-", None),
        ("web", None),
        ("web2-1", None),
        ("web-1-1", None),
        ("web-99999999999", None),
    ];
    for (name, number) in table {
        assert_eq!(ordinal("web", name), number, "{name}");
    }
    assert_eq!(member_name("web", 3), "web-3");
    for (name, pool) in [
        ("web-0", Some("web")),
        ("a-b-12", Some("a-b")),
        ("web-01", None),
        ("web", None),
    ] {
        assert_eq!(pool_of(name), pool, "{name}");
    }
    assert_eq!(revision_name(&parsed(pool(json!({})))), "web-2");
}

#[test]
fn vm_is_its_template_with_names_of_its_own() {
    let vm = member(&parsed(pool(spec())), 3);
    let metadata = json!({
        "labels": {"app": "web", REVISION: "web-2"},
        "annotations": {"note": "a"},
        "name": "web-3",
        "namespace": "default",
        "finalizers": [FINALIZER],
        "ownerReferences": [{
            "apiVersion": "pool.kubevirt.io/v1beta1", "kind": "VirtualMachinePool", "name": "web",
            "uid": "pool-uid", "controller": true, "blockOwnerDeletion": true,
        }],
    });
    assert_eq!(vm["metadata"], metadata);
    assert_eq!(
        (&vm["kind"], &vm["apiVersion"]),
        (&json!("VirtualMachine"), &json!("kubevirt.io/v1"))
    );
    assert_eq!(vm["spec"]["unknown"], 1);
    assert_eq!(
        vm["spec"]["dataVolumeTemplates"][0]["metadata"]["name"],
        "root-3"
    );
    let inner = &vm["spec"]["template"];
    assert_eq!(
        inner["metadata"]["labels"],
        json!({"app": "web", REVISION: "web-2"})
    );
    let volumes = &inner["spec"]["volumes"];
    assert_eq!(volumes[0]["dataVolume"]["name"], "root-3");
    assert_eq!(volumes[1]["persistentVolumeClaim"]["claimName"], "root-3");
    assert_eq!(volumes[2]["persistentVolumeClaim"]["claimName"], "shared");
    assert_eq!(volumes[3]["configMap"]["name"], "config");
    assert_eq!(volumes[4]["secret"]["secretName"], "secret");
}

#[test]
fn config_maps_and_secrets_get_numbers_on_request() {
    let names = |naming: Value| {
        let mut spec = spec();
        spec["nameGeneration"] = naming;
        let vm = member(&parsed(pool(spec)), 3);
        let volumes = &vm["spec"]["template"]["spec"]["volumes"];
        let paths = [
            "/3/configMap/name",
            "/4/secret/secretName",
            "/5/sysprep/configMap/name",
            "/6/sysprep/secret/name",
            "/7/cloudInitNoCloud/secretRef/name",
            "/7/cloudInitNoCloud/networkDataSecretRef/name",
            "/8/cloudInitConfigDrive/secretRef/name",
        ];
        paths.map(|path| volumes.pointer(path).unwrap().as_str().unwrap().to_owned())
    };
    assert_eq!(
        names(json!({})),
        ["config", "secret", "answers", "keys", "user", "net", "user"]
    );
    assert_eq!(
        names(json!({"appendIndexToConfigMapRefs": true})),
        [
            "config-3",
            "secret",
            "answers-3",
            "keys",
            "user",
            "net",
            "user"
        ]
    );
    assert_eq!(
        names(json!({"appendIndexToSecretRefs": true})),
        [
            "config", "secret-3", "answers", "keys-3", "user-3", "net-3", "user-3"
        ]
    );
}

#[test]
fn templates_of_any_shape_are_rendered() {
    let odd = [
        json!(null),
        json!("text"),
        json!({"metadata": "text", "spec": "text"}),
        json!({"metadata": {"labels": "text", "annotations": [1]}, "spec": {"template": [1]}}),
        json!({"spec": {"dataVolumeTemplates": [1, {"metadata": {"name": 1}}],
                        "template": {"metadata": 1, "spec": {"volumes": [1, {"secret": 1}]}}}}),
    ];
    for template in odd {
        let pool = parsed(pool(json!({"virtualMachineTemplate": template})));
        let vm = member(&pool, 0);
        assert_eq!(vm["metadata"]["labels"][REVISION], "web-2");
        assert_eq!(
            vm["spec"]["template"]["metadata"]["labels"][REVISION],
            "web-2"
        );
    }
}

/// Applies the change to a VM of the revision web-1.
fn changed(before: &Value, after: &Value, vm: &Value) -> Value {
    let pool = parsed(pool(json!({"virtualMachineTemplate": after})));
    let (_, before) = revision("web-1", before);
    let parsed: Vm = serde_json::from_value(vm.clone()).unwrap();
    let patch = change(&pool, &parsed, Some(&*before), 0);
    assert_eq!(patch["metadata"]["resourceVersion"], "7");
    let mut merged = vm.clone();
    json_patch::merge(&mut merged, &patch);
    merged
}

#[test]
fn changed_vm_keeps_what_the_template_never_set() {
    let mut before = vm_template("1Gi");
    before["metadata"]["annotations"] = json!({"old": "1"});
    before["spec"]["template"]["metadata"] = json!({"annotations": {"inner": "1"}});
    before["spec"]["template"]["spec"]["domain"]["firmware"] = json!({"bootloader": {"bios": {}}});
    before["spec"]["template"]["spec"]["nodeSelector"] = json!({"zone": "a"});
    let mut after = vm_template("2Gi");
    after["spec"]["template"]["spec"]["hostname"] = "web".into();
    let vm = json!({
        "metadata": {
            "name": "web-0", "namespace": "default", "resourceVersion": "7",
            "labels": {"app": "web", REVISION: "web-1", "mine": "1"},
            "annotations": {"old": "1", "theirs": "1"},
        },
        "spec": {
            "runStrategy": "Halted",
            "template": {
                "metadata": {"labels": {REVISION: "web-1"},
                             "annotations": {"inner": "1", "topology": "3"}},
                "spec": {
                    "architecture": "amd64",
                    "nodeSelector": {"zone": "a"},
                    "domain": {
                        "memory": {"guest": "1Gi"}, "machine": {"type": "q35"},
                        "firmware": {"uuid": "u", "serial": "s", "bootloader": {"bios": {}}},
                    },
                },
            },
        },
    });
    let merged = changed(&before, &after, &vm);
    let metadata = &merged["metadata"];
    assert_eq!(
        metadata["labels"],
        json!({"app": "web", REVISION: "web-2", "mine": "1"})
    );
    assert_eq!(metadata["annotations"], json!({"theirs": "1"}));
    let expected = json!({
        "runStrategy": "Halted",
        "template": {
            "metadata": {"labels": {REVISION: "web-2"}, "annotations": {"topology": "3"}},
            "spec": {
                "architecture": "amd64",
                "hostname": "web",
                "domain": {
                    "memory": {"guest": "2Gi"}, "machine": {"type": "q35"},
                    "firmware": {"uuid": "u", "serial": "s"},
                },
            },
        },
    });
    assert_eq!(merged["spec"], expected);
}

#[test]
fn changed_vm_keeps_what_others_have_changed() {
    let volume = |name: &str, claim: &str| json!({"name": name, "dataVolume": {"name": claim}});
    let mut before = vm_template("1Gi");
    before["spec"]["instancetype"] = json!({"name": "small"});
    before["spec"]["dataVolumeTemplates"] = json!([{"metadata": {"name": "root"}}]);
    before["spec"]["template"]["spec"]["volumes"] = json!([volume("root", "root")]);
    let mut after = before.clone();
    after["spec"]["template"]["spec"]["hostname"] = "web".into();
    // It was restored, got another volume, and its instance type was expanded.
    let mut vm = vm(0);
    vm["metadata"]["resourceVersion"] = "7".into();
    vm["spec"]["dataVolumeTemplates"] = json!([{"metadata": {"name": "restored"}}]);
    vm["spec"]["template"]["spec"]["volumes"] =
        json!([volume("root", "restored"), volume("plugged", "plugged")]);
    let mut expected = vm["spec"].clone();
    expected["template"]["spec"]["hostname"] = "web".into();
    assert_eq!(changed(&before, &after, &vm)["spec"], expected);

    // Without the revision it is brought to the whole template.
    let pool = parsed(pool(json!({"virtualMachineTemplate": after})));
    let parsed: Vm = serde_json::from_value(vm).unwrap();
    let patch = change(&pool, &parsed, None, 0);
    let volumes = &patch["spec"]["template"]["spec"]["volumes"];
    assert_eq!(*volumes, json!([volume("root", "root-0")]));
    assert_eq!(patch["spec"]["instancetype"], json!({"name": "small"}));
}

#[test]
fn changed_vm_names_the_revision_even_if_nothing_else_differs() {
    let template = vm_template("1Gi");
    let mut vm = vm(0);
    vm["metadata"]["resourceVersion"] = "7".into();
    vm["metadata"]["labels"][REVISION] = "web-1".into();
    vm["spec"]["template"]["metadata"]["labels"] = json!({});
    let merged = changed(&template, &template, &vm);
    assert_eq!(merged["metadata"]["labels"][REVISION], "web-2");
    let inner = &merged["spec"]["template"];
    assert_eq!(inner["metadata"]["labels"], json!({REVISION: "web-2"}));
}

#[test]
fn changed_vm_keeps_its_identity_against_the_template() {
    let mut after = vm_template("1Gi");
    after["spec"]["template"]["spec"]["domain"]["firmware"] =
        json!({"uuid": "other", "serial": "other", "bootloader": {"efi": {}}});
    let mut vm = vm(0);
    vm["metadata"]["resourceVersion"] = "7".into();
    vm["spec"]["template"]["spec"] = json!({"domain": {"firmware": {"uuid": "u", "serial": ""}}});
    let merged = changed(&vm_template("1Gi"), &after, &vm);
    assert_eq!(
        merged["spec"]["template"]["spec"]["domain"]["firmware"],
        json!({"uuid": "u", "serial": "other", "bootloader": {"efi": {}}})
    );
}

#[test]
fn revision_holds_the_spec() {
    let made = template::revision(&parsed(pool(
        json!({"replicas": 4, "maxUnavailable": "25%"}),
    )));
    assert_eq!(made["metadata"]["name"], "web-2");
    assert_eq!(made["metadata"]["labels"], json!({REVISION: "web-2"}));
    assert_eq!(made["metadata"]["ownerReferences"][0]["uid"], "pool-uid");
    assert_eq!(made["revision"], 2);
    let data = json!({
        "replicas": 4,
        "maxUnavailable": "25%",
        "selector": {"matchLabels": {"app": "web"}},
        "virtualMachineTemplate": vm_template("1Gi"),
    });
    assert_eq!(made["data"], data);
    let stored: Revision = serde_json::from_value(made).unwrap();
    assert_eq!(*stored.template(), vm_template("1Gi"));
}
