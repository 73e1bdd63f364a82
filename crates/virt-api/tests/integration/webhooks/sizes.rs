//! What VMs and instances refer to is looked up: instance types, preferences, revisions of them,
//! volumes to infer from, data sources, presets.

use super::*;

const SIZES: &str = "instancetype.kubevirt.io/v1beta1";

fn cluster(kind: &str, name: &str, spec: Value) -> Value {
    let mut object = object(SIZES, kind, name, spec);
    object["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("namespace");
    object
}

/// A VM whose template has no CPU and memory.
fn vm_with(name: &str, spec: Value) -> Value {
    let mut template = guest();
    template["domain"].as_object_mut().unwrap().remove("memory");
    let mut vm = object(
        "kubevirt.io/v1",
        "VirtualMachine",
        name,
        json!({ "runStrategy": "Halted", "template": { "spec": template } }),
    );
    json_merge(&mut vm["spec"], spec);
    vm
}

fn json_merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                json_merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

fn size(vcpus: u32, memory: &str) -> Value {
    json!({ "cpu": { "guest": vcpus }, "memory": { "guest": memory } })
}

#[tokio::test]
async fn instance_type_is_found_by_every_name_of_its_kind() {
    let environment = Environment::new().await;
    let small = "VirtualMachineClusterInstancetype";
    environment
        .create(&cluster(small, "small", size(2, "1Gi")))
        .await
        .unwrap();
    let own = object(SIZES, "VirtualMachineInstancetype", "own", size(2, "1Gi"));
    environment.create(&own).await.unwrap();
    let sized = |name: &str, kind: &str| json!({ "instancetype": { "name": name, "kind": kind } });
    for (i, (name, kind)) in [
        ("small", ""),
        ("small", small),
        ("small", "virtualmachineclusterinstancetypes"),
        ("own", "virtualMachineInstancetype"),
        // A missing instance type is accepted: it may be created before the start.
        ("none", small),
    ]
    .into_iter()
    .enumerate()
    {
        let vm = vm_with(&format!("good{i}"), sized(name, kind));
        environment.create(&vm).await.unwrap();
        if name == "none" {
            continue;
        }
        let mut vm = vm_with(&format!("bad{i}"), sized(name, kind));
        vm["spec"]["template"]["spec"]["domain"]["cpu"] = json!({ "sockets": 2 });
        let (code, message, field) = refused(environment.create(&vm).await);
        assert!(
            message.contains("conflicts with selected instance type"),
            "{message}"
        );
        let wanted = "spec.template.spec.domain.cpu.sockets";
        assert_eq!((code, &*field), (422, wanted), "{name} {kind}");
    }
    environment.end().await;
}

#[tokio::test]
async fn template_is_checked_as_the_resulting_vmi() {
    let environment = Environment::new().await;
    environment
        .create(&cluster(
            "VirtualMachineClusterInstancetype",
            "small",
            size(2, "1Gi"),
        ))
        .await
        .unwrap();
    let windows = json!({
        "features": { "preferredSmm": { "enabled": true } },
        "firmware": { "preferredEfi": { "secureBoot": true } },
        "requirements": { "cpu": { "guest": 4 } },
        "machine": { "preferredMachineType": "pc-q35-9.0" },
        "preferredArchitecture": "amd64",
    });
    let preference = "VirtualMachinePreference";
    let mut lenient = windows.clone();
    lenient.as_object_mut().unwrap().remove("requirements");
    environment
        .create(&object(SIZES, preference, "strict", windows))
        .await
        .unwrap();
    environment
        .create(&object(SIZES, preference, "lenient", lenient))
        .await
        .unwrap();
    let chosen = |name: &str| {
        json!({
            "instancetype": { "name": "small" }, "preference": { "name": name, "kind": preference },
        })
    };
    let (code, message, field) = refused(environment.create(&vm_with("a", chosen("strict"))).await);
    assert_eq!((code, &*field), (422, "spec.instancetype"), "{message}");
    // Tools search for these words.
    let words = "failure checking preference requirements: insufficient CPU resources";
    assert!(message.contains(words), "{message}");
    let made = environment
        .create(&vm_with("b", chosen("lenient")))
        .await
        .unwrap();
    // The webhook of the VM adds only the defaults that it needs.
    let template = &made.data["spec"]["template"]["spec"];
    assert_eq!(template["domain"]["machine"]["type"], "pc-q35-9.0");
    assert_eq!(template["domain"]["firmware"]["bootloader"], Value::Null);
    // Without the preference, secure boot has no SMM.
    let mut vm = vm_with("c", json!({ "instancetype": { "name": "small" } }));
    vm["spec"]["template"]["spec"]["domain"]["firmware"] = json!({ "bootloader": { "efi": {} } });
    let (code, message, _) = refused(environment.create(&vm).await);
    assert_eq!(code, 422, "{message}");
    assert!(message.contains("secureBoot"), "{message}");
    environment.end().await;
}

#[tokio::test]
async fn revision_takes_precedence_over_the_object() {
    let environment = Environment::new().await;
    let kind = "VirtualMachineClusterInstancetype";
    environment
        .create(&cluster(kind, "small", size(3, "1Gi")))
        .await
        .unwrap();
    let spread = json!({ "cpu": { "preferredCPUTopology": "spread" } });
    environment
        .create(&cluster(
            "VirtualMachineClusterPreference",
            "spread",
            spread,
        ))
        .await
        .unwrap();
    let revision = json!({
        "apiVersion": "apps/v1", "kind": "ControllerRevision",
        "metadata": { "name": "before", "namespace": NAMESPACE }, "revision": 0,
        "data": { "apiVersion": SIZES, "kind": kind, "metadata": { "name": "small" }, "spec": size(4, "1Gi") },
    });
    environment.create(&revision).await.unwrap();
    let chosen = |revision: &str| {
        json!({
            "instancetype": { "name": "small", "revisionName": revision }, "preference": { "name": "spread" },
        })
    };
    let (code, message, _) = refused(environment.create(&vm_with("a", chosen(""))).await);
    assert_eq!(code, 422);
    assert!(message.contains("does not divide 3"), "{message}");
    environment
        .create(&vm_with("b", chosen("before")))
        .await
        .unwrap();
    environment.end().await;
}

#[tokio::test]
async fn size_is_inferred_from_the_labels_of_a_volume() {
    let environment = Environment::new().await;
    let labels = json!({
        "instancetype.kubevirt.io/default-instancetype": "small",
        "instancetype.kubevirt.io/default-preference": "linux",
        "instancetype.kubevirt.io/default-preference-kind": "VirtualMachinePreference",
    });
    let claim = |name: &str, labels: Value| {
        let spec = json!({
            "accessModes": ["ReadWriteOnce"], "resources": { "requests": { "storage": "1Gi" } },
        });
        let mut claim = object("v1", "PersistentVolumeClaim", name, spec);
        claim["metadata"]["labels"] = labels;
        claim
    };
    environment
        .create(&claim("labelled", labels))
        .await
        .unwrap();
    environment
        .create(&claim("plain", json!({})))
        .await
        .unwrap();
    let infer = |name: &str, claim: &str, policy: Option<&str>| {
        let mut matcher = json!({ "inferFromVolume": "root" });
        if let Some(policy) = policy {
            matcher["inferFromVolumeFailurePolicy"] = json!(policy);
        }
        let mut vm = vm_with(
            name,
            json!({ "instancetype": matcher, "preference": matcher }),
        );
        vm["spec"]["template"]["spec"]["volumes"] =
            json!([{ "name": "root", "persistentVolumeClaim": { "claimName": claim } }]);
        vm["spec"]["template"]["spec"]["domain"]["memory"] = json!({ "guest": "128Mi" });
        vm
    };
    let memory =
        |vm: &DynamicObject| vm.data["spec"]["template"]["spec"]["domain"]["memory"].clone();

    let made = environment
        .create(&infer("a", "labelled", Some("Ignore")))
        .await
        .unwrap();
    assert_eq!(
        made.data["spec"]["instancetype"],
        json!({ "name": "small" })
    );
    let linux = json!({ "name": "linux", "kind": "VirtualMachinePreference" });
    assert_eq!(made.data["spec"]["preference"], linux);
    assert_eq!(memory(&made), Value::Null);

    let made = environment
        .create(&infer("b", "plain", Some("Ignore")))
        .await
        .unwrap();
    assert_eq!(made.data["spec"]["instancetype"], Value::Null);
    assert_eq!(memory(&made), json!({ "guest": "128Mi" }));

    for (claim, policy, expected) in [
        ("plain", None, "has no label"),
        ("plain", Some("Reject"), "has no label"),
        ("none", Some("Ignore"), "PVC default/none does not exist"),
    ] {
        let (code, message, _) = refused(environment.create(&infer("c", claim, policy)).await);
        assert_eq!(code, 400, "{message}");
        assert!(message.contains(expected), "{message}");
    }
    environment.end().await;
}

#[tokio::test]
async fn architecture_is_inferred_over_one_other_data_source() {
    let environment = Environment::new().await;
    let definition = json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": { "name": "datasources.cdi.kubevirt.io" },
        "spec": {
            "group": "cdi.kubevirt.io", "scope": "Namespaced",
            "names": { "kind": "DataSource", "plural": "datasources" },
            "versions": [{ "name": "v1beta1", "served": true, "storage": true, "schema": {
                "openAPIV3Schema": { "type": "object", "x-kubernetes-preserve-unknown-fields": true },
            } }],
        },
    });
    environment.create(&definition).await.unwrap();
    let source = |name: &str, labels: Value, source: Value| {
        let spec = json!({ "source": source });
        let mut object = object("cdi.kubevirt.io/v1beta1", "DataSource", name, spec);
        object["metadata"]["labels"] = labels;
        object
    };
    let arm = json!({ "template.kubevirt.io/architecture": "arm64" });
    let behind = |name: &str| json!({ "dataSource": { "namespace": NAMESPACE, "name": name } });
    for one in [
        source("arm", arm, json!({})),
        source("to-arm", json!({}), behind("arm")),
        source("to-to-arm", json!({}), behind("to-arm")),
    ] {
        environment.create(&one).await.unwrap();
    }
    for (name, wanted) in [
        ("arm", "arm64"),
        ("to-arm", "arm64"),
        ("to-to-arm", "amd64"),
        ("none", "amd64"),
    ] {
        let mut vm = vm_with(
            name,
            json!({ "dataVolumeTemplates": [{
            "metadata": { "name": "d" },
            "spec": { "storage": {}, "sourceRef": { "kind": "DataSource", "name": name } },
        }] }),
        );
        let template = &mut vm["spec"]["template"]["spec"];
        template["volumes"] = json!([{ "name": "root", "dataVolume": { "name": "d" } }]);
        template["domain"]["memory"] = json!({ "guest": "1Gi" });
        let made = environment.create(&vm).await.unwrap();
        assert_eq!(
            made.data["spec"]["template"]["spec"]["architecture"], wanted,
            "{name}"
        );
    }
    environment.end().await;
}

