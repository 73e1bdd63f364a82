//! The instance type and the preference of a VM.
//!
//! A VM holds on to what it chose: a copy of each is kept as a `ControllerRevision` when the VM is
//! first seen with it, and its instances are made by the copies. Where the administrator wants VMs
//! that depend on nothing, the choice is written out into the VM instead.

use ::instancetype::reference::{self, Family, Reference, Scope};
use ::instancetype::{Choice, Target, conflicts};
use cluster_config::ClusterConfig;
use cluster_view::sizes::{self, FindError, Found, Origin};
use defaults::template::complete;
use defaults::{Environment, carry_over, expand};
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kubevirt_api::cluster_config::InstancetypeReferencePolicy as Policy;
use kubevirt_api::instancetype::{VirtualMachineInstancetype, VirtualMachineInstancetypeSpec};
use kubevirt_api::preference::VirtualMachinePreferenceSpec;
use kubevirt_api::vm::{InstancetypeMatcher, PreferenceMatcher};
use kubevirt_api::vm_status::{ControllerRevisionRef, InstancetypeStatusRef, VirtualMachineStatus};
use kubevirt_api::vmi::VirtualMachineInstanceSpec;
use kubevirt_api::{VirtualMachine, annotations, labels, reasons};
use reconcile::{EventType, Key, Retry, WriteError, create, error_chain};
use serde_json::{Value, json};
use uuid::Uuid;
use validation::Violation;

use super::status::Done;
use super::{Controller, VmError, template};
use crate::MANAGER;
use crate::view::Vm;

/// What is to be done about the choice of a VM, before anything else.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// It chose nothing, or copies are kept.
    Nothing,
    Keep,
    WriteOut,
}

/// Why a choice cannot be followed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ChoiceError {
    #[error("find what the machine chose")]
    Find(#[source] FindError),
    #[error("keep a copy of what the machine chose")]
    Keep(#[source] WriteError),
    #[error("look at revision {name}")]
    Look {
        name: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("revision {name} exists and holds something else")]
    OtherRevision { name: String },
    #[error("apply what the machine chose: {0}")]
    Refused(String),
}

impl ChoiceError {
    /// For events, conditions and metrics.
    pub(crate) fn reason(&self) -> &'static str {
        match self {
            Self::Look { .. } => "ServerUnavailable",
            Self::Find(error) if error.is_transient() => "ServerUnavailable",
            Self::Find(_) | Self::Keep(_) | Self::OtherRevision { .. } | Self::Refused(_) => {
                reasons::vm::FAILED_CREATE
            }
        }
    }

    pub(crate) fn retry(&self) -> Retry {
        match self {
            Self::Keep(source) => source.retry(),
            Self::Find(_) | Self::Look { .. } | Self::OtherRevision { .. } | Self::Refused(_) => {
                Retry::BackOff
            }
        }
    }

    fn refused(found: &[Violation]) -> Self {
        let all: Vec<String> = found.iter().map(ToString::to_string).collect();
        Self::Refused(all.join("; "))
    }
}

/// What a VM chose, with what it means.
#[derive(Debug, Default)]
pub(super) struct Chosen {
    instancetype: Option<(Reference, VirtualMachineInstancetypeSpec)>,
    preference: Option<(Reference, VirtualMachinePreferenceSpec)>,
}

impl Chosen {
    fn is_none(&self) -> bool {
        self.instancetype.is_none() && self.preference.is_none()
    }

    fn choice(&self) -> Choice<'_> {
        Choice {
            instancetype: self.instancetype.as_ref().map(|(_, spec)| spec),
            preference: self.preference.as_ref().map(|(_, spec)| spec),
        }
    }
}

/// Whether there is a guest, which the VM must not change under.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Instance {
    Exists,
    None,
}

/// What is due, by the administrator's policy.
pub(super) fn due(vm: &Vm, instance: Instance, policy: &Policy) -> Due {
    let status = vm.status();
    let Ok([size, preference]) = references(vm, &status) else {
        // Which tells what is wrong.
        return Due::Keep;
    };
    let chosen = [
        (size, &status.instancetype_ref),
        (preference, &status.preference_ref),
    ];
    let chosen = chosen.iter().filter_map(|(reference, noted)| {
        let reference = reference.as_ref()?;
        Some((reference, noted.as_ref()))
    });
    let chosen: Vec<_> = chosen.collect();
    let has_revision = chosen.iter().any(|(one, _)| one.revision.is_some());
    let writes_out = match policy {
        Policy::ExpandAll => true,
        // Who holds on to a revision wants that one.
        Policy::Expand => !has_revision,
        Policy::Reference | Policy::Other(_) => false,
    };
    if chosen.is_empty() {
        return Due::Nothing;
    }
    if writes_out && instance == Instance::None {
        return Due::WriteOut;
    }
    let is_noted = |(reference, noted): &(&Reference, Option<&InstancetypeStatusRef>)| {
        noted.is_some_and(|noted| *noted == note(reference))
    };
    if chosen.iter().all(is_noted) {
        Due::Nothing
    } else {
        Due::Keep
    }
}

