//! The virtual machines that the stories tell about: the tiny guest, with what a story changes.

use serde_json::{Value, json};

/// A VM under construction.
#[derive(Debug, Clone)]
pub struct Machine(Value);

/// The tiny guest on the pod network, with a cloud-init seed; it is kept running.
pub fn machine(name: &str) -> Machine {
    Machine(json!({
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

impl Machine {
    #[must_use]
    pub fn strategy(self, strategy: &str) -> Self {
        self.set("/spec/runStrategy", strategy)
    }

    /// The old way to say whether it runs.
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

    /// Replaces the value at a JSON pointer that is there already.
    #[must_use]
    pub fn set(mut self, pointer: &str, value: impl Into<Value>) -> Self {
        let place = self.0.pointer_mut(pointer);
        *place.unwrap_or_else(|| panic!("the manifest has {pointer}")) = value.into();
        self
    }

    pub fn manifest(&self) -> Vec<u8> {
        self.0.to_string().into_bytes()
    }
}
