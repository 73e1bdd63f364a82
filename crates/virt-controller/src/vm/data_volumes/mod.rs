//! Data volumes from the templates of a VM.
//!
//! Each has the name in its template and the VM as its controlling owner. An external importer
//! populates them; an existing claim of the same name replaces one. No VMI is created before all are
//! populated or wait only for a pod that uses them, and none from a data volume of another VM.
//!
//! **Invariant**: data of another namespace is copied only if the service account of the VM may copy
//! it (`authorize.rs`): the importer trusts the creator of a data volume, which is this controller.

mod act;
mod authorize;
mod error;

use std::sync::Arc;

use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use kube::{Resource as _, ResourceExt as _};
use kubevirt_api::data_volume_status::DataVolumePhase as Phase;
use kubevirt_api::{VirtualMachine, annotations, labels};
use reconcile::Key;
use serde_json::{Value, json};

use super::observe::Observed;
use super::plan::Step;
use super::strategy::Decision;
use super::template;
use crate::data_source::Target;
use crate::data_volume::permit;
use crate::view::DataVolume;
use crate::vm::view::Vm;

pub(crate) use error::DataVolumeError;

const GROUP: &str = "cdi.kubevirt.io";

/// A template and its observed objects.
#[derive(Debug, Clone)]
pub(super) struct Templated {
    pub(super) name: String,
    pub(super) data_volume: Option<Arc<DataVolume>>,
    /// Whether a claim of its name exists that is not deleted together with a data volume.
    pub(super) has_claim: bool,
    /// The key of the claim to copy, if it does not exist.
    pub(super) missing_source: Option<Key>,
}

/// Whether the cluster defines data volumes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Importer {
    Installed,
    Missing,
}

/// The state of the data volumes of a VM.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Readiness {
    Ready,
    /// Not all are populated; the message has the details.
    Waits(String),
    /// There is no importer.
    Impossible(String),
}

/// The steps for templates, before the next action of the VM.
pub(super) fn steps(observed: &Observed, next: Decision) -> Vec<Step> {
    let at_once = observed
        .vm
        .annotation(annotations::IMMEDIATE_DATA_VOLUME_CREATION)
        != Some("false");
    let all = observed.templates.iter().enumerate();
    all.filter_map(|(index, one)| match &one.data_volume {
        Some(there) if is_unowned(there) => Some(Step::AdoptDataVolume(index)),
        Some(_) => None,
        None if one.has_claim || observed.importer == Importer::Missing => None,
        None => (at_once || next == Decision::Start).then_some(Step::CreateDataVolume(index)),
    })
    .collect()
}

fn is_unowned(there: &DataVolume) -> bool {
    let mut owners = there.owner_references().iter();
    there.metadata.deletion_timestamp.is_none()
        && !owners.any(|owner| owner.controller == Some(true))
}

/// Whether a VMI may be created.
pub(super) fn readiness(observed: &Observed) -> Readiness {
    let mut waits = Vec::new();
    for (index, one) in observed.templates.iter().enumerate() {
        let name = &one.name;
        match &one.data_volume {
            None if one.has_claim => {}
            None if observed.importer == Importer::Missing => {
                return Readiness::Impossible(format!(
                    "spec.dataVolumeTemplates[{index}]: this cluster has no importer of data \
                     volumes (datavolumes.{GROUP}): install one, or create \
                     persistentvolumeclaim {name} yourself"
                ));
            }
            None => waits.push(format!("data volume {name} does not exist yet")),
            Some(there) if is_leaving(&observed.vm, there) => {
                waits.push(format!("data volume {name} is being deleted"));
            }
            Some(there) => {
                let taken = taken(&observed.vm, name, there);
                waits.extend(taken.or_else(|| unpopulated(one, there)));
            }
        }
    }
    if waits.is_empty() {
        Readiness::Ready
    } else {
        Readiness::Waits(waits.join("; "))
    }
}