#[tokio::test]
async fn presets_are_merged_into_matching_vmis() {
    let environment = Environment::new().await;
    let spec = json!({
        "selector": { "matchLabels": { "size": "small" } },
        "domain": { "cpu": { "cores": 2 }, "devices": {} },
    });
    let preset = object(
        "kubevirt.io/v1",
        "VirtualMachineInstancePreset",
        "small",
        spec,
    );
    environment.create(&preset).await.unwrap();
    let instance = |name: &str, domain: Value| {
        let mut vmi = object("kubevirt.io/v1", "VirtualMachineInstance", name, guest());
        vmi["metadata"]["labels"] = json!({ "size": "small" });
        json_merge(&mut vmi["spec"]["domain"], domain);
        vmi
    };
    let made = environment.create(&instance("a", json!({}))).await.unwrap();
    assert_eq!(made.data["spec"]["domain"]["cpu"]["cores"], 2);
    let annotations = made.metadata.annotations.unwrap();
    assert_eq!(
        annotations["virtualmachinepreset.kubevirt.io/small"],
        "kubevirt.io/v1"
    );
    let other = instance("b", json!({ "cpu": { "cores": 3 } }));
    let made = environment.create(&other).await.unwrap();
    assert_eq!(made.data["spec"]["domain"]["cpu"]["cores"], 3);
    let annotations = made.metadata.annotations.unwrap();
    assert!(!annotations.contains_key("virtualmachinepreset.kubevirt.io/small"));
    let mut excluded = instance("c", json!({}));
    let exclude = "virtualmachineinstancepresets.admission.kubevirt.io/exclude";
    excluded["metadata"]["annotations"] = json!({ exclude: "true" });
    let made = environment.create(&excluded).await.unwrap();
    assert_ne!(made.data["spec"]["domain"]["cpu"]["cores"], 2);
    environment.end().await;
}

/// Its pod gets them from the API server. In the VMI they would count as the user's own, and replace the requests that
/// follow from the guest.
#[tokio::test]
async fn default_resources_of_a_namespace_stay_out_of_vmis() {
    let environment = Environment::new().await;
    let spec = json!({"limits": [{
        "type": "Container",
        "default": {"memory": "512Mi", "cpu": "4"}, "defaultRequest": {"cpu": "500m"},
    }]});
    let range = object("v1", "LimitRange", "defaults", spec);
    environment.create(&range).await.unwrap();
    let mut vmi = object("kubevirt.io/v1", "VirtualMachineInstance", "plain", guest());
    vmi["spec"]["domain"]["memory"] = json!({"guest": "1Gi"});
    let made = environment.create(&vmi).await.unwrap();
    let resources = &made.data["spec"]["domain"]["resources"];
    assert_eq!(resources["limits"], Value::Null, "{resources}");
    assert_ne!(resources["requests"]["cpu"], "500m", "{resources}");
    environment.end().await;
}
