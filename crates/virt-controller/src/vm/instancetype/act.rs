//! Stores, applies and expands the choice of a VM.

use ::instancetype::reference::{Family, Reference};
use cluster_view::sizes::{self, Found, Origin};
use defaults::{Environment, expand};
use error_chain::error_chain;
use k8s_openapi::api::apps::v1::ControllerRevision;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::Api;
use kubevirt_api::VirtualMachine;
use reasons::Reason;
use reconcile::{EventType, Key, WriteError, create, delete_named};
use serde_json::{Value, json};
use uuid::Uuid;

use super::apply::{Chosen, apply};
use super::revision::Content;
use super::upgrade::{self, Outdated};
use super::{ChoiceError, references, revision};
use crate::MANAGER;
use crate::vm::plan::Failure;
use crate::vm::status::Done;
use crate::vm::template;
use crate::vm::view::Vm;
use crate::vm::{Controller, VmError};

impl Controller {
    /// Stores revisions of the choice; returns references to them.
    pub(in crate::vm) async fn keep_choice(&self, vm: &Vm) -> Result<Vec<Reference>, VmError> {
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
            .map_err(|source| ChoiceError::Find {
                family: reference.family,
                source,
            })?;
        let Origin::Object(object) = found.origin else {
            return Ok(reference);
        };
        let body = revision::body(vm, &Content::of_object(&reference, &object));
        reference.revision = Some(self.store(&namespace, &body).await?);
        Ok(reference)
    }

    /// Stores a revision; returns its name.
    async fn store(&self, namespace: &str, body: &Value) -> Result<String, ChoiceError> {
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), namespace);
        match create(&api, MANAGER, &Key::new(namespace, name), body).await {
            Ok(_) => {}
            Err(WriteError::AlreadyExists { .. }) => {
                let read_error = |source| ChoiceError::Read {
                    name: name.to_owned(),
                    source: Box::new(source),
                };
                let held = api.get(name).await.map_err(read_error)?;
                let data = held.data.unwrap_or_default().0;
                if data["spec"] != body["data"]["spec"] {
                    let name = name.to_owned();
                    return Err(ChoiceError::OtherRevision { name });
                }
            }
            Err(error) => return Err(ChoiceError::Keep(error)),
        }
        Ok(name.to_owned())
    }

    /// The recorded revisions of an older format.
    pub(in crate::vm) async fn observe_outdated(&self, vm: &Vm) -> Result<Vec<Outdated>, VmError> {
        let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), namespace);
        let mut all = Vec::new();
        for reference in upgrade::candidates(vm) {
            let name = reference.revision.clone().unwrap_or_default();
            let found = api.get_opt(&name).await.map_err(|source| {
                let source = Box::new(source);
                VmError::Choice(ChoiceError::Read { name, source })
            })?;
            all.extend(found.and_then(|found| upgrade::outdated(vm, reference, &found)));
        }
        Ok(all)
    }

    /// Stores outdated revisions in the current format; returns references to them.
    pub(in crate::vm) async fn upgrade_choice(
        &self,
        vm: &Vm,
        outdated: &[Outdated],
    ) -> Result<Vec<Reference>, VmError> {
        let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
        let mut kept = Vec::new();
        for old in outdated {
            let revision = Some(self.store(namespace, &old.body).await?);
            kept.push(Reference {
                revision,
                ..old.reference.clone()
            });
        }
        Ok(kept)
    }

    /// Deletes revisions that the status refers to no more.
    pub(in crate::vm) async fn drop_outdated(
        &self,
        vm: &Vm,
        outdated: &[Outdated],
    ) -> Result<(), VmError> {
        let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), namespace);
        for old in outdated {
            let gone = delete_named(&api, &Key::new(namespace, &old.name)).await;
            gone.map_err(ChoiceError::Keep)?;
        }
        Ok(())
    }

    /// Applies the stored choice to a new VMI.
    pub(in crate::vm) async fn apply_choice(
        &self,
        vmi: &mut Value,
        vm: &Vm,
        kept: &[Reference],
    ) -> Result<(), VmError> {
        let chosen = self.choice(vm, kept).await?;
        Ok(apply(vmi, &chosen, &self.cluster.now())?)
    }

    /// The spec of a VMI made of the VM, with its stored choice. `None` if the choice cannot be applied.
    pub(in crate::vm) async fn applied_spec(&self, vm: &Vm) -> Result<Option<Value>, VmError> {
        let mut body = template::vmi(vm, &[]);
        match self.apply_choice(&mut body, vm, &[]).await {
            Ok(()) => Ok(Some(body["spec"].take())),
            Err(VmError::Choice(error)) if error.reason() != Reason::ServerUnavailable => {
                let error = error_chain(&error);
                tracing::debug!(error, "instance type or preference cannot be applied");
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Reports in an event and the status why the choice cannot be applied.
    pub(in crate::vm) fn report_choice_error<T>(
        &self,
        vm: &Vm,
        done: &mut Done,
        outcome: Result<T, VmError>,
    ) -> Result<T, VmError> {
        if let Err(VmError::Choice(error)) = &outcome {
            let message = error_chain(error);
            let note = format!("Cannot use instance type or preference: {message}");
            // A server that is unavailable for a moment is not a fault of the choice.
            let reason = Some(error.reason()).filter(|reason| *reason != Reason::ServerUnavailable);
            let reason = reason.unwrap_or(Reason::FailedCreate);
            self.recorder.publish(vm, EventType::Warning, reason, note);
            done.failure = Some(Failure { reason, message });
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
        let found = found.map_err(|source| ChoiceError::Find {
            family: reference.family,
            source,
        })?;
        let spec = found.spec;
        Ok(Some((reference, spec)))
    }

    /// The patch that expands the choice into the VM.
    pub(in crate::vm) async fn expanded(&self, vm: &Vm) -> Result<Value, VmError> {
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
