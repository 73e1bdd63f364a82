//! Instance types and preferences: what they make of a VM's template.
//!
//! An instance type decides: what it says, the template may not say too ([`conflicts`]). A
//! preference fills in what is left open. [`complete`] is the way from a template to the spec of an
//! instance, for those who judge a VM as for those who start it.
//!
//! - [`size`], [`prefer`]: what is applied, a rule each;
//! - [`topology`]: how vCPUs become sockets, cores and threads;
//! - [`requirements`]: what a preference demands of a VM;
//! - [`reference`]: which object a VM means, and what a revision of it holds;
//! - [`expand`]: a VM with all of it written out;
//! - [`infer`]: the way from a volume to the names on its labels.
//!
//! Invariants: a preference never changes what the template says, two fields apart that are named
//! in their rules; nothing here looks anything up.

pub mod conflicts;
pub mod expand;
pub mod infer;
pub mod prefer;
pub mod reference;
pub mod requirements;
pub mod size;
pub mod topology;

use std::collections::BTreeMap;

use kubevirt_api::{
    instancetype::VirtualMachineInstancetypeSpec, preference::VirtualMachinePreferenceSpec,
    vmi::VirtualMachineInstanceSpec,
};

use crate::{
    ClusterConfig, Violation, defaults,
    rules::{Rule, Summary},
};

/// What a VM chose, as far as it was found.
#[derive(Clone, Copy, Debug, Default)]
pub struct Choice<'a> {
    pub instancetype: Option<&'a VirtualMachineInstancetypeSpec>,
    pub preference: Option<&'a VirtualMachinePreferenceSpec>,
}

/// What a choice is applied to: the copy of a template.
#[derive(Debug)]
pub struct Target<'a> {
    pub spec: &'a mut VirtualMachineInstanceSpec,
    pub annotations: &'a mut BTreeMap<String, String>,
}

/// Completes the copy of a template: devices that the choice is about, then the choice. Conflicts
/// are for [`conflicts::find`]; here the instance type wins. `path` is where violations say the
/// spec is.
pub fn complete(
    target: &mut Target<'_>,
    choice: Choice<'_>,
    config: &ClusterConfig,
    path: &str,
) -> Result<(), Vec<Violation>> {
    if let Some(preference) = choice.preference {
        // Whether there is a network or an input at all comes before what they are like.
        prefer::autoattach(target, preference);
    }
    defaults::controller::set_devices(target.spec, config, path)?;
    apply(target, choice);
    Ok(())
}

/// Applies size, then preference.
pub fn apply(target: &mut Target<'_>, choice: Choice<'_>) {
    if let Some(instancetype) = choice.instancetype {
        for rule in size::ALL {
            (rule.apply)(target, instancetype, choice.preference);
        }
    }
    if let Some(preference) = choice.preference {
        for rule in prefer::ALL {
            (rule.apply)(target, preference);
        }
    }
}

/// Every rule of the application, for the list of rules.
pub(crate) fn summaries() -> impl Iterator<Item = Summary> {
    let sizes = size::ALL.iter().map(Rule::summary);
    sizes.chain(prefer::ALL.iter().map(Rule::summary))
}

/// Fills in what is open.
fn fill<T: Clone>(place: &mut Option<T>, wanted: Option<&T>) {
    if place.is_none() {
        *place = wanted.cloned();
    }
}

/// The same for words: an empty one is open.
fn fill_word(place: &mut Option<String>, wanted: Option<&String>) {
    let is_open = place.as_deref().unwrap_or_default().is_empty();
    if let Some(wanted) = wanted.filter(|wanted| is_open && !wanted.is_empty()) {
        *place = Some(wanted.clone());
    }
}