/// What the VM chose: instance type and preference. One that is there and names nothing is an
/// error: a guest of another size than its owner wants must not start.
fn references(
    vm: &Vm,
    status: &VirtualMachineStatus,
) -> Result<[Option<Reference>; 2], ChoiceError> {
    let size: Option<InstancetypeMatcher> = read(vm.spec.instancetype.as_ref());
    let preference: Option<PreferenceMatcher> = read(vm.spec.preference.as_ref());
    let size = reference::instancetype(size.as_ref(), status.instancetype_ref.as_ref());
    let preference = reference::preference(preference.as_ref(), status.preference_ref.as_ref());
    for (written, reference, family) in [
        (&vm.spec.instancetype, &size, Family::Instancetype),
        (&vm.spec.preference, &preference, Family::Preference),
    ] {
        let is_written = written.as_ref().is_some_and(|written| !written.is_null());
        if is_written && reference.is_none() {
            let path = family.path();
            let message = format!("{path}: neither a name nor a known kind; give both");
            return Err(ChoiceError::Refused(message));
        }
    }
    Ok([size, preference])
}

fn read<T: serde::de::DeserializeOwned>(matcher: Option<&Value>) -> Option<T> {
    serde_json::from_value(matcher?.clone()).ok()
}

/// What the status says of a choice.
fn note(reference: &Reference) -> InstancetypeStatusRef {
    InstancetypeStatusRef {
        name: Some(reference.name.clone()),
        kind: Some(reference.kind().to_owned()),
        controller_revision_ref: reference
            .revision
            .as_ref()
            .map(|name| ControllerRevisionRef {
                name: Some(name.clone()),
            }),
        ..InstancetypeStatusRef::default()
    }
}

/// Puts the notes on kept copies into the status, and takes out those of former choices.
pub(super) fn note_all(vm: &Vm, kept: &[Reference], status: &mut VirtualMachineStatus) {
    let noted = |family| kept.iter().find(|one| one.family == family).map(note);
    if let Some(noted) = noted(Family::Instancetype) {
        status.instancetype_ref = Some(noted);
    }
    if let Some(noted) = noted(Family::Preference) {
        status.preference_ref = Some(noted);
    }
    if vm.spec.instancetype.as_ref().is_none_or(Value::is_null) {
        status.instancetype_ref = None;
    }
    if vm.spec.preference.as_ref().is_none_or(Value::is_null) {
        status.preference_ref = None;
    }
}

/// Completes a new instance by what its VM chose.
fn apply(vmi: &mut Value, chosen: &Chosen, config: &ClusterConfig) -> Result<(), ChoiceError> {
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

/// The copy of an instance type or a preference. Its name follows from whose it is and of what.
fn revision(vm: &Vm, reference: &Reference, object: &kube::api::DynamicObject) -> Value {
    let metadata = &object.metadata;
    let uid = metadata.uid.as_deref().unwrap_or_default();
    let generation = metadata.generation.unwrap_or(0);
    let version = VirtualMachineInstancetype::VERSION;
    let own = vm.metadata.name.as_deref().unwrap_or_default();
    let name = format!("{own}-{}-{version}-{uid}-{generation}", reference.name);
    let mut copied = json!({
        "name": metadata.name, "uid": uid, "generation": generation,
        "creationTimestamp": metadata.creation_timestamp,
    });
    if let Some(namespace) = &metadata.namespace {
        copied["namespace"] = json!(namespace);
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "ControllerRevision",
        "metadata": {
            "name": name,
            "namespace": vm.metadata.namespace,
            "labels": {
                (labels::OBJECT_NAME): reference.name,
                (labels::OBJECT_KIND): reference.kind(),
                (labels::OBJECT_UID): uid,
                (labels::OBJECT_GENERATION): generation.to_string(),
                (labels::OBJECT_VERSION): version,
            },
            "ownerReferences": [template::owner(vm)],
        },
        "data": {
            "apiVersion": VirtualMachineInstancetype::API_VERSION,
            "kind": reference.kind(),
            "metadata": copied,
            "spec": object.data["spec"],
        },
        "revision": 0,
    })
}

