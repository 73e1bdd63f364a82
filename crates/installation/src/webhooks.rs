//! The table of webhooks.

use serde_json::{Value, json};

/// The service that API servers call.
pub const SERVICE: &str = "virt-api";

/// One webhook, with the fields of its registration.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Webhook {
    pub name: &'static str,
    pub path: &'static str,
    pub group: &'static str,
    pub versions: &'static [&'static str],
    pub resources: &'static [&'static str],
    pub operations: &'static [&'static str],
    /// Limits the webhook to objects whose name has this prefix.
    pub prefix: Option<&'static str>,
    /// Whether a review changes other objects.
    pub side_effects: bool,
}

impl Webhook {
    /// Its entry in a webhook configuration, without the authority that signs virt-api's certificate.
    pub fn registration(&self, namespace: &str) -> Value {
        let mut one = json!({
            "name": self.name,
            "clientConfig": {
                "service": {
                    "name": SERVICE, "namespace": namespace, "path": self.path, "port": 443,
                },
            },
            "rules": [{
                "apiGroups": [self.group], "apiVersions": self.versions,
                "operations": self.operations, "resources": self.resources,
                "scope": "*",
            }],
            "sideEffects": if self.side_effects { "NoneOnDryRun" } else { "None" },
            "failurePolicy": "Fail", "timeoutSeconds": 10,
            "matchPolicy": "Equivalent", "admissionReviewVersions": ["v1"],
        });
        if let Some(prefix) = self.prefix {
            let expression = format!("request.name.startsWith('{prefix}')");
            one["matchConditions"] = json!([{ "name": "only-ours", "expression": expression }]);
        }
        one
    }
}

const WRITES: &[&str] = &["CREATE", "UPDATE"];
const CREATE: &[&str] = &["CREATE"];
const UPDATE: &[&str] = &["UPDATE"];
const KUBEVIRT: &str = "kubevirt.io";
const BOTH: &[&str] = &["v1", "v1alpha3"];

/// Mutating webhooks, which set defaults.
pub const MUTATE: &[Webhook] = &[
    of_kubevirt(
        "virtualmachines-mutator.kubevirt.io",
        "/virtualmachines-mutate",
        WRITES,
        &["virtualmachines"],
    ),
    of_kubevirt(
        "virtualmachineinstances-mutator.kubevirt.io",
        "/virtualmachineinstances-mutate",
        WRITES,
        &["virtualmachineinstances"],
    ),
    of_kubevirt(
        "migrations-mutator.kubevirt.io",
        "/migration-mutate-create",
        CREATE,
        &["virtualmachineinstancemigrations"],
    ),
    Webhook {
        operations: CREATE,
        ..of_group(
            "virtualmachineclones-mutator.kubevirt.io",
            "/vm-clone-mutate-create",
            "clone.kubevirt.io",
            &["v1beta1"],
            &["virtualmachineclones"],
        )
    },
];

