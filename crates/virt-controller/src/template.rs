//! The controller of templates: reports that they can be used.
//!
//! Admission has checked a template before it is stored, so there is nothing to wait for; clients that were
//! made for `KubeVirt`'s controller of templates wait for the condition.
//!
//! **Invariant**: nothing but the condition is written.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta, Time};
use kube::runtime::watcher;
use kube::{Api, Client, ResourceExt as _};
use kubevirt_api::conditions;
use kubevirt_api::template::{VirtualMachineTemplate, VirtualMachineTemplateStatus};
use reasons::Reason;
use reconcile::{
    Clock, Fragment, Key, ReconcileError, Reconciler, Recorder, Requeue, Retry, Store, WriteError,
    apply_reported,
};
use serde::Deserialize;
use serde_json::json;

use crate::MANAGER;
use crate::gate::Gate;
use crate::operation::set_conditions;
use crate::wiring::Wiring;

const TEMPLATE: &str = "virtualmachinetemplate";
const READY: &str = "Ready";
const MESSAGE: &str = "VMs can be made of the template";

/// A template without its VM.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(from = "VirtualMachineTemplate")]
struct Template {
    metadata: ObjectMeta,
    status: VirtualMachineTemplateStatus,
}

impl From<VirtualMachineTemplate> for Template {
    fn from(template: VirtualMachineTemplate) -> Self {
        let metadata = template.metadata;
        Self {
            metadata: ObjectMeta {
                name: metadata.name,
                namespace: metadata.namespace,
                uid: metadata.uid,
                resource_version: metadata.resource_version,
                generation: metadata.generation,
                deletion_timestamp: metadata.deletion_timestamp,
                ..ObjectMeta::default()
            },
            status: template.status.unwrap_or_default(),
        }
    }
}

reconcile::resource_view!(Template, VirtualMachineTemplate, NamespaceResourceScope);

#[derive(Clone)]
struct Controller {
    client: Client,
    templates: Store<Template>,
    recorder: Recorder,
    clock: Clock,
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let templates: Store<Template> = Store::new();
    let queue = gate.clone();
    let on_change = move |one: &Template| queue.add(Key::of(one), TEMPLATE);
    wiring.watch_if_defined(watcher::Config::default(), &templates, on_change);
    let controller = Controller {
        client: wiring.settings.client.clone(),
        templates: templates.clone(),
        recorder: wiring.recorder.clone(),
        clock: wiring.settings.clock,
    };
    wiring.controller(&gate, &templates, move || controller.clone());
}

/// The condition to write, or `None` if it is there.
fn missing_condition(template: &Template, now: &Time) -> Option<Condition> {
    if template.metadata.deletion_timestamp.is_some() {
        return None;
    }
    let generation = template.metadata.generation;
    let before = conditions::find(&template.status.conditions, &READY.to_owned());
    let is_current =
        |one: &Condition| one.status == conditions::TRUE && one.observed_generation == generation;
    if before.is_some_and(is_current) {
        return None;
    }
    let mut all = before.cloned().into_iter().collect();
    let values = [(READY.to_owned(), true)];
    set_conditions(&mut all, values, (Reason::TemplateReady, MESSAGE), now);
    let mut condition = all.pop()?;
    condition.observed_generation = generation;
    Some(condition)
}

/// The status was not written.
#[derive(Debug, thiserror::Error)]
#[error("write the status")]
struct StatusError(#[source] WriteError);

impl ReconcileError for StatusError {
    fn reason(&self) -> Reason {
        Reason::FailedStatusUpdate
    }

    fn retry(&self) -> Retry {
        self.0.retry()
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "template";
    type Error = StatusError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, StatusError> {
        let Some(template) = self.templates.get(key) else {
            return Ok(Requeue::OnChange);
        };
        let now = Time(self.clock.now());
        let Some(condition) = missing_condition(&template, &now) else {
            return Ok(Requeue::OnChange);
        };
        let body = json!({
            "apiVersion": VirtualMachineTemplate::API_VERSION,
            "kind": VirtualMachineTemplate::KIND,
            "metadata": {
                "name": key.name,
                "namespace": key.namespace,
                "resourceVersion": template.resource_version(),
            },
            "status": {"conditions": [condition]},
        });
        let fragment = Fragment::of_status(MANAGER, key, body);
        let api = Api::<VirtualMachineTemplate>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, &fragment, template.as_ref(), &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/template/write-status");
                self.templates.wrote(template.as_ref(), written.into());
                Ok(Requeue::OnChange)
            }
            Err(WriteError::NotFound { .. }) => Ok(Requeue::OnChange),
            Err(error) => Err(StatusError(error)),
        }
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.templates.get(key)?.metadata.uid.clone()
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn template(generation: i64, conditions: &Value) -> Template {
        serde_json::from_value(json!({
            "metadata": {"name": "t", "namespace": "n", "generation": generation},
            "spec": {"virtualMachine": {}},
            "status": {"conditions": conditions},
        }))
        .unwrap()
    }

    #[test]
    fn condition_is_written_once_for_each_generation() {
        let now = Time("2026-11-27T12:00:00Z".parse().unwrap());
        let later = Time("2026-11-27T13:00:00Z".parse().unwrap());
        let first = missing_condition(&template(1, &json!([])), &now).unwrap();
        assert_eq!(
            (first.status.as_str(), first.reason.as_str()),
            ("True", "TemplateReady")
        );
        assert_eq!(first.observed_generation, Some(1));
        assert_eq!(
            missing_condition(&template(1, &json!([first])), &later),
            None
        );
        let next = missing_condition(&template(2, &json!([first])), &later).unwrap();
        assert_eq!(next.observed_generation, Some(2));
        assert_eq!(next.last_transition_time, now);
        let mut deleted = template(1, &json!([]));
        deleted.metadata.deletion_timestamp = Some(now.clone());
        assert_eq!(missing_condition(&deleted, &now), None);
    }
}
