//! Carries out a plan: pods first, then the status.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::Pod;
use kube::{Api, ResourceExt as _};
use kubevirt_api::vmi_status::VolumeStatus;
use launcher_pod::{Attachment, attachment_pod};
use reasons::Reason;
use reconcile::{EventType, Key, WriteError, create, delete, merge};
use serde_json::json;

use super::observe::Observed;
use super::plan::{Plan, Step, explain};
use super::{Controller, HotplugError};
use crate::MANAGER;
use crate::view::Guest;
use crate::vmi::{LauncherPod, PodSource};

impl Controller {
    pub(super) async fn act(&self, observed: &Observed, plan: &Plan) -> Result<(), HotplugError> {
        let mut outcome = Ok(());
        let mut volumes = plan.volumes.clone();
        for step in &plan.steps {
            outcome = match step {
                Step::Create(claims) => self.create(observed, claims).await,
                Step::Delete(name) => self.delete(observed, name).await,
            };
            let refused = match &outcome {
                Err(HotplugError::Create(WriteError::Refused { message, .. })) => Some(message),
                _ => None,
            };
            if let (Step::Create(claims), Some(message)) = (step, refused) {
                let message = format!("the attachment pod cannot be created: {message}");
                explain(&mut volumes, claims, Reason::AttachmentPodFailed, &message);
            }
            if outcome.is_err() {
                break;
            }
            failpoints::after(name(step));
        }
        self.write_status(observed, &volumes).await?;
        outcome
    }

    async fn create(
        &self,
        observed: &Observed,
        claims: &BTreeMap<String, String>,
    ) -> Result<(), HotplugError> {
        let (vmi, Some(launcher)) = (observed.vmi.as_ref(), &observed.launcher) else {
            return Ok(());
        };
        let Some(pod) = attachment_for(&self.source, vmi, launcher, claims) else {
            return Ok(());
        };
        let key = Key::of(&pod);
        let api = Api::<Pod>::namespaced(self.client.clone(), &key.namespace);
        match create(&api, MANAGER, &key, &pod).await {
            Ok(_) => {
                tracing::info!(pod = key.name, "attachment pod created");
                let note = format!("Created attachment pod {}", key.name);
                let reason = Reason::SuccessfulCreate;
                self.recorder.publish(vmi, EventType::Normal, reason, note);
                Ok(())
            }
            // Created by an earlier reconcile, and not observed yet. A pod of another owner is observed
            // as one that mounts other claims, or never.
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => {
                let note = format!("Cannot create attachment pod {}: {error}", key.name);
                let reason = Reason::AttachmentPodFailed;
                self.recorder.publish(vmi, EventType::Warning, reason, note);
                Err(HotplugError::Create(error))
            }
        }
    }

    async fn delete(&self, observed: &Observed, name: &str) -> Result<(), HotplugError> {
        let mut pods = observed.attachments.iter();
        let Some(pod) = pods.find(|pod| pod.name_any() == name) else {
            return Ok(());
        };
        let key = Key::of(pod.as_ref());
        let api = Api::<Pod>::namespaced(self.client.clone(), &key.namespace);
        let uid = pod.uid().unwrap_or_default();
        let deleted = delete(&api, &key, &uid, None).await;
        deleted.map_err(HotplugError::Delete)?;
        tracing::info!(pod = name, "attachment pod deleted");
        Ok(())
    }

    /// Writes the whole list, which virt-handler writes, too: only if the VMI has not changed meanwhile.
    async fn write_status(
        &self,
        observed: &Observed,
        volumes: &[VolumeStatus],
    ) -> Result<(), HotplugError> {
        let vmi = observed.vmi.as_ref();
        if vmi.status.volumes == volumes {
            return Ok(());
        }
        let key = Key::of(vmi);
        let body = json!({
            "metadata": {"resourceVersion": vmi.metadata.resource_version},
            "status": {"volumeStatus": volumes},
        });
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        match merge(&api, MANAGER, &key, &body).await {
            Ok(written) => self.vmis.wrote(vmi, written),
            Err(WriteError::NotFound { .. }) => return Ok(()),
            Err(error) => return Err(HotplugError::Status(error)),
        }
        failpoints::after("virt-controller/hotplug/write-status");
        self.publish_changes(vmi, volumes);
        Ok(())
    }

    fn publish_changes(&self, vmi: &Guest, written: &[VolumeStatus]) {
        for volume in written {
            let mut before = vmi.status.volumes.iter();
            let before = before.find(|one| one.name == volume.name);
            if before.is_some_and(|before| before.reason == volume.reason) {
                continue;
            }
            let reason = volume.reason.as_deref().unwrap_or_default();
            let (Ok(reason), Some(message)) = (reason.parse::<Reason>(), &volume.message) else {
                continue;
            };
            let kind = match reason.retry() {
                reasons::Retry::NotNeeded | reasons::Retry::Transient => EventType::Normal,
                reasons::Retry::NeedsChange | reasons::Retry::Permanent => EventType::Warning,
            };
            self.recorder.publish(vmi, kind, reason, message.clone());
        }
    }
}

/// The pod that brings these claims to a pod of the guest; `None` while that pod has no node.
pub(crate) fn attachment_for(
    source: &PodSource,
    vmi: &Guest,
    launcher: &LauncherPod,
    claims: &BTreeMap<String, String>,
) -> Option<Pod> {
    let config = source.cluster.now();
    let settings = source.launcher.clone().configured(&config.written);
    let key = Key::of(vmi);
    Some(attachment_pod(&Attachment {
        namespace: &key.namespace,
        vmi_name: &key.name,
        vmi_uid: vmi.metadata.uid.as_deref().unwrap_or_default(),
        launcher_name: &launcher.name_any(),
        launcher_uid: launcher.metadata.uid.as_deref().unwrap_or_default(),
        node: launcher.node_name.as_deref()?,
        volumes: claims,
        tolerations: &vmi.tolerations,
        settings: &settings,
    }))
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Create(_) => "virt-controller/hotplug/create-pod",
        Step::Delete(_) => "virt-controller/hotplug/delete-pod",
    }
}
