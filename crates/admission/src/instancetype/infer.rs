//! From a volume to the instance type or preference that the labels of its source name.
//!
//! The way is walked by whoever can look things up: [`begin`] says where to look first, [`after`]
//! where to look next or how it ended, [`settle`] writes the end into the VM.

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

use super::reference::Family;

/// What may be looked at on the way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Claim,
    DataVolume,
    DataSource,
    Snapshot,
}

/// An object on the way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

/// How it goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    Look(Place),
    End(Outcome),
}

/// How it ended.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Outcome {
    Found {
        name: String,
        #[serde(default)]
        kind: String,
    },
    /// The source cannot say; a VM may be content with that.
    Silent(String),
    /// Something is not there, or could not be asked.
    Broken(String),
}

/// What was inferred for a VM.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Inferred {
    pub instancetype: Option<Outcome>,
    pub preference: Option<Outcome>,
}

impl Kind {
    /// For messages.
    fn noun(self) -> &'static str {
        match self {
            Self::Claim => "claim",
            Self::DataVolume => "data volume",
            Self::DataSource => "data source",
            Self::Snapshot => "volume snapshot",
        }
    }
}

impl Family {
    /// Labels with the name and the kind.
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

/// Where to look first; nothing when there is nothing to infer, or when the matcher contradicts
/// itself, which is told elsewhere.
pub fn begin(vm: &VirtualMachine, family: Family) -> Option<Next> {
    let volume = volume_to_infer_from(vm, family)?;
    let volumes = vm.spec.template.spec.as_ref();
    let mut volumes = volumes.map_or(&[][..], |spec| &spec.volumes).iter();
    Some(match volumes.find(|one| one.name == volume) {
        Some(found) => from_volume(vm, found, family),
        None => broken(format!("the template has no volume {volume:?}")),
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
    let is_clear = [name, kind]
        .iter()
        .all(|word| word.as_deref().unwrap_or_default().is_empty());
    volume
        .as_deref()
        .filter(|volume| is_clear && !volume.is_empty())
}

fn from_volume(vm: &VirtualMachine, volume: &Volume, family: Family) -> Next {
    let namespace = vm.metadata.namespace.clone().unwrap_or_default();
    if let Some(claim) = &volume.persistent_volume_claim {
        return look(Kind::Claim, &namespace, &claim.claim_name);
    }
    let Some(source) = &volume.data_volume else {
        return silent(format!(
            "volume {:?} is neither a claim nor a data volume",
            volume.name
        ));
    };
    let templates = &vm.spec.data_volume_templates;
    match templates.iter().find(|one| name_of(one) == source.name) {
        Some(template) => from_template(template, &namespace, family),
        None => look(Kind::DataVolume, &namespace, &source.name),
    }
}

fn name_of(template: &DataVolumeTemplateSpec) -> &str {
    let metadata = template.metadata.as_ref();
    let name = metadata.and_then(|metadata| metadata.name.as_deref());
    name.unwrap_or_default()
}

fn from_template(template: &DataVolumeTemplateSpec, namespace: &str, family: Family) -> Next {
    let metadata = template.metadata.as_ref();
    let own = metadata.and_then(|metadata| metadata.labels.as_ref());
    let label = |key: &str| own.and_then(|own| own.get(key)).map(String::as_str);
    if let Some(found) = said(family, label) {
        return found;
    }
    from_data_volume(&template.spec, namespace)
}

/// What an object on the way says, and where to look next. `found` is the object, if it is there.
pub fn after(place: &Place, found: Option<&Value>, family: Family) -> Next {
    let Some(object) = found else {
        return match place.kind {
            // Data volumes are tidied away when they are filled; the claim of their name stays.
            Kind::DataVolume => look(Kind::Claim, &place.namespace, &place.name),
            _ => broken(format!("there is no {}", place.shown())),
        };
    };
    let own = &object["metadata"]["labels"];
    if let Some(found) = said(family, |key| own[key].as_str()) {
        return found;
    }
    match place.kind {
        Kind::Claim | Kind::Snapshot => silent(format!(
            "{} has no label {}",
            place.shown(),
            family.labels()[0]
        )),
        Kind::DataVolume => match serde_json::from_value(object["spec"].clone()) {
            Ok(spec) => from_data_volume(&spec, &place.namespace),
            Err(error) => broken(format!("{} cannot be read: {error}", place.shown())),
        },
        Kind::DataSource => match serde_json::from_value(object["spec"].clone()) {
            Ok(spec) => from_data_source(place, &spec),
            Err(error) => broken(format!("{} cannot be read: {error}", place.shown())),
        },
    }
}

fn from_data_volume(spec: &DataVolumeSpec, namespace: &str) -> Next {
    let source = spec.source.as_ref();
    if let Some(claim) = source.and_then(|source| source.pvc.as_ref()) {
        return look(Kind::Claim, or(&claim.namespace, namespace), &claim.name);
    }
    if let Some(snapshot) = source.and_then(|source| source.snapshot.as_ref()) {
        let its = or(&snapshot.namespace, namespace);
        return look(Kind::Snapshot, its, &snapshot.name);
    }
    match &spec.source_ref {
        Some(source) if source.kind.eq_ignore_ascii_case("DataSource") => {
            let its = source.namespace.as_deref().unwrap_or_default();
            look(Kind::DataSource, or(its, namespace), &source.name)
        }
        _ => silent("the data volume's source is no claim, snapshot or data source".to_owned()),
    }
}

fn from_data_source(place: &Place, spec: &DataSourceSpec) -> Next {
    let source = &spec.source;
    if let Some(claim) = &source.pvc {
        let its = or(&claim.namespace, &place.namespace);
        return look(Kind::Claim, its, &claim.name);
    }
    if let Some(snapshot) = &source.snapshot {
        let its = or(&snapshot.namespace, &place.namespace);
        return look(Kind::Snapshot, its, &snapshot.name);
    }
    silent(format!(
        "{} has no label and is neither a claim nor a snapshot",
        place.shown()
    ))
}

/// What the labels name, if they do.
fn said<'a>(family: Family, label: impl Fn(&str) -> Option<&'a str>) -> Option<Next> {
    let [name, kind] = family.labels();
    let name = label(name).filter(|name| !name.is_empty())?;
    Some(Next::End(Outcome::Found {
        name: name.to_owned(),
        kind: label(kind).unwrap_or_default().to_owned(),
    }))
}

fn look(kind: Kind, namespace: &str, name: &str) -> Next {
    Next::Look(Place {
        kind,
        namespace: namespace.to_owned(),
        name: name.to_owned(),
    })
}

fn silent(message: String) -> Next {
    Next::End(Outcome::Silent(message))
}

fn broken(message: String) -> Next {
    Next::End(Outcome::Broken(message))
}

fn or<'a>(given: &'a str, default: &'a str) -> &'a str {
    if given.is_empty() { default } else { given }
}

impl Place {
    pub fn shown(&self) -> String {
        let noun = self.kind.noun();
        format!("{noun} {}/{}", self.namespace, self.name)
    }
}

/// Writes what was inferred into the VM, or says why it cannot be had.
pub fn settle(vm: &mut VirtualMachine, inferred: &Inferred) -> Result<(), String> {
    if let Some(outcome) = &inferred.instancetype {
        settle_instancetype(vm, outcome)?;
    }
    if let Some(outcome) = &inferred.preference {
        settle_preference(vm, outcome)?;
    }
    Ok(())
}

fn settle_instancetype(vm: &mut VirtualMachine, outcome: &Outcome) -> Result<(), String> {
    let place = &mut vm.spec.instancetype;
    let Some(matcher) = place else { return Ok(()) };
    let policy = matcher.infer_from_volume_failure_policy.clone();
    let is_lenient = policy == Some(InferFromVolumeFailurePolicy::Ignore);
    let Some((name, kind)) = named(outcome, Family::Instancetype, is_lenient)? else {
        *place = None;
        return Ok(());
    };
    matcher.name = Some(name);
    matcher.kind = kind;
    matcher.infer_from_volume = None;
    matcher.infer_from_volume_failure_policy = None;
    // Memory was given for the case that nothing is found.
    if let Some(spec) = vm.spec.template.spec.as_mut().filter(|_| is_lenient) {
        spec.domain.memory = None;
    }
    Ok(())
}

fn settle_preference(vm: &mut VirtualMachine, outcome: &Outcome) -> Result<(), String> {
    let place = &mut vm.spec.preference;
    let Some(matcher) = place else { return Ok(()) };
    let policy = matcher.infer_from_volume_failure_policy.clone();
    let is_lenient = policy == Some(InferFromVolumeFailurePolicy::Ignore);
    let Some((name, kind)) = named(outcome, Family::Preference, is_lenient)? else {
        *place = None;
        return Ok(());
    };
    matcher.name = Some(name);
    matcher.kind = kind;
    matcher.infer_from_volume = None;
    matcher.infer_from_volume_failure_policy = None;
    Ok(())
}

/// Name and kind; nothing when the VM is to go without.
fn named(
    outcome: &Outcome,
    family: Family,
    is_lenient: bool,
) -> Result<Option<(String, Option<String>)>, String> {
    let refusal = |message: &str, remedy: &str| {
        let path = family.path();
        Err(format!("{path}.inferFromVolume: {message}; {remedy}"))
    };
    match outcome {
        Outcome::Found { name, kind } => {
            let kind = Some(kind.clone()).filter(|kind| !kind.is_empty());
            Ok(Some((name.clone(), kind)))
        }
        Outcome::Silent(_) if is_lenient => Ok(None),
        Outcome::Silent(message) => refusal(
            message,
            "give name instead, or inferFromVolumeFailurePolicy: Ignore",
        ),
        Outcome::Broken(message) => refusal(message, "create it first, or give name instead"),
    }
}

#[cfg(test)]
mod tests;
