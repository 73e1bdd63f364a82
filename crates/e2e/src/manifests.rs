//! Manifests of test VMs: the tiny guest with modifications.

use serde_json::{Value, json};

/// A builder of VM manifests.
#[derive(Debug, Clone)]
pub struct VmManifest(Value);

/// The tiny guest on the pod network with a cloud-init seed and run strategy `Always`.
pub fn tiny_vm(name: &str) -> VmManifest {
    VmManifest(json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachine",
        "metadata": {"name": name},
        "spec": {
            "runStrategy": "Always",
            "template": {
                "metadata": {"labels": {"kubevirt.io/vm": name}},
                "spec": {
                    "terminationGracePeriodSeconds": 10,
                    "domain": {
                        "memory": {"guest": "96Mi"},
                        "devices": {
                            "disks": [
                                {"name": "root", "disk": {"bus": "virtio"}},
                                {"name": "seed", "disk": {"bus": "virtio"}},
                            ],
                            "interfaces": [{"name": "default", "masquerade": {}}],
                            "rng": {},
                        },
                    },
                    "networks": [{"name": "default", "pod": {}}],
                    "volumes": [
                        {"name": "root", "containerDisk": {"image": "ferrovirt/guest-tiny:devel"}},
                        {"name": "seed", "cloudInitNoCloud": {"userData": "#!/bin/sh\necho seeded\n"}},
                    ],
                },
            },
        },
    }))
}

/// A claim for 64 MiB in the default storage class.
pub fn claim(name: &str, mode: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "volumeMode": mode,
            "resources": {"requests": {"storage": "64Mi"}},
        },
    })
}

/// A replica set of tiny guests.
pub fn replica_set(name: &str, replicas: u32) -> Value {
    let vm = tiny_vm(name);
    let template = &vm.0["spec"]["template"];
    json!({
        "apiVersion": "kubevirt.io/v1",
        "kind": "VirtualMachineInstanceReplicaSet",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": template["metadata"]["labels"]},
            "template": template,
        },
    })
}

/// A pool of tiny VMs.
pub fn pool(name: &str, replicas: u32) -> Value {
    let vm = tiny_vm(name);
    let labels = &vm.0["spec"]["template"]["metadata"]["labels"];
    json!({
        "apiVersion": "pool.kubevirt.io/v1beta1",
        "kind": "VirtualMachinePool",
        "metadata": {"name": name},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": labels},
            "virtualMachineTemplate": {
                "metadata": {"labels": labels},
                "spec": vm.0["spec"],
            },
        },
    })
}

impl VmManifest {
    #[must_use]
    pub fn strategy(self, strategy: &str) -> Self {
        self.set("/spec/runStrategy", strategy)
    }

    /// Sets the deprecated field `running`.
    #[must_use]
    pub fn running(mut self, is_running: impl Into<Value>) -> Self {
        if let Some(spec) = self.0["spec"].as_object_mut() {
            spec.remove("runStrategy");
            spec.insert("running".to_owned(), is_running.into());
        }
        self
    }

    #[must_use]
    pub fn user_data(self, text: &str) -> Self {
        self.set(
            "/spec/template/spec/volumes/1/cloudInitNoCloud/userData",
            text,
        )
    }

    #[must_use]
    pub fn image(self, reference: &str) -> Self {
        self.set(
            "/spec/template/spec/volumes/0/containerDisk/image",
            reference,
        )
    }

    /// Replaces the existing value at a JSON pointer.
    #[must_use]
    pub fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let place = self.0.pointer_mut(pointer);
        *place.unwrap_or_else(|| panic!("the manifest has {pointer}")) = value.into();
        self
    }

    /// Adds a field to the template's spec.
    #[must_use]
    pub fn spec(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0["spec"]["template"]["spec"][name] = value.into();
        self
    }

    /// Adds an annotation to the VMI.
    #[must_use]
    pub fn annotation(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0["spec"]["template"]["metadata"]["annotations"][name] = value.into();
        self
    }

    /// Adds a field to the domain.
    #[must_use]
    pub fn domain(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0["spec"]["template"]["spec"]["domain"][name] = value.into();
        self
    }

    /// Adds a field to the devices.
    #[must_use]
    pub fn device(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.0["spec"]["template"]["spec"]["domain"]["devices"][name] = value.into();
        self
    }

    /// Adds a disk; the first added one is `vdc`.
    #[must_use]
    pub fn disk(self, volume: &Value) -> Self {
        self.disk_as(&json!({"name": "more", "disk": {"bus": "virtio"}}), volume)
    }

    /// Adds a disk with the given definition.
    #[must_use]
    pub fn disk_as(mut self, disk: &Value, volume: &Value) -> Self {
        let spec = &mut self.0["spec"]["template"]["spec"];
        let mut named = volume.clone();
        named["name"] = disk["name"].clone();
        for (list, one) in [("/domain/devices/disks", disk.clone()), ("/volumes", named)] {
            let list = spec.pointer_mut(list).and_then(Value::as_array_mut);
            list.expect("the manifest has disks and volumes").push(one);
        }
        self
    }

    /// Adds a volume that is shared as a filesystem of its name.
    #[must_use]
    pub fn filesystem(mut self, volume: &Value) -> Self {
        let spec = &mut self.0["spec"]["template"]["spec"];
        let volumes = spec["volumes"].as_array_mut();
        volumes
            .expect("the manifest has volumes")
            .push(volume.clone());
        let shared = json!({"name": volume["name"], "virtiofs": {}});
        match &mut spec["domain"]["devices"]["filesystems"] {
            Value::Array(all) => all.push(shared),
            none => *none = json!([shared]),
        }
        self
    }

    pub fn into_object(self) -> Value {
        self.0
    }

    pub fn manifest(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }
}
