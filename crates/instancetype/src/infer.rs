//! `inferFromVolume`: from a volume to the instance type or preference on the labels of its source.
//!
//! The caller performs the lookups: [`first_step`] returns the first object to look up, [`next_step`]
//! the next one or the outcome, [`resolve`] writes the outcome into the VM.

use std::fmt;

use kubevirt_api::{
    VirtualMachine,
    data_source::DataSourceSpec,
    data_volume::{DataVolumeSpec, DataVolumeTemplateSpec},
    labels,
    vm::InferFromVolumeFailurePolicy,
    volumes::Volume,
};
use serde::Deserialize;
use serde_json::Value;

use crate::reference::Family;

/// Kinds of objects that a volume can originate from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SourceKind {
    Claim,
    DataVolume,
    DataSource,
    Snapshot,
}

/// The object to look up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    pub kind: SourceKind,
    pub namespace: String,
    pub name: String,
}

/// One step of the inference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    Lookup(Source),
    Done(Outcome),
}

/// Result of the inference.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Found {
        name: String,
        #[serde(default)]
        kind: String,
    },
    /// The source has no label. A VM with failure policy `Ignore` starts without the inferred object.
    Ignorable(String),
    /// An object is missing or could not be looked up.
    Fatal(String),
}

/// The inferred instance type and preference of a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inferred {
    pub instancetype: Option<Outcome>,
    pub preference: Option<Outcome>,
}

impl SourceKind {
    fn as_str(self) -> &'static str {
        match self {
            Self::Claim => "PVC",
            Self::DataVolume => "DataVolume",
            Self::DataSource => "DataSource",
            Self::Snapshot => "VolumeSnapshot",
        }
    }
}

impl Family {
    /// The labels that hold name and kind.
    fn labels(self) -> [&'static str; 2] {
        match self {
            Self::Instancetype => [
                labels::DEFAULT_INSTANCETYPE,
                labels::DEFAULT_INSTANCETYPE_KIND,
            ],
            Self::Preference => [labels::DEFAULT_PREFERENCE, labels::DEFAULT_PREFERENCE_KIND],
        }
    }
}

/// The first step; `None` when nothing is to be inferred, or when the matcher contradicts itself,
/// which another rule reports.
pub fn first_step(vm: &VirtualMachine, family: Family) -> Option<Step> {
    let volume = volume_to_infer_from(vm, family)?;
    let volumes = vm.spec.template.spec.as_ref();
    let mut volumes = volumes.map_or(&[][..], |spec| &spec.volumes).iter();
    Some(match volumes.find(|one| one.name == volume) {
        Some(found) => from_volume(vm, found, family),
        None => fatal(format!("the template has no volume {volume:?}")),
    })
}

fn volume_to_infer_from(vm: &VirtualMachine, family: Family) -> Option<&str> {
    let (name, kind, volume) = match family {
        Family::Instancetype => {
            let matcher = vm.spec.instancetype.as_ref()?;
            (&matcher.name, &matcher.kind, &matcher.infer_from_volume)
        }
        Family::Preference => {
            let matcher = vm.spec.preference.as_ref()?;
            (&matcher.name, &matcher.kind, &matcher.infer_from_volume)
        }
    };
    let is_unnamed = [name, kind]
        .iter()
        .all(|text| text.as_deref().unwrap_or_default().is_empty());
    volume
        .as_deref()
        .filter(|volume| is_unnamed && !volume.is_empty())
}

fn from_volume(vm: &VirtualMachine, volume: &Volume, family: Family) -> Step {
    let namespace = vm.metadata.namespace.clone().unwrap_or_default();
    if let Some(claim) = &volume.persistent_volume_claim {
        return lookup(SourceKind::Claim, &namespace, &claim.claim_name);
    }
    let Some(source) = &volume.data_volume else {
        return ignorable(format!(
            "volume {:?} is neither a PVC nor a DataVolume",
            volume.name
        ));
    };
    let templates = &vm.spec.data_volume_templates;
    match templates.iter().find(|one| name_of(one) == source.name) {
        Some(template) => from_template(template, &namespace, family),
        None => lookup(SourceKind::DataVolume, &namespace, &source.name),
    }
}