/// Validating webhooks.
pub const VALIDATE: &[Webhook] = &[
    of_kubevirt(
        "virtualmachine-validator.kubevirt.io",
        "/virtualmachines-validate",
        WRITES,
        &["virtualmachines"],
    ),
    of_kubevirt(
        "virtualmachineinstances-create-validator.kubevirt.io",
        "/virtualmachineinstances-validate-create",
        CREATE,
        &["virtualmachineinstances"],
    ),
    of_kubevirt(
        "virtualmachineinstances-update-validator.kubevirt.io",
        "/virtualmachineinstances-validate-update",
        UPDATE,
        &["virtualmachineinstances"],
    ),
    of_kubevirt(
        "virtualmachinereplicaset-validator.kubevirt.io",
        "/virtualmachinereplicaset-validate",
        WRITES,
        &["virtualmachineinstancereplicasets"],
    ),
    of_kubevirt(
        "virtualmachinepreset-validator.kubevirt.io",
        "/vmipreset-validate",
        WRITES,
        &["virtualmachineinstancepresets"],
    ),
    of_kubevirt(
        "migration-create-validator.kubevirt.io",
        "/migration-validate-create",
        CREATE,
        &["virtualmachineinstancemigrations"],
    ),
    of_kubevirt(
        "migration-update-validator.kubevirt.io",
        "/migration-validate-update",
        UPDATE,
        &["virtualmachineinstancemigrations"],
    ),
    of_kubevirt(
        "kubevirt-crd-status-validator.kubevirt.io",
        "/status-validate",
        WRITES,
        &[
            "virtualmachines/status",
            "virtualmachineinstancereplicasets/status",
            "virtualmachineinstancemigrations/status",
        ],
    ),
    of_kubevirt(
        "kubevirt-create-validator.kubevirt.io",
        "/kubevirt-validate-create",
        CREATE,
        &["kubevirts"],
    ),
    of_kubevirt(
        "kubevirt-update-validator.kubevirt.io",
        "/kubevirt-validate-update",
        UPDATE,
        &["kubevirts"],
    ),
    of_kubevirt(
        "kubevirt-validator.kubevirt.io",
        "/kubevirt-validate-delete",
        &["DELETE"],
        &["kubevirts"],
    ),
    of_group(
        "virtualmachinepool-validator.kubevirt.io",
        "/virtualmachinepool-validate",
        "pool.kubevirt.io",
        &["v1beta1"],
        &["virtualmachinepools"],
    ),
    of_group(
        "virtualmachinesnapshot-validator.snapshot.kubevirt.io",
        "/virtualmachinesnapshots-validate",
        "snapshot.kubevirt.io",
        &["v1beta1"],
        &["virtualmachinesnapshots"],
    ),
    // Needed only until snapshots are supported: it rejects them.
    Webhook {
        operations: CREATE,
        ..of_group(
            "virtualmachinesnapshotcontent-validator.snapshot.kubevirt.io",
            "/virtualmachinesnapshotcontents-validate",
            "snapshot.kubevirt.io",
            &["v1beta1"],
            &["virtualmachinesnapshotcontents"],
        )
    },
    of_group(
        "virtualmachinerestore-validator.snapshot.kubevirt.io",
        "/virtualmachinerestores-validate",
        "snapshot.kubevirt.io",
        &["v1beta1"],
        &["virtualmachinerestores"],
    ),
    of_group(
        "virtualmachinebackup-validator.backup.kubevirt.io",
        "/virtualmachinebackups-validate",
        "backup.kubevirt.io",
        &["v1alpha1"],
        &["virtualmachinebackups"],
    ),
    of_group(
        "virtualmachinebackuptracker-validator.backup.kubevirt.io",
        "/virtualmachinebackuptrackers-validate",
        "backup.kubevirt.io",
        &["v1alpha1"],
        &["virtualmachinebackuptrackers"],
    ),
    of_group(
        "virtualmachinebackuprestore-validator.backup.ferrovirt.io",
        "/virtualmachinebackuprestores-validate",
        "backup.ferrovirt.io",
        &["v1alpha1"],
        &["virtualmachinebackuprestores"],
    ),
    of_group(
        "virtualmachineexport-validator.export.kubevirt.io",
        "/virtualmachineexports-validate",
        "export.kubevirt.io",
        &["v1"],
        &["virtualmachineexports"],
    ),
    of_group(
        "virtualmachineinstancetype-validator.instancetype.kubevirt.io",
        "/virtualmachineinstancetypes-validate",
        "instancetype.kubevirt.io",
        &["v1beta1"],
        &["virtualmachineinstancetypes"],
    ),
    of_group(
        "virtualmachineclusterinstancetype-validator.instancetype.kubevirt.io",
        "/virtualmachineclusterinstancetypes-validate",
        "instancetype.kubevirt.io",
        &["v1beta1"],
        &["virtualmachineclusterinstancetypes"],
    ),
    of_group(
        "virtualmachinepreference-validator.instancetype.kubevirt.io",
        "/virtualmachinepreferences-validate",
        "instancetype.kubevirt.io",
        &["v1beta1"],
        &["virtualmachinepreferences"],
    ),
    of_group(
        "virtualmachineclusterpreference-validator.instancetype.kubevirt.io",
        "/virtualmachineclusterpreferences-validate",
        "instancetype.kubevirt.io",
        &["v1beta1"],
        &["virtualmachineclusterpreferences"],
    ),
    of_group(
        "migration-policy-validator.kubevirt.io",
        "/migration-policy-validate-create",
        "migrations.kubevirt.io",
        &["v1alpha1"],
        &["migrationpolicies"],
    ),
    of_group(
        "vm-clone-validator.kubevirt.io",
        "/vm-clone-validate-create",
        "clone.kubevirt.io",
        &["v1beta1"],
        &["virtualmachineclones"],
    ),
    of_group(
        "plugin-validator.plugin.kubevirt.io",
        "/plugin-validate",
        "plugin.kubevirt.io",
        &["v1alpha1"],
        &["plugins"],
    ),
    of_group(
        "vvirtualmachinetemplate-v1alpha1.kb.io",
        "/validate-template-kubevirt-io-v1alpha1-virtualmachinetemplate",
        "template.kubevirt.io",
        &["v1alpha1"],
        &["virtualmachinetemplates"],
    ),
    Webhook {
        operations: CREATE,
        ..of_group(
            "virtualmachinetemplaterequest-validator.template.kubevirt.io",
            "/virtualmachinetemplaterequests-validate",
            "template.kubevirt.io",
            &["v1alpha1"],
            &["virtualmachinetemplaterequests"],
        )
    },
];

