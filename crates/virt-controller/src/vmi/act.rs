//! Carrying out a plan: pods first, then the status, then the finalizer.

use kube::{Api, ResourceExt as _};
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType, VirtualMachineInstancePhase as Phase,
};
use kubevirt_api::{VirtualMachineInstance, reasons};
use launcher_pod::Acceleration;
use reconcile::{EventType, Fragment, Key, Requeue, WriteError, apply, create, delete, merge};
use serde_json::json;

use super::observe::Observed;
use super::plan::{Plan, Step, is_ours};
use super::status::{self, Done, PodFacts};
use super::{Controller, VmiError};
use crate::MANAGER;
use crate::view::LauncherPod;

impl Controller {
    pub(super) async fn act(&self, seen: &Observed, plan: &Plan) -> Result<Requeue, VmiError> {
        let mut done = Done {
            unsupported: plan.unsupported.clone(),
            ..Done::default()
        };
        self.tell_unsupported(&seen.vmi, &done);
        let mut phase = plan.phase.clone();
        let mut outcome = Ok(());
        for step in &plan.steps {
            outcome = match step {
                Step::CreatePod => self.create_pod(seen, &mut phase, &mut done).await,
                Step::DeletePod => self.delete_pod(seen, seen.pod.as_deref()).await,
                Step::DeleteOthers => self.delete_others(seen).await,
                Step::RemoveFinalizer => return self.remove_finalizer(&seen.vmi).await,
            };
            if outcome.is_err() {
                break;
            }
        }
        self.write_status(seen, &phase, &done).await?;
        outcome?;
        Ok(plan.look_again_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn create_pod(
        &self,
        seen: &Observed,
        phase: &mut Phase,
        done: &mut Done,
    ) -> Result<(), VmiError> {
        let vmi = seen.vmi.as_ref();
        let settings = launcher_pod::Settings {
            acceleration: seen.acceleration.unwrap_or(Acceleration::Kvm),
            ..self.launcher.clone()
        };
        let rendered = launcher_pod::pod(vmi, &settings)
            .and_then(|pod| Ok((pod, launcher_pod::memory_overhead(vmi, &settings)?)));
        let (pod, overhead) = match rendered {
            Ok(rendered) => rendered,
            Err(error) => {
                // The VMI's spec never changes, so trying again would not help.
                self.refuse(vmi, done, &error.to_string());
                return Ok(());
            }
        };
        let key = Key::of(&pod);
        let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
        let existed = match create(&api, MANAGER, &key, &pod).await {
            Ok(_) => false,
            // Ours, of a moment ago: the name has the VMI's UID in it.
            Err(WriteError::AlreadyExists { .. }) => true,
            Err(error) => {
                self.refuse(vmi, done, &error.to_string());
                return Err(VmiError::Create(error));
            }
        };
        if !existed {
            tracing::info!(pod = key.name, "pod created");
            let note = format!("Created virtual machine pod {}", key.name);
            let reason = reasons::event::SUCCESSFUL_CREATE;
            self.recorder.publish(vmi, EventType::Normal, reason, note);
        }
        *phase = Phase::Scheduling;
        done.pod = Some(PodFacts {
            image: settings.launcher_image,
            overhead,
        });
        Ok(())
    }

    /// Once: a condition that is there was told already.
    fn tell_unsupported(&self, vmi: &VirtualMachineInstance, done: &Done) {
        let Some(message) = &done.unsupported else {
            return;
        };
        let said = vmi.status.as_ref().and_then(|status| {
            let kind = VirtualMachineInstanceConditionType::Synchronized;
            conditions::find(&status.conditions, &kind)
        });
        let reason = reasons::vmi::FEATURE_NOT_SUPPORTED;
        if said.is_none_or(|said| said.reason() != reason) {
            self.recorder
                .publish(vmi, EventType::Warning, reason, message.clone());
        }
    }

    fn refuse(&self, vmi: &VirtualMachineInstance, done: &mut Done, message: &str) {
        let note = format!("Cannot create the pod: {message}");
        self.recorder
            .publish(vmi, EventType::Warning, reasons::event::FAILED_CREATE, note);
        done.failure = Some(message.to_owned());
    }

    async fn delete_pod(&self, seen: &Observed, pod: Option<&LauncherPod>) -> Result<(), VmiError> {
        let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) else {
            return Ok(());
        };
        let key = Key::of(pod);
        let uid = pod.uid().unwrap_or_default();
        let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
        let vmi = seen.vmi.as_ref();
        match delete(&api, &key, &uid, None).await {
            Ok(()) => {
                tracing::info!(pod = key.name, "pod deleted");
                let note = format!("Deleted virtual machine pod {}", key.name);
                let reason = reasons::event::SUCCESSFUL_DELETE;
                self.recorder.publish(vmi, EventType::Normal, reason, note);
                Ok(())
            }
            Err(error) => {
                let note = format!("Cannot delete pod {}: {error}", key.name);
                let reason = reasons::event::FAILED_DELETE;
                self.recorder.publish(vmi, EventType::Warning, reason, note);
                Err(VmiError::Delete(error))
            }
        }
    }

    async fn delete_others(&self, seen: &Observed) -> Result<(), VmiError> {
        for pod in &seen.others {
            self.delete_pod(seen, Some(pod)).await?;
        }
        Ok(())
    }

    /// Takes off only this controller's finalizer; a list that changed meanwhile is a conflict
    /// and looked at again.
    async fn remove_finalizer(&self, vmi: &VirtualMachineInstance) -> Result<Requeue, VmiError> {
        let list = vmi
            .metadata
            .finalizers
            .as_deref()
            .unwrap_or_default()
            .iter();
        let left: Vec<&String> = list.filter(|name| !is_ours(name)).collect();
        let body = json!({"metadata": {
            "resourceVersion": vmi.metadata.resource_version,
            "finalizers": left,
        }});
        let key = Key::of(vmi);
        let api = Api::<VirtualMachineInstance>::namespaced(self.client.clone(), &key.namespace);
        match merge(&api, MANAGER, &key, &body).await {
            Ok(written) => self.vmis.wrote(vmi, written),
            Err(WriteError::NotFound { .. }) => {}
            Err(error) => return Err(VmiError::Finalizer(error)),
        }
        Ok(Requeue::OnChange)
    }

    async fn write_status(
        &self,
        seen: &Observed,
        phase: &Phase,
        done: &Done,
    ) -> Result<(), VmiError> {
        let status = status::render(seen, phase, done);
        let key = Key::of(seen.vmi.as_ref());
        let Some(body) = status::fragment(&seen.vmi, &key, &status) else {
            return Ok(());
        };
        let before = seen
            .vmi
            .status
            .as_ref()
            .and_then(|status| status.phase.as_ref());
        if before != Some(phase) {
            tracing::info!(from = before.map_or("", Phase::as_str), to = %phase, "phase changes");
        }
        let api = Api::<VirtualMachineInstance>::namespaced(self.client.clone(), &key.namespace);
        let fragment = Fragment {
            manager: MANAGER,
            key: &key,
            subresource: None,
            body,
        };
        match apply(&api, &fragment).await {
            Ok(written) => {
                self.vmis.wrote(&seen.vmi, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(VmiError::Status(error)),
        }
    }
}