fn name_of(template: &DataVolumeTemplateSpec) -> &str {
    let metadata = template.metadata.as_ref();
    let name = metadata.and_then(|metadata| metadata.name.as_deref());
    name.unwrap_or_default()
}

fn from_template(template: &DataVolumeTemplateSpec, namespace: &str, family: Family) -> Step {
    let metadata = template.metadata.as_ref();
    let own = metadata.and_then(|metadata| metadata.labels.as_ref());
    let label = |key: &str| own.and_then(|own| own.get(key)).map(String::as_str);
    if let Some(found) = from_labels(family, label) {
        return found;
    }
    from_data_volume(&template.spec, namespace)
}

/// The step after a lookup; `found` is the object, if it exists.
pub fn next_step(source: &Source, found: Option<&Value>, family: Family) -> Step {
    let Some(object) = found else {
        return match source.kind {
            // A DataVolume may be garbage-collected once it is populated; its PVC remains.
            SourceKind::DataVolume => lookup(SourceKind::Claim, &source.namespace, &source.name),
            _ => fatal(format!("{source} does not exist")),
        };
    };
    let own = &object["metadata"]["labels"];
    if let Some(found) = from_labels(family, |key| own[key].as_str()) {
        return found;
    }
    match source.kind {
        SourceKind::Claim | SourceKind::Snapshot => {
            let [label, _] = family.labels();
            ignorable(format!("{source} has no label {label}"))
        }
        SourceKind::DataVolume => match serde_json::from_value(object["spec"].clone()) {
            Ok(spec) => from_data_volume(&spec, &source.namespace),
            Err(error) => fatal(format!("{source} is malformed: {error}")),
        },
        SourceKind::DataSource => match serde_json::from_value(object["spec"].clone()) {
            Ok(spec) => from_data_source(source, &spec),
            Err(error) => fatal(format!("{source} is malformed: {error}")),
        },
    }
}

fn from_data_volume(spec: &DataVolumeSpec, namespace: &str) -> Step {
    let source = spec.source.as_ref();
    if let Some(claim) = source.and_then(|source| source.pvc.as_ref()) {
        return lookup(
            SourceKind::Claim,
            or(&claim.namespace, namespace),
            &claim.name,
        );
    }
    if let Some(snapshot) = source.and_then(|source| source.snapshot.as_ref()) {
        let namespace = or(&snapshot.namespace, namespace);
        return lookup(SourceKind::Snapshot, namespace, &snapshot.name);
    }
    match &spec.source_ref {
        Some(source) if source.kind.eq_ignore_ascii_case("DataSource") => {
            let own = source.namespace.as_deref().unwrap_or_default();
            lookup(SourceKind::DataSource, or(own, namespace), &source.name)
        }
        _ => ignorable(
            "the source of the DataVolume is not a PVC, VolumeSnapshot or DataSource".to_owned(),
        ),
    }
}

fn from_data_source(data_source: &Source, spec: &DataSourceSpec) -> Step {
    if let Some(claim) = &spec.source.pvc {
        let namespace = or(&claim.namespace, &data_source.namespace);
        return lookup(SourceKind::Claim, namespace, &claim.name);
    }
    if let Some(snapshot) = &spec.source.snapshot {
        let namespace = or(&snapshot.namespace, &data_source.namespace);
        return lookup(SourceKind::Snapshot, namespace, &snapshot.name);
    }
    ignorable(format!(
        "{data_source} has no label and is neither a PVC nor a VolumeSnapshot"
    ))
}

