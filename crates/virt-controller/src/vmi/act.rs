//! Carries out a plan: pods first, then the status, then the finalizer.

use std::collections::BTreeMap;

use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use kube::{Api, ResourceExt as _};
use kubevirt_api::annotations;
use kubevirt_api::conditions::{self, Condition as _};
use kubevirt_api::storage_profile::ClaimPropertySet;
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType, VirtualMachineInstancePhase as Phase,
};
use launcher_pod::{Acceleration, PodError, Surroundings};
use reasons::Reason;
use reconcile::{EventType, Key, Requeue, WriteError, apply_reported, create, delete, merge};
use serde_json::json;

use super::nics;
use super::observe::{Observed, is_of};
use super::plan::{Plan, Step, is_ours};
use super::pod::LauncherPod;
use super::state_claim::{self, Access};
use super::status::{self, Done, PodFacts};
use super::{Controller, VmiError};
use crate::MANAGER;
use crate::view::{Guest, WholeVmi};
use crate::vm::without_interfaces;

impl Controller {
    pub(super) async fn act(&self, observed: &Observed, plan: &Plan) -> Result<Requeue, VmiError> {
        let mut done = Done::default();
        self.publish_problem(&observed.vmi, plan);
        let mut outcome = Ok(());
        for step in &plan.steps {
            outcome = match step {
                Step::CreateStateClaim => self.create_state_claim(observed, &mut done).await,
                Step::CreatePod => self.create_pod(observed, &mut done).await,
                Step::CreateBinder => self.create_binder(observed, &mut done).await,
                Step::DeletePod => self.delete_pod(observed, observed.pod.as_deref()).await,
                Step::DeleteOthers => self.delete_others(observed).await,
                Step::ChangeNetworks => self.change_networks(observed).await,
                Step::DropInterfaces => self.drop_interfaces(observed).await,
                Step::SettleVolumes => return Box::pin(self.settle_volumes(observed)).await,
                Step::RemoveFinalizer => return self.remove_finalizer(&observed.vmi).await,
            };
            if outcome.is_err() {
                break;
            }
            failpoints::after(name(*step));
        }
        self.write_status(observed, plan, &done).await?;
        outcome?;
        self.publish_devices(observed).await?;
        Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After))
    }

    /// Annotates pods with the devices of their networks, which their sidecars read as a file.
    async fn publish_devices(&self, observed: &Observed) -> Result<(), VmiError> {
        for pod in &observed.waiting_for_devices {
            let key = Key::of(pod.as_ref());
            let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
            let body = json!({"metadata": {
                "uid": pod.metadata.uid,
                "annotations": {annotations::NETWORK_INFO: pod.missing_device_info},
            }});
            match merge(&api, MANAGER, &key, &body).await {
                Ok(_) => tracing::info!(pod = key.name, "devices of the pod's networks published"),
                Err(WriteError::NotFound { .. }) => {}
                Err(error) => return Err(VmiError::Devices(error)),
            }
        }
        Ok(())
    }

    /// Has the running pod join and leave networks.
    async fn change_networks(&self, observed: &Observed) -> Result<(), VmiError> {
        let Some(pod) = observed.pod.as_deref() else {
            return Ok(());
        };
        let Some(text) = nics::annotation(&observed.vmi, pod) else {
            return Ok(());
        };
        let key = Key::of(pod);
        let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
        // Another one may have changed the networks since.
        let body = json!({"metadata": {
            "uid": pod.metadata.uid,
            "resourceVersion": pod.metadata.resource_version,
            "annotations": {annotations::CNI_NETWORKS: text},
        }});
        match merge(&api, MANAGER, &key, &body).await {
            Ok(_) => tracing::info!(pod = key.name, "networks of the running pod changed"),
            Err(WriteError::NotFound { .. }) => {}
            Err(error) => return Err(VmiError::Networks(error)),
        }
        Ok(())
    }

    /// Removes interfaces from the VMI that guest and pod have lost.
    async fn drop_interfaces(&self, observed: &Observed) -> Result<(), VmiError> {
        let vmi = observed.vmi.as_ref();
        let Some(pod) = observed.pod.as_deref() else {
            return Ok(());
        };
        let gone = nics::gone(vmi, pod);
        let key = Key::of(vmi);
        let whole = Api::<WholeVmi>::namespaced(self.client.clone(), &key.namespace);
        let whole = whole.get_opt(&key.name).await;
        let whole = whole.map_err(|error| VmiError::Read(Box::new(error)))?;
        // One that has changed since is looked at again.
        let is_same =
            |whole: &WholeVmi| whole.metadata.resource_version == vmi.metadata.resource_version;
        let Some(whole) = whole.filter(is_same) else {
            return Ok(());
        };
        let body = json!({
            "metadata": {"resourceVersion": vmi.metadata.resource_version},
            "spec": without_interfaces(&whole.spec, &gone),
        });
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        match merge(&api, MANAGER, &key, &body).await {
            Ok(written) => {
                tracing::info!(interfaces = ?gone, "unplugged interfaces removed from the VMI");
                self.vmis.wrote(vmi, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(VmiError::Interfaces(error)),
        }
    }

    async fn create_state_claim(
        &self,
        observed: &Observed,
        done: &mut Done,
    ) -> Result<(), VmiError> {
        let vmi = observed.vmi.as_ref();
        let config = self.source.cluster.now();
        let class = config.written.vm_state_storage_class.as_deref();
        let access = Access::offered(&self.property_sets(class));
        let claim = state_claim::render(vmi, class, access);
        let key = Key::of(&claim);
        let api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), &key.namespace);
        match create(&api, MANAGER, &key, &claim).await {
            Ok(_) => {
                tracing::info!(claim = key.name, "claim for the guest's state created");
                Ok(())
            }
            // Created by an earlier reconcile, and not observed yet.
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => {
                let message = format!("claim {} for the guest's state: {error}", key.name);
                self.recorder.publish(
                    vmi,
                    EventType::Warning,
                    Reason::FailedBackendStorageCreate,
                    message.clone(),
                );
                done.failure = Some(message);
                Err(VmiError::CreateClaim(error))
            }
        }
    }

    /// How claims of the storage class, or of the default one, are best made.
    fn property_sets(&self, class: Option<&str>) -> Vec<ClaimPropertySet> {
        let default = || {
            let all = self.classes.list();
            let found = all.iter().find(|class| class.is_default);
            found.map(|class| class.name_any())
        };
        let named = class.filter(|class| !class.is_empty()).map(str::to_owned);
        let profile = named
            .or_else(default)
            .and_then(|name| self.profiles.get(&Key::new("", name)));
        let status = profile.and_then(|profile| profile.status.clone());
        status.unwrap_or_default().claim_property_sets
    }

    async fn create_pod(&self, observed: &Observed, done: &mut Done) -> Result<(), VmiError> {
        let vmi = observed.vmi.as_ref();
        let Some(whole) = vmi.whole() else {
            return Ok(());
        };
        let settings = self.pod_settings(observed);
        let around = self.surroundings(observed);
        let rendered = launcher_pod::pod(whole, &settings, &around)
            .and_then(|pod| Ok((pod, launcher_pod::memory_overhead(whole, &settings)?)));
        let (pod, overhead) = match rendered {
            Ok(rendered) => rendered,
            Err(error) => return self.not_rendered(vmi, done, error),
        };
        self.send_pod(vmi, &pod, done).await?;
        if !done.is_abandoned {
            done.pod = Some(PodFacts {
                image: settings.launcher_image,
                overhead,
            });
        }
        Ok(())
    }

    async fn create_binder(&self, observed: &Observed, done: &mut Done) -> Result<(), VmiError> {
        let vmi = observed.vmi.as_ref();
        let Some(whole) = vmi.whole() else {
            return Ok(());
        };
        let (settings, around) = (self.pod_settings(observed), self.surroundings(observed));
        match launcher_pod::provisioning_pod(whole, &settings, &around) {
            Ok(pod) => self.send_pod(vmi, &pod, done).await,
            Err(error) => self.not_rendered(vmi, done, error),
        }
    }

    fn pod_settings(&self, observed: &Observed) -> launcher_pod::Settings {
        let acceleration = observed.acceleration.unwrap_or(Acceleration::Kvm);
        self.source.settings(acceleration)
    }

    /// The objects around the VMI from which the pod is rendered.
    fn surroundings(&self, observed: &Observed) -> Surroundings {
        let claims = observed.backings.iter().filter_map(|backing| {
            let facts = backing.claim.as_deref()?.facts.clone();
            Some((backing.claim_name.clone(), facts))
        });
        let mut claims: BTreeMap<_, _> = claims.collect();
        let state = state_claim::key(&observed.vmi);
        let kept = state.as_ref().and_then(|key| {
            let found = self.volumes.claims.get(key, &Key::of(&*observed.vmi))?;
            Some((key.name.clone(), found.facts.clone()))
        });
        claims.extend(kept);
        Surroundings {
            claims,
            state_claim: state.map(|key| key.name),
            network_resources: self.source.network_resources(observed.networks.clone()),
            ..self
                .source
                .surroundings(&observed.vmi.namespace().unwrap_or_default())
        }
    }

    fn not_rendered(&self, vmi: &Guest, done: &mut Done, error: PodError) -> Result<(), VmiError> {
        self.refuse(vmi, done, &error.to_string());
        if error.is_transient() {
            return Err(VmiError::Render(error));
        }
        // The VMI's spec never changes, so trying again would not help.
        Ok(())
    }

    async fn send_pod(&self, vmi: &Guest, pod: &Pod, done: &mut Done) -> Result<(), VmiError> {
        let key = Key::of(pod);
        let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
        let existed = match create(&api, MANAGER, &key, pod).await {
            Ok(_) => false,
            Err(error @ WriteError::AlreadyExists { .. }) => {
                let found = api.get_opt(&key.name).await;
                let found = found.map_err(|error| VmiError::Read(Box::new(error)))?;
                match found {
                    // Created by an earlier reconcile: its name contains the VMI's UID.
                    Some(pod) if is_of(&pod, vmi) => true,
                    Some(_) => return self.on_name_taken(vmi, done, key.name),
                    None => return Err(VmiError::Create(error)),
                }
            }
            Err(error) => {
                // The refusal by a quota may end when the quota changes.
                self.source.quotas.note_refusal(&Key::of(vmi));
                self.refuse(vmi, done, &error.to_string());
                return Err(VmiError::Create(error));
            }
        };
        if !existed {
            tracing::info!(pod = key.name, "pod created");
            let note = format!("Created virtual machine pod {}", key.name);
            let reason = Reason::SuccessfulCreate;
            self.recorder.publish(vmi, EventType::Normal, reason, note);
        }
        Ok(())
    }

    /// Another user's pod has the name of this VMI's pod: the name follows from the VMI's UID, which
    /// is not secret. An owner creates another VMI, whose pod has another name; without an owner,
    /// the VMI waits until the name is free.
    fn on_name_taken(&self, vmi: &Guest, done: &mut Done, pod: String) -> Result<(), VmiError> {
        let message =
            format!("pod {pod} has the name of this VMI's pod and belongs to another owner");
        self.refuse(vmi, done, &message);
        let owners = vmi.owner_references().iter();
        done.is_abandoned = owners.filter_map(|owner| owner.controller).any(|is| is);
        if done.is_abandoned {
            Ok(())
        } else {
            Err(VmiError::NameTaken { pod })
        }
    }

    /// Publishes a new problem; the condition of a known one is set already.
    fn publish_problem(&self, vmi: &Guest, plan: &Plan) {
        let Some(problem) = &plan.problem else {
            return;
        };
        let kind = VirtualMachineInstanceConditionType::Synchronized;
        let condition = conditions::find(&vmi.status.conditions, &kind);
        if condition.is_none_or(|condition| condition.reason() != problem.reason) {
            let note = problem.message.clone();
            self.recorder
                .publish(vmi, EventType::Warning, problem.reason, note);
        }
    }

    fn refuse(&self, vmi: &Guest, done: &mut Done, message: &str) {
        let note = format!("Cannot create the pod: {message}");
        self.recorder
            .publish(vmi, EventType::Warning, Reason::FailedCreate, note);
        done.failure = Some(message.to_owned());
    }

    async fn delete_pod(
        &self,
        observed: &Observed,
        pod: Option<&LauncherPod>,
    ) -> Result<(), VmiError> {
        let Some(pod) = pod.filter(|pod| pod.metadata.deletion_timestamp.is_none()) else {
            return Ok(());
        };
        let key = Key::of(pod);
        let uid = pod.uid().unwrap_or_default();
        let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
        let vmi = observed.vmi.as_ref();
        match delete(&api, &key, &uid, None).await {
            Ok(()) => {
                tracing::info!(pod = key.name, "pod deleted");
                let note = format!("Deleted virtual machine pod {}", key.name);
                let reason = Reason::SuccessfulDelete;
                self.recorder.publish(vmi, EventType::Normal, reason, note);
                Ok(())
            }
            Err(error) => {
                let note = format!("Cannot delete pod {}: {error}", key.name);
                let reason = Reason::FailedDelete;
                self.recorder.publish(vmi, EventType::Warning, reason, note);
                Err(VmiError::Delete(error))
            }
        }
    }

    async fn delete_others(&self, observed: &Observed) -> Result<(), VmiError> {
        for pod in &observed.others {
            self.delete_pod(observed, Some(pod)).await?;
            failpoints::after(name(Step::DeleteOthers));
        }
        Ok(())
    }

    /// Removes only this controller's finalizer; a changed list is a conflict, and retried.
    async fn remove_finalizer(&self, vmi: &Guest) -> Result<Requeue, VmiError> {
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
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        match merge(&api, MANAGER, &key, &body).await {
            Ok(written) => self.vmis.wrote(vmi, written),
            Err(WriteError::NotFound { .. }) => {}
            Err(error) => return Err(VmiError::Finalizer(error)),
        }
        failpoints::after(name(Step::RemoveFinalizer));
        Ok(Requeue::OnChange)
    }

    async fn write_status(
        &self,
        observed: &Observed,
        plan: &Plan,
        done: &Done,
    ) -> Result<(), VmiError> {
        let status = status::render(observed, plan, done);
        let key = Key::of(observed.vmi.as_ref());
        let Some(fragment) = status::fragment(&observed.vmi, &key, &status) else {
            return Ok(());
        };
        let before = observed.vmi.phase();
        if *before != status.phase {
            tracing::info!(from = %before, to = %status.phase, "phase changes");
        }
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, &fragment, observed.vmi.as_ref(), &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/vmi/write-status");
                self.announce_end(observed, &written);
                self.vmis.wrote(&observed.vmi, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(VmiError::Status(error)),
        }
    }

    /// The event that virt-handler publishes when it sees the guest end: here it did not see it.
    fn announce_end(&self, observed: &Observed, written: &Guest) {
        let before = &observed.vmi;
        if before.is_final() || !before.has_run() {
            return;
        }
        let (kind, note) = match written.phase() {
            Phase::Succeeded => (
                EventType::Normal,
                "The VirtualMachineInstance was shut down.",
            ),
            Phase::Failed if observed.is_node_lost => (
                EventType::Warning,
                "The VirtualMachineInstance crashed: its node does not respond.",
            ),
            Phase::Failed => (
                EventType::Warning,
                "The VirtualMachineInstance crashed: its pod has ended.",
            ),
            _ => return,
        };
        self.recorder
            .publish(before.as_ref(), kind, Reason::Stopped, note);
    }
}

pub(super) fn name(step: Step) -> &'static str {
    match step {
        Step::CreateStateClaim => "virt-controller/vmi/create-state-claim",
        Step::CreatePod => "virt-controller/vmi/create-pod",
        Step::CreateBinder => "virt-controller/vmi/create-binder",
        Step::DeletePod => "virt-controller/vmi/delete-pod",
        Step::DeleteOthers => "virt-controller/vmi/delete-others",
        Step::ChangeNetworks => "virt-controller/vmi/change-networks",
        Step::DropInterfaces => "virt-controller/vmi/drop-interfaces",
        Step::SettleVolumes => "virt-controller/vmi/settle-volumes",
        Step::RemoveFinalizer => "virt-controller/vmi/remove-finalizer",
    }
}