impl Controller {
    /// Keeps a copy of what the VM chose; the answer says which.
    pub(super) async fn keep_choice(&self, vm: &Vm) -> Result<Vec<Reference>, VmError> {
        let chosen = references(vm, &vm.status())?;
        let mut kept = Vec::new();
        for reference in chosen.into_iter().flatten() {
            kept.push(self.keep(vm, reference).await?);
        }
        Ok(kept)
    }

    async fn keep(&self, vm: &Vm, mut reference: Reference) -> Result<Reference, ChoiceError> {
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let found: Found<Value> = sizes::find(&self.client, &namespace, &reference)
            .await
            .map_err(ChoiceError::Find)?;
        let Origin::Object(object) = found.origin else {
            return Ok(reference);
        };
        let body = revision(vm, &reference, &object);
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), &namespace);
        match create(&api, MANAGER, &Key::new(&namespace, name), &body).await {
            Ok(_) => {}
            Err(WriteError::AlreadyExists { .. }) => {
                let look = |source| ChoiceError::Look {
                    name: name.to_owned(),
                    source: Box::new(source),
                };
                let held = api.get(name).await.map_err(look)?;
                let data = held.data.unwrap_or_default().0;
                if data["spec"] != body["data"]["spec"] {
                    let name = name.to_owned();
                    return Err(ChoiceError::OtherRevision { name });
                }
            }
            Err(error) => return Err(ChoiceError::Keep(error)),
        }
        reference.revision = Some(name.to_owned());
        Ok(reference)
    }

    /// Completes a new instance by what its VM chose, as its copies hold it.
    pub(super) async fn apply_choice(
        &self,
        vmi: &mut Value,
        vm: &Vm,
        kept: &[Reference],
    ) -> Result<(), VmError> {
        let chosen = self.choice(vm, kept).await?;
        Ok(apply(vmi, &chosen, &self.cluster.now())?)
    }

    /// Tells the VM's owner why its choice cannot be followed.
    pub(super) fn told<T>(
        &self,
        vm: &Vm,
        done: &mut Done,
        outcome: Result<T, VmError>,
    ) -> Result<T, VmError> {
        if let Err(VmError::Choice(error)) = &outcome {
            let message = error_chain(error);
            let note = format!("Cannot use instance type or preference: {message}");
            let reason = reasons::event::FAILED_CREATE;
            self.recorder.publish(vm, EventType::Warning, reason, note);
            done.failure = Some((reasons::vm::FAILED_CREATE, message));
        }
        outcome
    }

    async fn choice(&self, vm: &Vm, kept: &[Reference]) -> Result<Chosen, VmError> {
        let [size, preference] = references(vm, &vm.status())?;
        let newer = |family| kept.iter().find(|one| one.family == family).cloned();
        let size = newer(Family::Instancetype).or(size);
        let preference = newer(Family::Preference).or(preference);
        Ok(Chosen {
            instancetype: self.spec_of(vm, size).await?,
            preference: self.spec_of(vm, preference).await?,
        })
    }

    async fn spec_of<T: serde::de::DeserializeOwned>(
        &self,
        vm: &Vm,
        reference: Option<Reference>,
    ) -> Result<Option<(Reference, T)>, ChoiceError> {
        let Some(reference) = reference else {
            return Ok(None);
        };
        let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
        let found = sizes::find(&self.client, namespace, &reference).await;
        let spec = found.map_err(ChoiceError::Find)?.spec;
        Ok(Some((reference, spec)))
    }

    /// What to merge into a VM so that it depends on nothing it chose.
    pub(super) async fn written_out(&self, vm: &Vm) -> Result<Value, VmError> {
        let chosen = self.choice(vm, &[]).await?;
        let raw = json!({
            "apiVersion": VirtualMachine::API_VERSION,
            "kind": VirtualMachine::KIND,
            "metadata": {"name": vm.metadata.name, "namespace": vm.metadata.namespace},
            "spec": {"template": vm.spec.template},
        });
        let now = Time(self.clock.now());
        let env = Environment {
            now: &now,
            new_uuid: &Uuid::new_v4,
        };
        let config = self.cluster.now();
        let expanded = expand(&raw, chosen.choice(), &config, env)
            .map_err(|found| ChoiceError::refused(&found))?;
        Ok(json!({
            "metadata": {"resourceVersion": vm.metadata.resource_version},
            "spec": {
                "template": expanded["spec"]["template"],
                "instancetype": null,
                "preference": null,
            },
        }))
    }
}