/// Data volumes that copy from another namespace. Both are registered where Ferrovirt alone populates data volumes, on a
/// single host: CDI reviews its own.
pub const MUTATE_COPY: Webhook = Webhook {
    operations: CREATE,
    ..of_group(
        "datavolumes-mutator.ferrovirt.io",
        "/datavolumes-mutate",
        "cdi.kubevirt.io",
        &["v1beta1"],
        &["datavolumes"],
    )
};

/// See [`MUTATE_COPY`].
pub const VALIDATE_COPY: Webhook = of_group(
    "datavolumes-validator.ferrovirt.io",
    "/datavolumes-validate",
    "cdi.kubevirt.io",
    &["v1beta1"],
    &["datavolumes"],
);

/// Evictions of launcher pods and hotplug pods, at one path.
pub const EVICT: &[Webhook] = &[
    eviction(
        "virt-launcher-eviction-interceptor.kubevirt.io",
        "virt-launcher",
    ),
    eviction("hotplug-pod-eviction-interceptor.kubevirt.io", "hp-volume-"),
];

pub const EVICTION_PATH: &str = "/pod-eviction-validate";

const fn of_kubevirt(
    name: &'static str,
    path: &'static str,
    operations: &'static [&'static str],
    resources: &'static [&'static str],
) -> Webhook {
    Webhook {
        name,
        path,
        group: KUBEVIRT,
        versions: BOTH,
        resources,
        operations,
        prefix: None,
        side_effects: false,
    }
}

/// A webhook of creations and updates.
const fn of_group(
    name: &'static str,
    path: &'static str,
    group: &'static str,
    versions: &'static [&'static str],
    resources: &'static [&'static str],
) -> Webhook {
    Webhook {
        name,
        path,
        group,
        versions,
        resources,
        operations: WRITES,
        prefix: None,
        side_effects: false,
    }
}

const fn eviction(name: &'static str, prefix: &'static str) -> Webhook {
    Webhook {
        name,
        path: EVICTION_PATH,
        group: "",
        versions: &["v1"],
        resources: &["pods/eviction"],
        operations: &["*"],
        prefix: Some(prefix),
        side_effects: true,
    }
}
