//! Group `migrations.kubevirt.io`: policies.

use crate::{
    crds::{
        definition::{Definition, Object, Scope, StatusIs, Version},
        structural,
    },
    migration_policy::{MigrationPolicy, MigrationPolicySpec, MigrationPolicyStatus},
};

const GROUP: &str = "migrations.kubevirt.io";
const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![policies()]
}

fn policies() -> Definition {
    let schema = Object::new(
        "Settings for live migrations of the VMs that it selects, over those of the cluster. \
         Of several, the one whose selectors match most labels counts.",
    )
    .required("spec", structural::of_spec::<MigrationPolicySpec>())
    .nullable("status", structural::of_status::<MigrationPolicyStatus>())
    .schema();
    Definition {
        group: GROUP,
        kind: MigrationPolicy::KIND,
        plural: MigrationPolicy::PLURAL,
        singular: "migrationpolicy",
        short_names: &[],
        categories: &[],
        scope: Scope::Cluster,
        label: LABEL,
        versions: vec![Version::stored("v1alpha1", &schema)],
        status: StatusIs::Subresource,
        scale: None,
        columns: Vec::new(),
    }
}
