//! Whether a `VirtualMachineInstance` may be written.

mod update;

use std::collections::BTreeMap;

use kubevirt_api::VirtualMachineInstance;

use crate::{
    ClusterConfig, Violation,
    checks::{self, Input, Occasion, Origin, Requester},
    gates,
};

pub use update::{ALL, Caller, Check, Identity, Update};

/// Checks a new object, defaults already filled in.
pub fn validate_create(
    vmi: &VirtualMachineInstance,
    config: &ClusterConfig,
    requester: Requester,
) -> Vec<Violation> {
    let none = BTreeMap::new();
    checks::run(&Input {
        spec: &vmi.spec,
        labels: vmi.metadata.labels.as_ref().unwrap_or(&none),
        annotations: vmi.metadata.annotations.as_ref().unwrap_or(&none),
        config,
        origin: Origin::Instance,
        occasion: Occasion::Creation,
        requester,
    })
}

/// Checks a change of an object.
pub fn validate_update(update: &Update<'_>) -> Vec<Violation> {
    ALL.iter()
        .flat_map(|rule| rule.sign((rule.apply)(update)))
        .collect()
}

/// What the author should know although nothing is wrong.
pub fn warnings(vmi: &VirtualMachineInstance, config: &ClusterConfig) -> Vec<String> {
    let default = &config.default_architecture;
    let mut all = gates::deprecated_in_use(&vmi.spec, &config.gates, default);
    let missing = model::unsupported::in_spec(&vmi.spec, Origin::Instance.path());
    all.extend(missing.iter().map(model::Unsupported::warning));
    all
}
