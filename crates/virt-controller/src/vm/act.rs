//! Carrying out a plan: steps, then the status, then what must come after it.

use std::sync::Arc;

use k8s_openapi::api::apps::v1::ControllerRevision;
use kube::ResourceExt as _;
use kube::api::{Api, ListParams};
use kubevirt_api::{annotations, finalizers};
use reasons::Reason;
use reconcile::{
    EventType, Key, Requeue, WriteError, apply, create, delete_as_seen, delete_named, merge,
};
use serde_json::json;

use super::observe::Observed;
use super::plan::{Plan, Step, has_finalizer};
use super::status::{self, Done};
use super::strategy::Strategy;
use super::{Controller, VmError, revision, template};
use crate::MANAGER;
use crate::view::{Guest, Vm};

impl Controller {
    pub(super) async fn act(&self, seen: &Observed, plan: &Plan) -> Result<Requeue, VmError> {
        let mut done = Done {
            failure: plan
                .blocked
                .clone()
                .map(|blocked| (blocked.reason, blocked.message)),
            ..Done::default()
        };
        self.tell_of_data_volumes(seen, status::data_volumes_message(&seen.vm).as_deref());
        let is_late = |step: &Step| matches!(step, Step::ReleaseVmi | Step::RemoveFinalizer);
        let mut outcome = Ok(());
        let mut vm = Arc::clone(&seen.vm);
        for step in plan.steps.iter().filter(|step| !is_late(step)) {
            outcome = self.step(seen, plan, step, &mut vm, &mut done).await;
            if outcome.is_err() {
                break;
            }
            failpoints::after(name(step));
        }
        // The status tells also of what went wrong, so it comes before giving up.
        self.write_status(seen, &vm, plan, &done).await?;
        outcome?;
        for step in plan.steps.iter().filter(|step| is_late(step)) {
            self.late_step(seen, step).await?;
            failpoints::after(name(step));
        }
        Ok(plan.look_again_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn step(
        &self,
        seen: &Observed,
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
            Step::KeepChoice => {
                let kept = self.keep_choice(vm).await;
                done.kept = self.told(vm, done, kept)?;
                Ok(())
            }
            Step::WriteOutChoice => {
                let body = self.written_out(vm).await;
                let body = self.told(vm, done, body)?;
                *vm = self.merge_vm(vm, &body).await?;
                Ok(())
            }
            Step::Adopt => self.adopt(seen).await,
            Step::CreateDataVolume(index) => self.create_data_volume(seen, *index, done).await,
            Step::AdoptDataVolume(index) => self.adopt_data_volume(seen, *index).await,
            Step::CreateVmi => self.create_vmi(seen, plan, done).await,
            Step::DeleteVmi => self.delete_vmi(seen, done).await,
            Step::NoteGeneration(now) => self.note_generation(seen, *now).await,
            Step::ReleaseVmi | Step::RemoveFinalizer => self.late_step(seen, step).await,
        }
    }

    async fn late_step(&self, seen: &Observed, step: &Step) -> Result<(), VmError> {
        match (step, &seen.vmi) {
            (Step::ReleaseVmi, Some(vmi)) => self.release(vmi).await,
            (Step::RemoveFinalizer, _) => {
                // The garbage collector does not where it is told to leave all behind, and takes
                // that word off the VM before it is seen here.
                self.drop_revisions(&seen.vm, None).await?;
                let vm = self.vms.get(&Key::of(seen.vm.as_ref()));
                let vm = vm.as_ref().unwrap_or(&seen.vm);
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
        seen: &Observed,
        plan: &Plan,
        done: &mut Done,
    ) -> Result<(), VmError> {
        let vm = seen.vm.as_ref();
        let key = Key::of(vm);
        let mut body = template::vmi(vm, &plan.requests);
        let applied = self.apply_choice(&mut body, vm, &done.kept).await;
        self.told(vm, done, applied)?;
        if plan.strategy == Strategy::WaitAsReceiver {
            body["metadata"]["annotations"][annotations::CREATE_MIGRATION_TARGET] = "true".into();
        }
        let revision = self.keep_revision(vm).await?;
        body["status"] = json!({"virtualMachineRevisionName": revision});
        let api = self.vmi_api(&key);
        match create::<Guest>(&api, MANAGER, &key, &body).await {
            Ok(vmi) => {
                tracing::info!(vmi_uid = vmi.uid(), "instance created");
                let note = format!(
                    "Started the virtual machine by creating instance {}",
                    key.name
                );
                let reason = Reason::SuccessfulCreate;
                self.recorder.publish(vm, EventType::Normal, reason, note);
                done.created = true;
                Ok(())
            }
            Err(error @ WriteError::AlreadyExists { .. }) => {
                // Made a moment ago; the watch will bring it.
                done.created = true;
                Err(VmError::Create(error))
            }
            Err(error) => {
                let note = format!("Cannot create instance {}: {error}", key.name);
                let reason = Reason::FailedCreate;
                self.recorder.publish(vm, EventType::Warning, reason, note);
                done.failure = Some((Reason::FailedCreate, error.to_string()));
                Err(VmError::Create(error))
            }
        }
    }

    /// Keeps a copy of the spec that is about to be started, and none of older ones. Answers its
    /// name.
    async fn keep_revision(&self, vm: &Vm) -> Result<String, VmError> {
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), &namespace);
        let generation = vm.metadata.generation.unwrap_or(0);
        let name = revision::name(vm, generation);
        let key = Key::new(&namespace, &name);
        match create(&api, MANAGER, &key, &revision::body(vm, generation)).await {
            // A generation has one spec, so that is the same copy.
            Ok(_) | Err(WriteError::AlreadyExists { .. }) => {}
            Err(error) => return Err(VmError::KeepRevision(error)),
        }
        failpoints::after("virt-controller/vm/keep-revision");
        self.drop_revisions(vm, Some(&name)).await?;
        Ok(name)
    }

    /// Deletes the copies of the VM's spec but for this one.
    async fn drop_revisions(&self, vm: &Vm, kept: Option<&str>) -> Result<(), VmError> {
        // A VM that was never started has none. Of one that goes the status may not say yet that
        // it was.
        if kept.is_some() && vm.status().observed_generation.is_none() {
            return Ok(());
        }
        let namespace = vm.metadata.namespace.clone().unwrap_or_default();
        let api = Api::<ControllerRevision>::namespaced(self.client.clone(), &namespace);
        let own = ListParams::default().labels(&revision::selector(vm));
        let all = api.list(&own).await;
        let all = all.map_err(|error| VmError::Look(Box::new(error)))?;
        let others = all.items.iter();
        for old in others.filter(|old| old.metadata.name.as_deref() != kept) {
            let gone = delete_named(&api, &Key::of(old)).await;
            gone.map_err(VmError::KeepRevision)?;
            failpoints::after("virt-controller/vm/drop-revision");
        }
        Ok(())
    }

    async fn note_generation(&self, seen: &Observed, now: i64) -> Result<(), VmError> {
        let Some(vmi) = seen.own_vmi() else {
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

    async fn delete_vmi(&self, seen: &Observed, done: &mut Done) -> Result<(), VmError> {
        let Some(vmi) = seen.own_vmi() else {
            return Ok(());
        };
        let (vm, key) = (seen.vm.as_ref(), Key::of(vmi.as_ref()));
        let uid = vmi.uid().unwrap_or_default();
        // A VM that is deleted and leaves its instance behind may show so on the instance alone.
        match delete_as_seen(&self.vmi_api(&key), &key, &vmi.metadata).await {
            Ok(()) => {
                tracing::info!(vmi_uid = uid, "instance deleted");
                let note = format!(
                    "Stopped the virtual machine by deleting instance {}",
                    key.name
                );
                let reason = Reason::SuccessfulDelete;
                self.recorder.publish(vm, EventType::Normal, reason, note);
                done.deleted = true;
                Ok(())
            }
            Err(error @ WriteError::Conflict { .. }) => Err(VmError::Delete(error)),
            Err(error) => {
                let note = format!("Cannot delete instance {}: {error}", key.name);
                let reason = Reason::FailedDelete;
                self.recorder.publish(vm, EventType::Warning, reason, note);
                done.failure = Some((Reason::FailedDelete, error.to_string()));
                Err(VmError::Delete(error))
            }
        }
    }

    async fn adopt(&self, seen: &Observed) -> Result<(), VmError> {
        let Some(vmi) = &seen.vmi else { return Ok(()) };
        let mut finalizers = finalizers_without(vmi.metadata.finalizers.as_deref());
        finalizers.push(finalizers::VM_CONTROLLER.to_owned());
        let mut owners = json!(vmi.metadata.owner_references.clone().unwrap_or_default());
        if let Some(list) = owners.as_array_mut() {
            list.push(template::owner(&seen.vm));
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

    /// Takes this controller's finalizer off a VMI.
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

    /// A VMI that waits for a VM which is gone would wait for ever.
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

    async fn merge_vm(&self, vm: &Arc<Vm>, body: &serde_json::Value) -> Result<Arc<Vm>, VmError> {
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
        seen: &Observed,
        vm: &Arc<Vm>,
        plan: &Plan,
        done: &Done,
    ) -> Result<(), VmError> {
        let status = status::render(seen, plan, done);
        let key = Key::of(vm.as_ref());
        let Some(body) = status::fragment(vm, &key, &status) else {
            return Ok(());
        };
        let api = Api::<Vm>::namespaced(self.client.clone(), &key.namespace);
        match apply(&api, &status::as_apply(&key, body)).await {
            Ok(written) => {
                failpoints::after("virt-controller/vm/write-status");
                self.vms.wrote(vm, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(VmError::Status(error)),
        }
    }

    fn vmi_api(&self, key: &Key) -> Api<Guest> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::AddFinalizer => "virt-controller/vm/add-finalizer",
        Step::KeepChoice => "virt-controller/vm/keep-choice",
        Step::WriteOutChoice => "virt-controller/vm/write-out-choice",
        Step::Adopt => "virt-controller/vm/adopt",
        Step::CreateDataVolume(_) => "virt-controller/vm/create-data-volume",
        Step::AdoptDataVolume(_) => "virt-controller/vm/adopt-data-volume",
        Step::CreateVmi => "virt-controller/vm/create-vmi",
        Step::DeleteVmi => "virt-controller/vm/delete-vmi",
        Step::SwitchToAlways => "virt-controller/vm/switch-to-always",
        Step::NoteGeneration(_) => "virt-controller/vm/note-generation",
        Step::ReleaseVmi => "virt-controller/vm/release-vmi",
        Step::RemoveFinalizer => "virt-controller/vm/remove-finalizer",
    }
}

/// Whether this controller's finalizer stays on the VM.
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
