//! Group `template.kubevirt.io`: v1alpha1 is stored and deprecated, v1beta1 is served beside it
//! with the same schema.

use serde_json::Value;

use crate::{
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        structural,
    },
    template::{
        VirtualMachineTemplate, VirtualMachineTemplateRequest, VirtualMachineTemplateRequestSpec,
        VirtualMachineTemplateRequestStatus, VirtualMachineTemplateSpec,
        VirtualMachineTemplateStatus,
    },
};

const GROUP: &str = "template.kubevirt.io";
const INSTEAD: &str = "use template.kubevirt.io/v1beta1, which has the same fields";

pub(super) fn rows() -> Vec<Definition> {
    vec![requests(), templates()]
}

fn templates() -> Definition {
    let schema = Object::new("A VM with blanks, and the parameters that fill them.")
        .required("spec", structural::of_spec::<VirtualMachineTemplateSpec>())
        .optional(
            "status",
            structural::of_status::<VirtualMachineTemplateStatus>(),
        )
        .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineTemplate::KIND,
        plural: VirtualMachineTemplate::PLURAL,
        singular: "virtualmachinetemplate",
        short_names: &["vmt", "vmts"],
        categories: &[],
        scope: Scope::Namespaced,
        label: None,
        versions: versions(&schema),
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![Column::age(), condition("Ready")],
    }
}

fn requests() -> Definition {
    let schema = Object::new("Asks for a template made of a VM.")
        .required(
            "spec",
            structural::of_spec::<VirtualMachineTemplateRequestSpec>(),
        )
        .optional(
            "status",
            structural::of_status::<VirtualMachineTemplateRequestStatus>(),
        )
        .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineTemplateRequest::KIND,
        plural: VirtualMachineTemplateRequest::PLURAL,
        singular: "virtualmachinetemplaterequest",
        short_names: &["vmtr", "vmtrs"],
        categories: &[],
        scope: Scope::Namespaced,
        label: None,
        versions: versions(&schema),
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("Template", ".status.templateRef.name"),
            Column::age(),
            condition("Ready"),
            condition("Progressing"),
        ],
    }
}

fn versions(schema: &Value) -> Vec<Version> {
    vec![
        Version::stored("v1alpha1", schema).deprecated(INSTEAD),
        Version::served("v1beta1", schema),
    ]
}

/// The original quotes the type in its own way here.
fn condition(kind: &'static str) -> Column {
    let path = format!(r#".status.conditions[?(@.type=="{kind}")].status"#);
    Column::text(kind, &path)
}
