//! The choice of a VM and the template copy it is applied to.

use std::collections::BTreeMap;

use kubevirt_api::{
    instancetype::VirtualMachineInstancetypeSpec, preference::VirtualMachinePreferenceSpec,
    vmi::VirtualMachineInstanceSpec,
};

/// Path of a VM's template spec, as violations report it.
pub const TEMPLATE_PATH: &str = "spec.template.spec";

pub(crate) type Preference = VirtualMachinePreferenceSpec;

/// The instance type and preference of a VM, if chosen and found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    pub instancetype: Option<&'a VirtualMachineInstancetypeSpec>,
    pub preference: Option<&'a VirtualMachinePreferenceSpec>,
}

/// The copy of a template that a choice is applied to.
#[derive(Debug)]
pub struct Target<'a> {
    pub spec: &'a mut VirtualMachineInstanceSpec,
    pub annotations: &'a mut BTreeMap<String, String>,
}

/// Sets a field that is absent.
pub(crate) fn fill<T: Clone>(field: &mut Option<T>, preferred: Option<&T>) {
    if field.is_none() {
        *field = preferred.cloned();
    }
}

/// Sets a string field that is absent or empty.
pub(crate) fn fill_string(field: &mut Option<String>, preferred: Option<&String>) {
    let is_unset = field.as_deref().unwrap_or_default().is_empty();
    if let Some(preferred) = preferred.filter(|preferred| is_unset && !preferred.is_empty()) {
        *field = Some(preferred.clone());
    }
}
