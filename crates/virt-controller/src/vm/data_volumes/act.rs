//! Creates and adopts data volumes, and publishes events about them.

use error_chain::error_chain;
use kube::ResourceExt as _;
use kube::api::Api;
use kubevirt_api::data_volume_status::DataVolumePhase as Phase;
use reasons::Reason;
use reconcile::{EventType, Key, WriteError, create, merge};
use serde_json::{Value, json};

use super::{DataVolumeError, Readiness, Templated, body, readiness, unpopulated};
use crate::MANAGER;
use crate::view::DataVolume;
use crate::vm::observe::Observed;
use crate::vm::plan::Failure;
use crate::vm::status::Done;
use crate::vm::view::Vm;
use crate::vm::{Controller, VmError, template};

impl Controller {
    pub(in crate::vm) async fn create_data_volume(
        &self,
        observed: &Observed,
        index: usize,
        done: &mut Done,
    ) -> Result<(), VmError> {
        let Some((one, template)) = nth(observed, index) else {
            return Ok(());
        };
        let vm = observed.vm.as_ref();
        let outcome = async {
            let copied = self.authorize(vm, &one.name, template).await?;
            let body = body(vm, &one.name, template, copied.as_ref());
            self.send_data_volume(vm, &one.name, &body).await
        };
        match outcome.await {
            Ok(true) => {
                let note = format!("Created data volume {}", one.name);
                let reason = Reason::SuccessfulDataVolumeCreate;
                self.recorder.publish(vm, EventType::Normal, reason, note);
                Ok(())
            }
            // Created by an earlier reconcile; the watch will deliver it.
            Ok(false) => Ok(()),
            Err(error) => {
                let text = error_chain(&error);
                let note = format!("Cannot create data volume {}: {text}", one.name);
                self.recorder
                    .publish(vm, EventType::Warning, error.reason(), note);
                done.failure = Some(Failure {
                    reason: Reason::FailedCreate,
                    message: text,
                });
                Err(error.into())
            }
        }
    }

    /// Returns whether it was created just now.
    async fn send_data_volume(
        &self,
        vm: &Vm,
        name: &str,
        body: &Value,
    ) -> Result<bool, DataVolumeError> {
        let namespace = vm.metadata.namespace.as_deref().unwrap_or_default();
        let api = Api::<DataVolume>::namespaced(self.client.clone(), namespace);
        let key = Key::new(namespace, name);
        match create(&api, MANAGER, &key, body).await {
            Ok(_) => Ok(true),
            Err(WriteError::AlreadyExists { .. }) => Ok(false),
            Err(source) => Err(DataVolumeError::Create {
                name: name.to_owned(),
                source,
            }),
        }
    }

    pub(in crate::vm) async fn adopt_data_volume(
        &self,
        observed: &Observed,
        index: usize,
    ) -> Result<(), VmError> {
        let Some((one, _)) = nth(observed, index) else {
            return Ok(());
        };
        let Some(there) = &one.data_volume else {
            return Ok(());
        };
        let mut owners = json!(there.owner_references());
        if let Some(list) = owners.as_array_mut() {
            list.push(template::owner(&observed.vm));
        }
        let key = Key::of(there.as_ref());
        let api = Api::<DataVolume>::namespaced(self.client.clone(), &key.namespace);
        let body = json!({"metadata": {
            "resourceVersion": there.metadata.resource_version,
            "ownerReferences": owners,
        }});
        match merge(&api, MANAGER, &key, &body).await {
            Ok(_) => Ok(()),
            Err(source) => Err(DataVolumeError::Adopt {
                name: one.name.clone(),
                source,
            }
            .into()),
        }
    }

    /// Publishes events about data volumes, unless the condition has the same message already.
    pub(in crate::vm) fn publish_data_volume_events(
        &self,
        observed: &Observed,
        last_message: Option<&str>,
    ) {
        let Readiness::Waits(message) = readiness(observed) else {
            return;
        };
        if last_message == Some(&message) {
            return;
        }
        for one in &observed.templates {
            let Some(there) = &one.data_volume else {
                continue;
            };
            let reason = match (&there.phase, &one.missing_source) {
                (Phase::Failed, _) => Reason::FailedDataVolumeImport,
                (Phase::Pending, Some(_)) => Reason::SourcePVCNotAvailable,
                _ => continue,
            };
            let note = unpopulated(one, there).unwrap_or_default();
            self.recorder
                .publish(observed.vm.as_ref(), EventType::Warning, reason, note);
        }
    }
}

fn nth(observed: &Observed, index: usize) -> Option<(&Templated, &Value)> {
    let one = observed.templates.get(index)?;
    let mut all = observed.vm.data_volume_templates();
    let template = all.find(|(name, _)| *name == one.name)?;
    Some((one, template.1))
}
