//! Models of processors that no guest should be started with. Pure.

use std::collections::BTreeMap;

use kubevirt_api::cluster_config::KubeVirtConfiguration;

/// Models too old for anybody to start a guest with; their first versions count as well.
const BUILT_IN: [&str; 17] = [
    "486",
    "pentium",
    "pentium2",
    "pentium3",
    "pentiumpro",
    "coreduo",
    "n270",
    "core2duo",
    "Conroe",
    "athlon",
    "phenom",
    "qemu64",
    "qemu32",
    "kvm64",
    "kvm32",
    "Opteron_G1",
    "Opteron_G2",
];

/// The administrator's list takes the place of ours.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ObsoleteModels<'a> {
    BuiltIn,
    /// By their names alone: a model is obsolete whatever is written beside it.
    Written(&'a BTreeMap<String, bool>),
}

impl<'a> ObsoleteModels<'a> {
    pub(crate) fn of(written: &'a KubeVirtConfiguration) -> Self {
        if written.obsolete_cpu_models.is_empty() {
            Self::BuiltIn
        } else {
            Self::Written(&written.obsolete_cpu_models)
        }
    }

    pub(crate) fn has(self, model: &str) -> bool {
        match self {
            Self::BuiltIn => BUILT_IN.contains(&model.strip_suffix("-v1").unwrap_or(model)),
            Self::Written(names) => names.contains_key(model),
        }
    }
}
