//! The definitions as a table, and how a row becomes a manifest.
//!
//! To add a kind: add a row to [`kinds`] and an entry to [`super::ALL`].

use serde_json::{Value, json};

use super::structural;
use crate::{
    GROUP, VirtualMachine, VirtualMachineInstance, vm::VirtualMachineSpec,
    vm_status::VirtualMachineStatus, vmi::VirtualMachineInstanceSpec,
    vmi_status::VirtualMachineInstanceStatus,
};

/// One kind of object.
#[derive(Debug)]
struct Definition {
    kind: &'static str,
    plural: &'static str,
    singular: &'static str,
    short_names: &'static [&'static str],
    description: &'static str,
    status: StatusIs,
    columns: &'static [Column],
    spec_schema: Value,
    status_schema: Value,
}

/// How the status of a kind is written.
#[derive(Debug, PartialEq, Eq)]
enum StatusIs {
    /// Through a subresource of its own.
    Subresource,
    /// Together with the rest of the object.
    PartOfObject,
}

/// A column of `kubectl get`.
#[derive(Debug)]
struct Column {
    name: &'static str,
    path: &'static str,
    kind: &'static str,
    shown: Shown,
}

#[derive(Debug)]
enum Shown {
    Always,
    /// Only with `-o wide`.
    Wide,
}

const AGE: Column = Column {
    name: "Age",
    path: ".metadata.creationTimestamp",
    kind: "date",
    shown: Shown::Always,
};

const VM_COLUMNS: &[Column] = &[
    AGE,
    Column {
        name: "Status",
        path: ".status.printableStatus",
        kind: "string",
        shown: Shown::Always,
    },
    condition(
        "Ready",
        ".status.conditions[?(@.type=='Ready')].status",
        Shown::Always,
    ),
];

const VMI_COLUMNS: &[Column] = &[
    AGE,
    Column {
        name: "Phase",
        path: ".status.phase",
        kind: "string",
        shown: Shown::Always,
    },
    Column {
        name: "IP",
        path: ".status.interfaces[0].ipAddress",
        kind: "string",
        shown: Shown::Always,
    },
    Column {
        name: "NodeName",
        path: ".status.nodeName",
        kind: "string",
        shown: Shown::Always,
    },
    condition(
        "Ready",
        ".status.conditions[?(@.type=='Ready')].status",
        Shown::Always,
    ),
    condition(
        "Live-Migratable",
        ".status.conditions[?(@.type=='LiveMigratable')].status",
        Shown::Wide,
    ),
    condition(
        "Paused",
        ".status.conditions[?(@.type=='Paused')].status",
        Shown::Wide,
    ),
];

/// File name under `deploy/crds` and text of every definition.
pub fn render() -> Result<Vec<(String, String)>, serde_saphyr::ser::Error> {
    kinds()
        .into_iter()
        .map(|kind| {
            let file = format!("{}.yaml", kind.plural);
            let body = serde_saphyr::to_string(&manifest(&kind))?;
            Ok((
                file,
                format!("# Made by `cargo xtask generate` from the types of kubevirt-api.\n{body}"),
            ))
        })
        .collect()
}

fn kinds() -> Vec<Definition> {
    vec![
        Definition {
            kind: VirtualMachine::KIND,
            plural: VirtualMachine::PLURAL,
            singular: "virtualmachine",
            short_names: &["vm", "vms"],
            description: "A VM that exists whether its guest runs or not.",
            status: StatusIs::Subresource,
            columns: VM_COLUMNS,
            spec_schema: structural::of_spec::<VirtualMachineSpec>(),
            status_schema: structural::of_status::<VirtualMachineStatus>(),
        },
        Definition {
            kind: VirtualMachineInstance::KIND,
            plural: VirtualMachineInstance::PLURAL,
            singular: "virtualmachineinstance",
            short_names: &["vmi", "vmis"],
            description: "One run of a guest.",
            status: StatusIs::PartOfObject,
            columns: VMI_COLUMNS,
            spec_schema: structural::of_spec::<VirtualMachineInstanceSpec>(),
            status_schema: structural::of_status::<VirtualMachineInstanceStatus>(),
        },
    ]
}

const fn condition(name: &'static str, path: &'static str, shown: Shown) -> Column {
    Column {
        name,
        path,
        kind: "string",
        shown,
    }
}

fn manifest(kind: &Definition) -> Value {
    let columns: Vec<Value> = kind.columns.iter().map(column).collect();
    let status = (kind.status == StatusIs::Subresource).then(|| json!({ "status": {} }));
    let schema = object_schema(kind.description, &kind.spec_schema, &kind.status_schema);
    json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {
            "name": format!("{}.{GROUP}", kind.plural),
            "labels": { "kubevirt.io": "" },
        },
        "spec": {
            "group": GROUP,
            "names": {
                "categories": ["all"],
                "kind": kind.kind,
                "listKind": format!("{}List", kind.kind),
                "plural": kind.plural,
                "shortNames": kind.short_names,
                "singular": kind.singular,
            },
            "scope": "Namespaced",
            "versions": [
                version("v1", StoredAs::This, &columns, status.as_ref(), &schema),
                version("v1alpha3", StoredAs::Other, &columns, status.as_ref(), &schema),
            ],
        },
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum StoredAs {
    This,
    Other,
}

fn version(
    name: &str,
    stored: StoredAs,
    columns: &[Value],
    subresources: Option<&Value>,
    schema: &Value,
) -> Value {
    let is_storage = stored == StoredAs::This;
    let mut version = json!({ "name": name, "served": true, "storage": is_storage });
    if !is_storage {
        version["deprecated"] = json!(true);
        version["deprecationWarning"] = json!(format!(
            "{GROUP}/{name} is deprecated; use {GROUP}/v1, which has the same fields"
        ));
    }
    version["additionalPrinterColumns"] = json!(columns);
    if let Some(subresources) = subresources {
        version["subresources"] = subresources.clone();
    }
    version["schema"] = json!({ "openAPIV3Schema": schema });
    version
}

fn column(column: &Column) -> Value {
    let mut value = json!({ "name": column.name, "type": column.kind, "jsonPath": column.path });
    if matches!(column.shown, Shown::Wide) {
        value["priority"] = json!(1);
    }
    value
}

fn object_schema(description: &str, spec: &Value, status: &Value) -> Value {
    json!({
        "description": description,
        "type": "object",
        "required": ["spec"],
        "properties": {
            "apiVersion": { "type": "string" },
            "kind": { "type": "string" },
            "metadata": { "type": "object" },
            "spec": spec,
            "status": status,
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crds;

    #[test]
    fn checked_in_files_are_current() {
        for ((file, text), (name, checked_in)) in
            render().expect("definitions render").iter().zip(crds::ALL)
        {
            assert_eq!(format!("{}.{GROUP}", file.trim_end_matches(".yaml")), *name);
            assert!(
                text == checked_in,
                "{file} is stale: run `cargo xtask generate`"
            );
        }
    }
}
