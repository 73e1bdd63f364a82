//! Group `export.kubevirt.io`: v1 is stored, v1beta1 served beside it with the same schema.

use crate::{
    crds::{
        definition::{Column, Definition, Object, Scope, StatusIs, Version},
        structural,
    },
    export::{VirtualMachineExport, VirtualMachineExportSpec, VirtualMachineExportStatus},
};

const GROUP: &str = "export.kubevirt.io";
const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![exports()]
}

fn exports() -> Definition {
    let schema = Object::new(
        "Offers the disks and the definition of a VM, a snapshot, a claim or a backup for \
         download over HTTPS while it exists.",
    )
    .required("spec", structural::of_spec::<VirtualMachineExportSpec>())
    .optional(
        "status",
        structural::of_status::<VirtualMachineExportStatus>(),
    )
    .schema();
    Definition {
        group: GROUP,
        kind: VirtualMachineExport::KIND,
        plural: VirtualMachineExport::PLURAL,
        singular: "virtualmachineexport",
        short_names: &["vmexport", "vmexports"],
        categories: &["all"],
        scope: Scope::Namespaced,
        label: LABEL,
        versions: vec![
            Version::served("v1beta1", &schema)
                .deprecated("use export.kubevirt.io/v1, which has the same fields"),
            Version::stored("v1", &schema),
        ],
        status: StatusIs::Subresource,
        scale: None,
        columns: vec![
            Column::text("SourceKind", ".spec.source.kind"),
            Column::text("SourceName", ".spec.source.name"),
            Column::text("Phase", ".status.phase"),
        ],
    }
}
