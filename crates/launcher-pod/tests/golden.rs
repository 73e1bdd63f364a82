//! VMIs as data, pods as golden files.

#![expect(clippy::unwrap_used, reason = "tests")]

use kubevirt_api::VirtualMachineInstance;
use launcher_pod::{Acceleration, NodeLabels, PodError, Settings, pod};
use serde_json::{Value, json};

fn settings(acceleration: Acceleration) -> Settings {
    Settings::usual("ferrovirt/virt-launcher:devel", acceleration)
}

fn vmi() -> Value {
    json!({
        "metadata": {
            "name": "b1",
            "namespace": "default",
            "uid": "f741ae22-8952-4f7d-8511-7c2739f234d7",
            "labels": {"app": "web"},
            "annotations": {
                "kubectl.kubernetes.io/last-applied-configuration": "{}",
                "kubevirt.io/pci-topology-version": "v3",
            },
        },
        "spec": {
            "architecture": "amd64",
            "domain": {
                "cpu": {"cores": 1, "model": "host-model", "sockets": 1, "threads": 1},
                "devices": {
                    "disks": [{"disk": {"bus": "virtio"}, "name": "d"}],
                    "interfaces": [{"masquerade": {}, "name": "default",
                                    "ports": [{"port": 80, "name": "http"}]}],
                },
                "firmware": {"kernelBoot": {"container": {
                    "image": "localhost/guest:1", "kernelPath": "/boot/vmlinuz",
                    "imagePullPolicy": "Never",
                }}},
                "machine": {"type": "q35"},
                "memory": {"guest": "128Mi"},
            },
            "networks": [{"name": "default", "pod": {}}],
            "terminationGracePeriodSeconds": 0,
            "volumes": [
                {"cloudInitNoCloud": {"secretRef": {"name": "boot"},
                                      "networkDataSecretRef": {"name": "net"}}, "name": "seed"},
                {"containerDisk": {"image": "localhost/guest:1", "imagePullSecret": "pull",
                                   "imagePullPolicy": "IfNotPresent"}, "name": "d"},
                {"emptyDisk": {"capacity": "1Gi"}, "name": "scratch"},
            ],
        },
    })
}

fn render(object: &Value, settings: &Settings) -> Result<Value, PodError> {
    let vmi: VirtualMachineInstance = serde_json::from_value(object.clone()).unwrap();
    Ok(serde_json::to_value(pod(&vmi, settings)?).unwrap())
}

#[test]
fn emulated_guest_asks_for_no_kvm() {
    let pod = render(&vmi(), &settings(Acceleration::Emulation)).unwrap();
    insta::assert_yaml_snapshot!(pod);
}

#[test]
fn everything_a_user_may_say_about_the_pod_is_carried_over() {
    let mut object = vmi();
    let spec = &mut object["spec"];
    spec["hostname"] = json!("web");
    spec["subdomain"] = json!("site");
    spec["dnsPolicy"] = json!("None");
    spec["dnsConfig"] = json!({"nameservers": ["192.0.2.1"]});
    spec["schedulerName"] = json!("other");
    spec["priorityClassName"] = json!("high");
    spec["nodeSelector"] = json!({"disk": "fast"});
    spec["tolerations"] = json!([{"key": "only", "operator": "Exists"}]);
    spec["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]},
                              {"matchExpressions": [{"key": "b", "operator": "Exists"}]}],
    }}});
    spec["topologySpreadConstraints"] = json!([
        {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    ]);
    spec["readinessProbe"] =
        json!({"httpGet": {"port": 80, "path": "/"}, "initialDelaySeconds": 5, "periodSeconds": 3});
    spec["livenessProbe"] = json!({"tcpSocket": {"port": 22}});
    spec["terminationGracePeriodSeconds"] = json!(180);
    spec["domain"]["cpu"] = json!({
        "sockets": 2, "cores": 2, "threads": 1, "model": "Skylake-Server",
        "features": [{"name": "vmx"}, {"name": "svm", "policy": "forbid"}],
    });
    spec["domain"]["resources"] = json!({
        "requests": {"memory": "1Gi", "cpu": "500m", "example.com/widget": "1"},
        "limits": {"memory": "2Gi", "ephemeral-storage": "1G"},
    });
    spec["domain"]["devices"]["autoattachGraphicsDevice"] = json!(false);
    let settings = Settings {
        node_labels: NodeLabels::Present,
        node_selectors: [("pool".to_owned(), "vms".to_owned())].into(),
        image_pull_secrets: vec!["ours".into()],
        ..settings(Acceleration::Kvm)
    };
    insta::assert_yaml_snapshot!(render(&object, &settings).unwrap());
}

#[test]
fn what_a_pod_cannot_give_is_named() {
    let cases = [
        (
            "/spec/volumes/2",
            json!({"name": "x", "hostDisk": {"path": "/a", "type": "Disk"}}),
            "spec.volumes[2].hostDisk: not supported yet",
        ),
        (
            "/spec/volumes/2",
            json!({"name": "private", "containerDisk": {"image": "a"}}),
            "spec.volumes: the name \"private\" is used twice or belongs to the system",
        ),
        (
            "/spec/domain/memory",
            json!({}),
            "spec.domain.memory.guest: needs a value",
        ),
    ];
    for (path, value, message) in cases {
        let mut object = vmi();
        *object.pointer_mut(path).unwrap() = value;
        let error = render(&object, &settings(Acceleration::Kvm)).unwrap_err();
        assert_eq!(error.to_string(), message);
    }
    let mut object = vmi();
    object["spec"]["livenessProbe"] = json!({"guestAgentPing": {}});
    let error = render(&object, &settings(Acceleration::Kvm)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "spec.livenessProbe.guestAgentPing: not supported yet"
    );
}
