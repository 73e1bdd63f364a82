//! The `CustomResourceDefinition` manifests: generated from the types, checked in under
//! `deploy/crds`, and part of the binary so that a single host needs no files.
//!
//! The generator itself (feature `schema`) is in [`definition`] and [`structural`].

#[cfg(feature = "schema")]
pub mod definition;
#[cfg(feature = "schema")]
mod structural;

/// Name and YAML text of every definition.
pub const ALL: &[(&str, &str)] = &[
    (
        "virtualmachines.kubevirt.io",
        include_str!("../../../../deploy/crds/virtualmachines.yaml"),
    ),
    (
        "virtualmachineinstances.kubevirt.io",
        include_str!("../../../../deploy/crds/virtualmachineinstances.yaml"),
    ),
];