/// The object that the labels name, if any.
fn from_labels<'a>(family: Family, label: impl Fn(&str) -> Option<&'a str>) -> Option<Step> {
    let [name, kind] = family.labels();
    let name = label(name).filter(|name| !name.is_empty())?;
    Some(Step::Done(Outcome::Found {
        name: name.to_owned(),
        kind: label(kind).unwrap_or_default().to_owned(),
    }))
}

fn lookup(kind: SourceKind, namespace: &str, name: &str) -> Step {
    Step::Lookup(Source {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn ignorable(message: String) -> Step {
    Step::Done(Outcome::Ignorable(message))
}

fn fatal(message: String) -> Step {
    Step::Done(Outcome::Fatal(message))
}

fn or<'a>(given: &'a str, default: &'a str) -> &'a str {
    if given.is_empty() { default } else { given }
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}/{}", self.kind.as_str(), self.namespace, self.name)
    }
}

/// Writes the inferred names into the VM. The error is the message of the refusal.
pub fn resolve(vm: &mut VirtualMachine, inferred: &Inferred) -> Result<(), String> {
    if let Some(outcome) = &inferred.instancetype {
        resolve_instancetype(vm, outcome)?;
    }
    if let Some(outcome) = &inferred.preference {
        resolve_preference(vm, outcome)?;
    }
    Ok(())
}

fn resolve_instancetype(vm: &mut VirtualMachine, outcome: &Outcome) -> Result<(), String> {
    let Some(matcher) = &mut vm.spec.instancetype else {
        return Ok(());
    };
    let policy = matcher.infer_from_volume_failure_policy.clone();
    let Some(named) = named(outcome, Family::Instancetype, policy.as_ref())? else {
        vm.spec.instancetype = None;
        return Ok(());
    };
    matcher.name = Some(named.name);
    matcher.kind = named.kind;
    matcher.infer_from_volume = None;
    matcher.infer_from_volume_failure_policy = None;
    // With this policy, memory is set as a fallback for a failed inference.
    let ignores = policy == Some(InferFromVolumeFailurePolicy::Ignore);
    if let Some(spec) = vm.spec.template.spec.as_mut().filter(|_| ignores) {
        spec.domain.memory = None;
    }
    Ok(())
}

fn resolve_preference(vm: &mut VirtualMachine, outcome: &Outcome) -> Result<(), String> {
    let Some(matcher) = &mut vm.spec.preference else {
        return Ok(());
    };
    let policy = matcher.infer_from_volume_failure_policy.clone();
    let Some(named) = named(outcome, Family::Preference, policy.as_ref())? else {
        vm.spec.preference = None;
        return Ok(());
    };
    matcher.name = Some(named.name);
    matcher.kind = named.kind;
    matcher.infer_from_volume = None;
    matcher.infer_from_volume_failure_policy = None;
    Ok(())
}

/// Name and kind for a matcher.
struct Named {
    name: String,
    kind: Option<String>,
}

/// The inferred object; `None` when the policy ignores that there is none.
fn named(
    outcome: &Outcome,
    family: Family,
    policy: Option<&InferFromVolumeFailurePolicy>,
) -> Result<Option<Named>, String> {
    let ignores = policy == Some(&InferFromVolumeFailurePolicy::Ignore);
    let refusal = |message: &str, remedy: &str| {
        let path = family.path();
        Err(format!("{path}.inferFromVolume: {message}; {remedy}"))
    };
    match outcome {
        Outcome::Found { name, kind } => Ok(Some(Named {
            name: name.clone(),
            kind: Some(kind.clone()).filter(|kind| !kind.is_empty()),
        })),
        Outcome::Ignorable(_) if ignores => Ok(None),
        Outcome::Ignorable(message) => refusal(
            message,
            "give name instead, or inferFromVolumeFailurePolicy: Ignore",
        ),
        Outcome::Fatal(message) => refusal(message, "create it first, or give name instead"),
    }
}

#[cfg(test)]
mod tests;
