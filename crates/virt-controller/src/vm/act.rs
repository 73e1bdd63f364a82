//! Carries out a plan: steps, then the status, then the steps that must follow it.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kubevirt_api::vm_status::{MemoryDumpPhase, VirtualMachineMemoryDumpRequest as Request};
use kubevirt_api::{annotations, finalizers};
use reasons::Reason;
use reconcile::{
    EventType, Key, Requeue, WriteError, apply_reported, create, delete_named, delete_unchanged,
    merge, merge_status,
};
use serde_json::json;

use super::memory_dump::{self, Change, Next};
use super::observe::Observed;
use super::plan::{Failure, Plan, Step, has_finalizer, restored_strategy};
use super::revision::Choice;
use super::status::{self, Done};
use super::strategy::Strategy;
use super::suspend::{self, Hold};
use super::view::Vm;
use super::{Controller, VmError, hotplug, instancetype, links, revision, template};
use crate::MANAGER;
use crate::view::{Claim, Guest, WholeVmi};

impl Controller {
    pub(super) async fn act(&self, observed: &Observed, plan: &Plan) -> Result<Requeue, VmError> {
        let mut done = Done {
            failure: plan.blocked.clone(),
            ..Done::default()
        };
        self.publish_data_volume_events(
            observed,
            status::data_volumes_message(&observed.vm).as_deref(),
        );
        if let Some(error) = &observed.unread {
            let note = format!("Cannot compare the running guest with its VM: {error}");
            let (vm, reason) = (observed.vm.as_ref(), Reason::FailedUpdate);
            self.recorder.publish(vm, EventType::Warning, reason, note);
        }
        let is_final_step = |step: &Step| {
            matches!(
                step,
                Step::DropOutdated | Step::ReleaseVmi | Step::RemoveFinalizer
            )
        };
        let mut outcome = Ok(());
        let mut vm = Arc::clone(&observed.vm);
        for step in plan.steps.iter().filter(|step| !is_final_step(step)) {
            outcome = self.step(observed, plan, step, &mut vm, &mut done).await;
            if outcome.is_err() {
                break;
            }
            failpoints::after(name(step));
        }
        // The status reports failures as well, so it is written before returning one.
        self.write_status(observed, &vm, plan, &done).await?;
        outcome?;
        for step in plan.steps.iter().filter(|step| is_final_step(step)) {
            self.final_step(observed, step).await?;
            failpoints::after(name(step));
        }
        Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn step(
        &self,
        observed: &Observed,
        plan: &Plan,
        step: &Step,
        vm: &mut Arc<Vm>,
        done: &mut Done,
    ) -> Result<(), VmError> {
        match step {
            Step::AddFinalizer => {
                *vm = self.set_finalizer(vm, Keep::Yes).await?;
                Ok(())
            }
            Step::SwitchToAlways => {
                *vm = self.switch_to_always(vm).await?;
                Ok(())
            }
            Step::Halt => {
                *vm = self.set_strategy(vm, "Halted").await?;
                Ok(())
            }
            Step::RestoreStrategy => {
                if let Some(wished) = restored_strategy(&observed.vm) {
                    *vm = self.set_strategy(vm, wished).await?;
                }
                Ok(())
            }
            Step::ApplyVolumeRequests => {
                *vm = self.apply_volume_requests(vm).await?;
                Ok(())
            }
            Step::FollowDump => {
                *vm = self.follow_dump(observed, plan, vm, done).await?;
                Ok(())
            }
            Step::FollowSuspend => self.follow_suspend(observed, plan, done).await,
            Step::PlugVolumes => self.plug_volumes(observed).await,
            Step::SetLinks => self.set_links(observed).await,
            Step::DropInterfaces => {
                *vm = self.drop_interfaces(observed, vm).await?;
                Ok(())
            }
            Step::FollowTemplate => {
                let patch = plan.follow.patch.as_ref();
                self.follow_template(observed, patch, done).await
            }
            Step::FollowVolumes => {
                let patch = plan.moves.patch.as_ref();
                self.follow_template(observed, patch, done).await
            }
            Step::KeepChoice => {
                let kept = self.keep_choice(vm).await;
                done.kept = self.report_choice_error(vm, done, kept)?;
                Ok(())
            }
            Step::ExpandChoice => {
                let body = self.expanded(vm).await;
                let body = self.report_choice_error(vm, done, body)?;
                *vm = self.merge_vm(vm, &body).await?;
                Ok(())
            }
            Step::UpgradeChoice => {
                let kept = self.upgrade_choice(vm, &observed.outdated).await;
                done.kept = self.report_choice_error(vm, done, kept)?;
                Ok(())
            }
            Step::Adopt => self.adopt(observed).await,
            Step::CreateDataVolume(index) => self.create_data_volume(observed, *index, done).await,
            Step::AdoptDataVolume(index) => self.adopt_data_volume(observed, *index).await,
            Step::CreateVmi => self.create_vmi(observed, plan, done).await,
            Step::DeleteVmi => self.delete_vmi(observed, done).await,
            Step::NoteGeneration(now) => self.note_generation(observed, *now).await,
            Step::DropOutdated | Step::ReleaseVmi | Step::RemoveFinalizer => {
                self.final_step(observed, step).await
            }
        }
    }

    async fn final_step(&self, observed: &Observed, step: &Step) -> Result<(), VmError> {
        match (step, &observed.vmi) {
            (Step::DropOutdated, _) => {
                let outdated = &observed.outdated;
                self.drop_outdated(&observed.vm, outdated).await
            }
            (Step::ReleaseVmi, Some(vmi)) => self.release(vmi).await,
            (Step::RemoveFinalizer, _) => {
                // With orphan propagation the garbage collector leaves the revisions, and has
                // removed its finalizer from the VM before this step.
                self.drop_revisions(&observed.vm, None).await?;
                let vm = self.vms.get(&Key::of(observed.vm.as_ref()));
                let vm = vm.as_ref().unwrap_or(&observed.vm);
                match self.set_finalizer(vm, Keep::No).await {
                    Err(VmError::UpdateVm(WriteError::NotFound { .. })) => Ok(()),
                    outcome => outcome.map(drop),
                }
            }
            _ => Ok(()),
        }
    }

    async fn create_vmi(
        &self,
        observed: &Observed,
        plan: &Plan,
        done: &mut Done,
    ) -> Result<(), VmError> {
        let vm = observed.vm.as_ref();
        let key = Key::of(vm);
        let mut body = template::vmi(vm, &plan.requests);
        if let (Hold::Resume, Some(claim)) = (plan.suspend.hold, suspend::usable(observed)) {
            suspend::restore_into(&mut body, claim);
        }
        let applied = self.apply_choice(&mut body, vm, &done.kept).await;
        self.report_choice_error(vm, done, applied)?;
        if plan.strategy == Strategy::WaitAsReceiver {
            body["metadata"]["annotations"][annotations::CREATE_MIGRATION_TARGET] = "true".into();
        }
        let choice = instancetype::chosen(vm, &done.kept);
        let revision = self.keep_revision(vm, &choice).await?;
        body["status"] = json!({"virtualMachineRevisionName": revision});
        let api = self.vmi_api(&key);
        match create::<Guest>(&api, MANAGER, &key, &body).await {
            Ok(vmi) => {
                tracing::info!(vmi_uid = vmi.uid(), "VMI created");
                let note = format!(
                    "Started the virtual machine by creating the new virtual machine instance {}",
                    key.name
                );
                let reason = Reason::SuccessfulCreate;
                self.recorder.publish(vm, EventType::Normal, reason, note);
                done.created = true;
                Ok(())
            }
            Err(error @ WriteError::AlreadyExists { .. }) => {
                // Created by an earlier reconcile; the watch will deliver it.
                done.created = true;
                Err(VmError::Create(error))
            }
            Err(error) => {
                let note = format!("Cannot create VMI {}: {error}", key.name);
                let reason = Reason::FailedCreate;
                self.recorder.publish(vm, EventType::Warning, reason, note);
                done.failure = Some(Failure {
                    reason: Reason::FailedCreate,
                    message: error.to_string(),
                });
                Err(VmError::Create(error))
            }
        }
    }

    /// Stores a revision of the spec that is about to be started, and deletes older ones. Returns its
    /// name.
    async fn keep_revision(&self, vm: &Vm, choice: &Choice) -> Result<String, VmError> {
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), &namespace);
        let generation = vm.metadata.generation.unwrap_or(0);
        let name = revision::name(vm, generation);
        let key = Key::new(&namespace, &name);
        match create(&api, MANAGER, &key, &revision::body(vm, generation, choice)).await {
            // A generation has one spec, so it is the same revision.
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => {}
            Err(error) => return Err(VmError::KeepRevision(error)),
        }
        failpoints::after("virt-controller/vm/keep-revision");
        self.drop_revisions(vm, Some(&name)).await?;
        Ok(name)
    }

    /// Deletes the revisions of the VM's spec except this one.
    async fn drop_revisions(&self, vm: &Vm, kept: Option<&str>) -> Result<(), VmError> {
        // A VM that was never started has none. The status of a deleted VM may not show yet that it
        // was started.
        if kept.is_some() && vm.status().observed_generation.is_none() {
            return Ok(());
        }
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), &namespace);
        let own = ListParams::default().labels(&revision::selector(vm));
        let all = api.list(&own).await;
        let all = all.map_err(|error| VmError::Read(Box::new(error)))?;
        let others = all.items.iter();
        for old in others.filter(|old| old.metadata.name.as_deref() != kept) {
            let gone = delete_named(&api, &Key::of(old)).await;
            gone.map_err(VmError::KeepRevision)?;
            failpoints::after("virt-controller/vm/drop-revision");
        }
        Ok(())
    }

    async fn note_generation(&self, observed: &Observed, now: i64) -> Result<(), VmError> {
        let Some(vmi) = observed.own_vmi() else {
            return Ok(());
        };
        let key = Key::of(vmi.as_ref());
        let body = json!({"metadata": {
            "resourceVersion": vmi.metadata.resource_version,
            "annotations": {annotations::VM_GENERATION: now.to_string()},
        }});
        let noted = merge(&self.vmi_api(&key), MANAGER, &key, &body).await;
        self.vmis.wrote(vmi, noted.map_err(VmError::UpdateVmi)?);
        Ok(())
    }

    /// Changes the template first: a request that is applied twice changes nothing. Requests that lead to a
    /// template that is refused are dropped, since they would hold up everything else of the VM for good.
    async fn apply_volume_requests(&self, vm: &Arc<Vm>) -> Result<Arc<Vm>, VmError> {
        let requests = vm.status().volume_requests.clone();
        let spec = hotplug::requested(&vm.spec.template, &requests);
        let body = json!({
            "metadata": {"resourceVersion": vm.metadata.resource_version},
            "spec": {"template": {"spec": spec}},
        });
        let vm = match self.merge_vm(vm, &body).await {
            Err(VmError::UpdateVm(WriteError::Refused { message, .. })) => {
                let note = format!("Cannot change the volumes of the VM: {message}");
                let reason = Reason::HotPlugVolumeError;
                self.recorder
                    .publish(vm.as_ref(), EventType::Warning, reason, note);
                Arc::clone(vm)
            }
            changed => changed?,
        };
        failpoints::after("virt-controller/vm/change-template");
        let key = Key::of(vm.as_ref());
        let body = json!({
            "metadata": {"resourceVersion": vm.metadata.resource_version},
            "status": {"volumeRequests": null},
        });
        let api = Api::<Vm>::namespaced(self.client.clone(), &key.namespace);
        let written = merge_status(&api, MANAGER, &key, &body).await;
        let written = written.map_err(VmError::UpdateVm)?;
        self.vms.wrote(&vm, written.clone());
        Ok(Arc::new(written))
    }

    /// The own VMI with its spec, which the store does not keep.
    pub(super) async fn whole_vmi(&self, vmi: &Guest) -> Result<Option<WholeVmi>, VmError> {
        let key = Key::of(vmi);
        let api = Api::<WholeVmi>::namespaced(self.client.clone(), &key.namespace);
        let whole = api.get_opt(&key.name).await;
        let whole = whole.map_err(|error| VmError::Read(Box::new(error)))?;
        Ok(whole.filter(|whole| whole.metadata.uid == vmi.metadata.uid))
    }

    async fn set_links(&self, observed: &Observed) -> Result<(), VmError> {
        let Some(vmi) = observed.own_vmi() else {
            return Ok(());
        };
        let key = Key::of(vmi.as_ref());
        let whole = self.whole_vmi(vmi).await?;
        let patch = whole.and_then(|whole| links::patch(&observed.vm.spec.template, &json!(whole)));
        let Some(patch) = patch else {
            return Ok(());
        };
        let written = merge(&self.vmi_api(&key), MANAGER, &key, &patch).await;
        let written = written.map_err(VmError::UpdateVmi)?;
        tracing::info!("links of the VMI follow the template");
        self.vmis.wrote(vmi, written);
        Ok(())
    }

    /// The status changes last: until then every reconcile does the same again.
    async fn follow_dump(
        &self,
        observed: &Observed,
        plan: &Plan,
        vm: &Arc<Vm>,
        done: &mut Done,
    ) -> Result<Arc<Vm>, VmError> {
        let Some(request) = observed.vm.status().memory_dump_request.clone() else {
            return Ok(Arc::clone(vm));
        };
        let mut next = plan.dump.next.clone();
        let mut vm = Arc::clone(vm);
        match &plan.dump.change {
            None => {}
            Some(change @ (Change::Associate | Change::Dissociate)) => {
                let spec = memory_dump::volumes_patch(&vm, &request, change);
                let body = json!({
                    "metadata": {"resourceVersion": vm.metadata.resource_version},
                    "spec": {"template": {"spec": spec}},
                });
                match self.merge_vm(&vm, &body).await {
                    Err(VmError::UpdateVm(WriteError::Refused { message, .. })) => {
                        let failed = memory_dump::failed(&request, &message, observed.now);
                        next = Next::Is(failed);
                    }
                    changed => vm = changed?,
                }
            }
            Some(Change::Note(note)) => self.note_dump(observed, &request.claim_name, note).await?,
        }
        failpoints::after("virt-controller/vm/change-for-dump");
        let request = match &next {
            Next::Stays => return Ok(vm),
            Next::Is(request) => Some(request),
            Next::Gone => None,
        };
        let key = Key::of(vm.as_ref());
        let body = json!({
            "metadata": {"resourceVersion": vm.metadata.resource_version},
            "status": memory_dump::status_patch(request),
        });
        let api = Api::<Vm>::namespaced(self.client.clone(), &key.namespace);
        let written = merge_status(&api, MANAGER, &key, &body).await;
        let written = written.map_err(VmError::UpdateVm)?;
        self.vms.wrote(&vm, written.clone());
        let is_failed = |request: &&Request| request.phase == MemoryDumpPhase::Failed;
        if let Some(failed) = request.filter(is_failed) {
            let claim = &failed.claim_name;
            let message = failed.message.as_deref().unwrap_or_default();
            let note = format!("Memory dump to claim {claim} failed: {message}");
            let reason = Reason::MemoryDumpFailed;
            self.recorder
                .publish(vm.as_ref(), EventType::Warning, reason, note);
        }
        done.dump = next;
        Ok(Arc::new(written))
    }

    /// Writes down on the claim which dump it holds.
    async fn note_dump(&self, observed: &Observed, claim: &str, note: &str) -> Result<(), VmError> {
        let key = Key::new(&Key::of(observed.vm.as_ref()).namespace, claim);
        let api = Api::<Claim>::namespaced(self.client.clone(), &key.namespace);
        let body = json!({"metadata": {"annotations": {annotations::MEMORY_DUMP: note}}});
        match merge(&api, MANAGER, &key, &body).await {
            Ok(_) | Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(VmError::NoteDump(error)),
        }
    }

    async fn plug_volumes(&self, observed: &Observed) -> Result<(), VmError> {
        let Some(vmi) = observed.own_vmi() else {
            return Ok(());
        };
        let key = Key::of(vmi.as_ref());
        let whole = self.whole_vmi(vmi).await?;
        let template = suspend::live_template(observed, vmi);
        let patch = whole.and_then(|whole| hotplug::patch(&template, &json!(whole)));
        let Some(patch) = patch else {
            return Ok(());
        };
        match merge(&self.vmi_api(&key), MANAGER, &key, &patch).await {
            Ok(written) => {
                tracing::info!("volumes of the VMI follow the template");
                self.vmis.wrote(vmi, written);
                Ok(())
            }
            Err(error) => {
                if let WriteError::Refused { message, .. } = &error {
                    let note = format!("Cannot change the volumes of the VMI: {message}");
                    let reason = Reason::HotPlugVolumeError;
                    self.recorder
                        .publish(observed.vm.as_ref(), EventType::Warning, reason, note);
                }
                Err(VmError::UpdateVmi(error))
            }
        }
    }

    async fn delete_vmi(&self, observed: &Observed, done: &mut Done) -> Result<(), VmError> {
        let Some(vmi) = observed.own_vmi() else {
            return Ok(());
        };
        let (vm, key) = (observed.vm.as_ref(), Key::of(vmi.as_ref()));
        let uid = vmi.uid().unwrap_or_default();
        // The VMI may have been orphaned though this view of the VM does not show it yet.
        match delete_unchanged(&self.vmi_api(&key), &key, &vmi.metadata).await {
            Ok(()) => {
                tracing::info!(vmi_uid = uid, "VMI deleted");
                let note = format!(
                    "Stopped the virtual machine by deleting the virtual machine instance {}",
                    key.name
                );
                let reason = Reason::SuccessfulDelete;
                self.recorder.publish(vm, EventType::Normal, reason, note);
                done.deleted = true;
                Ok(())
            }
            Err(error @ WriteError::Conflict { .. }) => Err(VmError::Delete(error)),
            Err(error) => {
                let note = format!("Cannot delete VMI {}: {error}", key.name);
                let reason = Reason::FailedDelete;
                self.recorder.publish(vm, EventType::Warning, reason, note);
                done.failure = Some(Failure {
                    reason: Reason::FailedDelete,
                    message: error.to_string(),
                });
                Err(VmError::Delete(error))
            }
        }
    }

    async fn adopt(&self, observed: &Observed) -> Result<(), VmError> {
        let Some(vmi) = &observed.vmi else {
            return Ok(());
        };
        if !self.may_adopt(&observed.vm).await? {
            return Ok(());
        }
        let mut finalizers = finalizers_without(vmi.metadata.finalizers.as_deref());
        finalizers.push(finalizers::VM_CONTROLLER.to_owned());
        let mut owners = json!(vmi.metadata.owner_references.clone().unwrap_or_default());
        if let Some(list) = owners.as_array_mut() {
            list.push(template::owner(&observed.vm));
        }
        let key = Key::of(vmi.as_ref());
        let body = json!({"metadata": {
            "resourceVersion": vmi.metadata.resource_version,
            "ownerReferences": owners,
            "finalizers": finalizers,
        }});
        let adopted = merge(&self.vmi_api(&key), MANAGER, &key, &body).await;
        self.vmis.wrote(vmi, adopted.map_err(VmError::UpdateVmi)?);
        Ok(())
    }

    /// Asks the API server, as this view of the VM may be old: a VMI that was just orphaned by the deletion of
    /// this VM would be deleted with it.
    async fn may_adopt(&self, vm: &Vm) -> Result<bool, VmError> {
        let key = Key::of(vm);
        let api = Api::<Vm>::namespaced(self.client.clone(), &key.namespace);
        let now = api.get_opt(&key.name).await;
        let now = now.map_err(|error| VmError::Read(Box::new(error)))?;
        Ok(now.is_some_and(|now| {
            now.metadata.uid == vm.metadata.uid && now.metadata.deletion_timestamp.is_none()
        }))
    }

    /// Removes this controller's finalizer from a VMI.
    async fn release(&self, vmi: &Guest) -> Result<(), VmError> {
        let left: Vec<String> = finalizers_without(vmi.metadata.finalizers.as_deref());
        let key = Key::of(vmi);
        let body = json!({"metadata": {
            "resourceVersion": vmi.metadata.resource_version,
            "finalizers": left,
        }});
        match merge(&self.vmi_api(&key), MANAGER, &key, &body).await {
            Ok(released) => {
                self.vmis.wrote(vmi, released);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(VmError::UpdateVmi(error)),
        }
    }

    /// Releases a terminating VMI whose VM is gone; no other reconcile would.
    pub(super) async fn release_orphan(&self, key: &Key) -> Result<Requeue, VmError> {
        if let Some(vmi) = self.vmis.get(key)
            && vmi.is_deleting()
            && has_finalizer(
                vmi.metadata.finalizers.as_deref(),
                finalizers::VM_CONTROLLER,
            )
        {
            self.release(&vmi).await?;
        }
        Ok(Requeue::OnChange)
    }

    async fn set_finalizer(&self, vm: &Arc<Vm>, keep: Keep) -> Result<Arc<Vm>, VmError> {
        let mut list = finalizers_without(vm.metadata.finalizers.as_deref());
        if keep == Keep::Yes {
            list.push(finalizers::VM_CONTROLLER.to_owned());
        }
        let body = json!({"metadata": {
            "resourceVersion": vm.metadata.resource_version,
            "finalizers": list,
        }});
        self.merge_vm(vm, &body).await
    }

    async fn switch_to_always(&self, vm: &Arc<Vm>) -> Result<Arc<Vm>, VmError> {
        let spec = match vm.spec.running {
            Some(_) => json!({"running": true}),
            None => json!({"runStrategy": "Always"}),
        };
        let body = json!({
            "metadata": {"resourceVersion": vm.metadata.resource_version},
            "spec": spec,
        });
        self.merge_vm(vm, &body).await
    }

    async fn set_strategy(&self, vm: &Arc<Vm>, strategy: &str) -> Result<Arc<Vm>, VmError> {
        let body = json!({
            "metadata": {"resourceVersion": vm.metadata.resource_version},
            "spec": {"running": null, "runStrategy": strategy},
        });
        self.merge_vm(vm, &body).await
    }

    pub(super) async fn merge_vm(
        &self,
        vm: &Arc<Vm>,
        body: &serde_json::Value,
    ) -> Result<Arc<Vm>, VmError> {
        let key = Key::of(vm.as_ref());
        let api = Api::<Vm>::namespaced(self.client.clone(), &key.namespace);
        let written = merge(&api, MANAGER, &key, body)
            .await
            .map_err(VmError::UpdateVm)?;
        self.vms.wrote(vm, written.clone());
        Ok(Arc::new(written))
    }

    async fn write_status(
        &self,
        observed: &Observed,
        vm: &Arc<Vm>,
        plan: &Plan,
        done: &Done,
    ) -> Result<(), VmError> {
        let status = status::render(observed, plan, done);
        let key = Key::of(vm.as_ref());
        let Some(fragment) = status::fragment(vm, &key, &status) else {
            return Ok(());
        };
        let api = Api::<Vm>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, &fragment, vm.as_ref(), &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/vm/write-status");
                self.vms.wrote(vm, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(VmError::Status(error)),
        }
    }

    pub(super) fn vmi_api(&self, key: &Key) -> Api<Guest> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::AddFinalizer => "virt-controller/vm/add-finalizer",
        Step::KeepChoice => "virt-controller/vm/keep-choice",
        Step::ExpandChoice => "virt-controller/vm/expand-choice",
        Step::UpgradeChoice => "virt-controller/vm/upgrade-choice",
        Step::DropOutdated => "virt-controller/vm/drop-outdated",
        Step::Adopt => "virt-controller/vm/adopt",
        Step::CreateDataVolume(_) => "virt-controller/vm/create-data-volume",
        Step::AdoptDataVolume(_) => "virt-controller/vm/adopt-data-volume",
        Step::CreateVmi => "virt-controller/vm/create-vmi",
        Step::DeleteVmi => "virt-controller/vm/delete-vmi",
        Step::SwitchToAlways => "virt-controller/vm/switch-to-always",
        Step::Halt => "virt-controller/vm/halt",
        Step::RestoreStrategy => "virt-controller/vm/restore-strategy",
        Step::ApplyVolumeRequests => "virt-controller/vm/apply-volume-requests",
        Step::FollowDump => "virt-controller/vm/follow-dump",
        Step::FollowSuspend => "virt-controller/vm/follow-suspend",
        Step::PlugVolumes => "virt-controller/vm/plug-volumes",
        Step::SetLinks => "virt-controller/vm/set-links",
        Step::DropInterfaces => "virt-controller/vm/drop-interfaces",
        Step::FollowTemplate => "virt-controller/vm/follow-template",
        Step::FollowVolumes => "virt-controller/vm/follow-volumes",
        Step::NoteGeneration(_) => "virt-controller/vm/note-generation",
        Step::ReleaseVmi => "virt-controller/vm/release-vmi",
        Step::RemoveFinalizer => "virt-controller/vm/remove-finalizer",
    }
}

/// Whether the VM keeps this controller's finalizer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Keep {
    Yes,
    No,
}

fn finalizers_without(list: Option<&[String]>) -> Vec<String> {
    let list = list.unwrap_or_default().iter();
    list.filter(|name| *name != finalizers::VM_CONTROLLER)
        .cloned()
        .collect()
}