/// Whether the data volume is about to disappear: it is being deleted, or it is the one of a VM of the same
/// name that was deleted before, and the garbage collector has not come to it yet.
fn is_leaving(vm: &Vm, there: &DataVolume) -> bool {
    let is_predecessor = |owner: &OwnerReference| {
        owner.controller == Some(true)
            && owner.kind == VirtualMachine::KIND
            && owner.name == vm.name_any()
            && Some(&owner.uid) != vm.metadata.uid.as_ref()
    };
    there.metadata.deletion_timestamp.is_some()
        || there.owner_references().iter().any(is_predecessor)
}

/// Two VMs that write to one disk destroy it. `KubeVirt` looks at the phase alone; a data volume that another kind of
/// object controls is accepted here as well.
fn taken(vm: &Vm, name: &str, there: &DataVolume) -> Option<String> {
    let owner = other_owner(vm, there)?;
    Some(format!(
        "data volume {name} belongs to virtualmachine {owner}: choose another name in \
         spec.dataVolumeTemplates"
    ))
}

/// The name of another VM that the data volume belongs to.
pub(super) fn other_owner<'a>(vm: &Vm, there: &'a DataVolume) -> Option<&'a str> {
    let mut owners = there.owner_references().iter();
    let owner = owners.find(|owner| {
        owner.controller == Some(true)
            && owner.kind == VirtualMachine::KIND
            && Some(&owner.uid) != vm.metadata.uid.as_ref()
    })?;
    Some(&owner.name)
}

fn unpopulated(one: &Templated, there: &DataVolume) -> Option<String> {
    let name = &one.name;
    match &there.phase {
        Phase::Succeeded | Phase::WaitForFirstConsumer | Phase::PendingPopulation => None,
        Phase::Failed => Some(there.failure(name)),
        Phase::Unset => Some(format!("no importer has processed data volume {name} yet")),
        phase => Some(match &one.missing_source {
            Some(source) => format!(
                "data volume {name} is a copy of persistentvolumeclaim {source}, which does not \
                 exist"
            ),
            None => format!("data volume {name} is {}", phase.as_str()),
        }),
    }
}

/// The claim that a template copies.
pub(super) fn source_claim(template: &Value, namespace: &str) -> Option<Key> {
    let claim = template.pointer("/spec/source/pvc")?;
    let given = claim["namespace"].as_str().filter(|it| !it.is_empty());
    Some(Key::new(
        given.unwrap_or(namespace),
        claim["name"].as_str()?,
    ))
}

/// The data volume to create from a template. `permitted` is the source in another namespace that it may copy.
pub(super) fn body(vm: &Vm, name: &str, template: &Value, permitted: Option<&Target>) -> Value {
    let copied = |member: &str| {
        let found = template["metadata"].get(member);
        let found = found.filter(|members| members.is_object());
        found.cloned().unwrap_or_else(|| json!({}))
    };
    let (mut marks, mut notes) = (copied("labels"), copied("annotations"));
    marks[labels::CREATED_BY] = json!(vm.metadata.uid);
    if notes[annotations::CDI_ALLOW_CLAIM_ADOPTION].is_null() {
        notes[annotations::CDI_ALLOW_CLAIM_ADOPTION] = "true".into();
    }
    // One in the template proves nothing.
    if let Some(notes) = notes.as_object_mut() {
        notes.remove(annotations::COPY_PERMITTED);
    }
    if let Some(permitted) = permitted {
        notes[annotations::COPY_PERMITTED] = permit(permitted).into();
    }
    let mut spec = template.get("spec").cloned().unwrap_or_else(|| json!({}));
    let class = vm.spec.template.pointer("/spec/priorityClassName");
    if let Some(class) = class.and_then(Value::as_str).filter(|it| !it.is_empty())
        && spec["priorityClassName"].as_str().is_none_or(str::is_empty)
    {
        spec["priorityClassName"] = class.into();
    }
    json!({
        "apiVersion": format!("{GROUP}/v1beta1"),
        "kind": DataVolume::kind(&()),
        "metadata": {
            "name": name,
            "namespace": vm.metadata.namespace,
            "labels": marks,
            "annotations": notes,
            "ownerReferences": [template::owner(vm)],
        },
        "spec": spec,
    })
}
