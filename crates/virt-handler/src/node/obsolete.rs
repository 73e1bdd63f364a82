//! Obsolete CPU models, which no guest should be started with: pure.

use std::collections::BTreeMap;

use kubevirt_api::cluster_config::KubeVirtConfiguration;

/// The default list; the first version of each model (`-v1`) is obsolete, too.
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

/// The administrator's list replaces the built-in one.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ObsoleteModels<'a> {
    BuiltIn,
    /// Only the keys count: a model is obsolete whatever its value is.
    Configured(&'a BTreeMap<String, bool>),
}

impl<'a> ObsoleteModels<'a> {
    pub(crate) fn of(config: &'a KubeVirtConfiguration) -> Self {
        if config.obsolete_cpu_models.is_empty() {
            Self::BuiltIn
        } else {
            Self::Configured(&config.obsolete_cpu_models)
        }
    }

    pub(crate) fn contains(self, model: &str) -> bool {
        match self {
            Self::BuiltIn => BUILT_IN.contains(&model.strip_suffix("-v1").unwrap_or(model)),
            Self::Configured(names) => names.contains_key(model),
        }
    }
}
