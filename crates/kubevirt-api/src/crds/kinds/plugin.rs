//! Group `plugin.kubevirt.io`: plugins.

use crate::{
    crds::{
        definition::{Definition, Object, Scope, StatusIs, Version},
        structural,
    },
    plugin::{Plugin, PluginSpec, PluginStatus},
};

const GROUP: &str = "plugin.kubevirt.io";
const LABEL: Option<&str> = Some("kubevirt.io");

pub(super) fn rows() -> Vec<Definition> {
    vec![plugins()]
}

fn plugins() -> Definition {
    let schema = Object::new(
        "Hooks into the life of VMs: programs and expressions that change a guest's \
         definition, or that are called on its node.",
    )
    .required("spec", structural::of_spec::<PluginSpec>())
    .optional("status", structural::of_status::<PluginStatus>())
    .schema();
    Definition {
        group: GROUP,
        kind: Plugin::KIND,
        plural: Plugin::PLURAL,
        singular: "plugin",
        short_names: &[],
        categories: &[],
        scope: Scope::Cluster,
        label: LABEL,
        versions: vec![Version::stored("v1alpha1", &schema)],
        status: StatusIs::PartOfObject,
        scale: None,
        columns: Vec::new(),
    }
}
