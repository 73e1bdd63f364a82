//! Applies an instance type and a preference to a new VMI.

use ::instancetype::reference::{Family, Reference, Scope};
use ::instancetype::{Choice, Target, conflicts};
use cluster_config::ClusterConfig;
use defaults::{carry_over, template::complete};
use kubevirt_api::annotations;
use kubevirt_api::instancetype::VirtualMachineInstancetypeSpec;
use kubevirt_api::preference::VirtualMachinePreferenceSpec;
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use serde_json::{Value, json};

use super::ChoiceError;

/// The chosen instance type and preference, with their specs.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    pub(super) instancetype: Option<(Reference, VirtualMachineInstancetypeSpec)>,
    pub(super) preference: Option<(Reference, VirtualMachinePreferenceSpec)>,
}

impl Chosen {
    fn is_none(&self) -> bool {
        self.instancetype.is_none() && self.preference.is_none()
    }

    pub(super) fn choice(&self) -> Choice<'_> {
        Choice {
            instancetype: self.instancetype.as_ref().map(|(_, spec)| spec),
            preference: self.preference.as_ref().map(|(_, spec)| spec),
        }
    }
}

/// Applies the choice to a new VMI.
pub(super) fn apply(
    vmi: &mut Value,
    chosen: &Chosen,
    config: &ClusterConfig,
) -> Result<(), ChoiceError> {
    if chosen.is_none() {
        return Ok(());
    }
    let unreadable = |error: serde_json::Error| ChoiceError::Refused(error.to_string());
    let before: VirtualMachineInstanceSpec =
        serde_json::from_value(vmi["spec"].clone()).map_err(unreadable)?;
    let mut spec = before.clone();
    let mut annotations =
        serde_json::from_value(vmi["metadata"]["annotations"].clone()).map_err(unreadable)?;
    if let Some((_, size)) = &chosen.instancetype {
        let found = conflicts::find(&spec, &annotations, size);
        if !found.is_empty() {
            return Err(ChoiceError::refused(&found));
        }
    }
    let mut target = Target {
        spec: &mut spec,
        annotations: &mut annotations,
    };
    let path = "spec.template.spec";
    complete(&mut target, chosen.choice(), config, path)
        .map_err(|found| ChoiceError::refused(&found))?;
    let size = chosen.instancetype.as_ref().map(|(reference, _)| reference);
    let preference = chosen.preference.as_ref().map(|(reference, _)| reference);
    for reference in [size, preference].into_iter().flatten() {
        let key = name_annotation(reference).to_owned();
        annotations.insert(key, reference.name.clone());
    }
    carry_over(&mut vmi["spec"], &json!(before), &json!(spec));
    vmi["metadata"]["annotations"] = json!(annotations);
    Ok(())
}

fn name_annotation(reference: &Reference) -> &'static str {
    match (reference.family, reference.scope) {
        (Family::Instancetype, Scope::Namespace) => annotations::INSTANCETYPE_NAME,
        (Family::Instancetype, Scope::Cluster) => annotations::CLUSTER_INSTANCETYPE_NAME,
        (Family::Preference, Scope::Namespace) => annotations::PREFERENCE_NAME,
        (Family::Preference, Scope::Cluster) => annotations::CLUSTER_PREFERENCE_NAME,
    }
}
