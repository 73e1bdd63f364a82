//! Carries out a plan: VMs first, then the status.

use std::sync::Arc;

use error_chain::error_chain;
use kube::{Api, ResourceExt as _};
use kubevirt_api::pool::VirtualMachinePoolConditionType as Type;
use kubevirt_api::{conditions, finalizers};
use reasons::Reason;
use reconcile::{
    EventType, Key, ReconcileError as _, Requeue, Retry, WriteError, apply_reported, create,
    delete_unchanged, merge,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::observe::Observed;
use super::plan::{Plan, Step};
use super::status::{self, Failure};
use super::view::{Disks, Pool};
use super::{Controller, Expectations, PoolError, template};
use crate::MANAGER;
use crate::operation::{set_finalizers, status_fragment};
use crate::view::Guest;
use crate::vm::Vm;

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<Requeue, PoolError> {
        let mut pool = Arc::clone(&observed.pool);
        let mut failed = None;
        for step in &plan.steps {
            // The pool has to be there until all of its VMs are free of it.
            if failed.is_some() && matches!(step, Step::RemoveFinalizer) {
                break;
            }
            match self.step(key, observed, step, &mut pool).await {
                Ok(()) => failpoints::after(name(step)),
                Err(error) => {
                    remember(&mut failed, error, step);
                    // Without the finalizer and the revision there must be no VMs, and whatever refuses one VM is
                    // likely to refuse the next.
                    if matches!(
                        step,
                        Step::AddFinalizer | Step::KeepRevision | Step::Create(_)
                    ) {
                        break;
                    }
                }
            }
        }
        if !observed.pool.is_deleting() {
            self.publish_pause(observed);
        }
        // A pool without the finalizer may be gone.
        let is_free = failed.is_none() && matches!(plan.steps.last(), Some(Step::RemoveFinalizer));
        if !is_free {
            let failure = failed
                .as_ref()
                .and_then(|(error, step)| failure(error, step))
                .or_else(|| plan.problem.map(Failure::of_scale_out));
            self.write_status(key, observed, &pool, plan, failure.as_ref())
                .await?;
        }
        match failed {
            Some((error, _)) => Err(error),
            None => Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After)),
        }
    }

    async fn step(
        &self,
        key: &Key,
        observed: &Observed,
        step: &Step,
        pool: &mut Arc<Pool>,
    ) -> Result<(), PoolError> {
        match step {
            Step::AddFinalizer => {
                let mut all = pool.finalizers().to_vec();
                all.push(finalizers::POOL.to_owned());
                *pool = self.set_finalizers(key, pool, &all).await?;
                Ok(())
            }
            Step::Release(vm) => {
                let released = self.release(pool, vm).await;
                self.report(pool, released, |error| {
                    format!("Error releasing VM {}: {error}", Key::of(vm.as_ref()))
                })
            }
            Step::LetGo(vm, disks) => {
                if *disks == Disks::Kept {
                    let kept = self.keep_disks(vm).await;
                    self.report(pool, kept, |error| {
                        format!(
                            "Error preserving state of VM {}: {error}",
                            Key::of(vm.as_ref())
                        )
                    })?;
                }
                let free = self.drop_finalizer(vm).await;
                self.report(pool, free, |error| {
                    let key = Key::of(vm.as_ref());
                    format!("Error removing finalizer for VM {key}: {error}")
                })
            }
            Step::Delete(vm) => self.delete(key, pool, vm).await,
            Step::KeepRevision => self.keep_revision(key, observed).await,
            Step::Create(ordinal) => self.create(key, pool, *ordinal).await,
            Step::Update(member) => self.update(observed, member).await,
            Step::Restart(member) => self.restart(key, pool, member).await,
            Step::Relabel(guest, revision) => self.relabel(pool, guest, revision).await,
            Step::Recreate(vm) => self.recreate(key, pool, vm).await,
            Step::Prune(revision) => self.prune(revision).await,
            Step::RemoveFinalizer => {
                let all = pool
                    .finalizers()
                    .iter()
                    .filter(|one| *one != finalizers::POOL);
                let all: Vec<String> = all.cloned().collect();
                match self.set_finalizers(key, pool, &all).await {
                    Err(PoolError::Finalizer(WriteError::NotFound { .. })) => Ok(()),
                    outcome => outcome.map(drop),
                }
            }
        }
    }

    async fn set_finalizers(
        &self,
        key: &Key,
        pool: &Pool,
        all: &[String],
    ) -> Result<Arc<Pool>, PoolError> {
        let api = Api::<Pool>::namespaced(self.client.clone(), &key.namespace);
        let written = set_finalizers(&api, key, &pool.metadata, all).await;
        let written = written.map_err(PoolError::Finalizer)?;
        self.pools.wrote(pool, written.clone());
        Ok(Arc::new(written))
    }

    async fn create(&self, key: &Key, pool: &Pool, ordinal: u32) -> Result<(), PoolError> {
        let name = template::member_name(&key.name, ordinal);
        let member = Key::new(&key.namespace, &name);
        // Noted first: even without a response, the VM may exist from now on.
        self.note(key, |expected| {
            expected.created.insert(name.clone(), Instant::now());
        });
        let body = template::member(pool, ordinal);
        match create::<Vm>(&self.vms_of(key), MANAGER, &member, &body).await {
            Ok(vm) => {
                tracing::info!(vm = name, vm_uid = vm.uid(), "VM created");
                let note = format!("Created VM {member}");
                let reason = Reason::SuccessfulCreate;
                self.recorder.publish(pool, EventType::Normal, reason, note);
                Ok(())
            }
            Err(error) => {
                if !matches!(error, WriteError::Unavailable { .. }) {
                    self.note(key, |expected| expected.created.remove(&name));
                }
                if error.retry() != Retry::Soon {
                    let note = format!("Error creating VM: {}", error_chain(&error));
                    let reason = Reason::FailedCreate;
                    self.recorder
                        .publish(pool, EventType::Warning, reason, note);
                }
                Err(PoolError::Create(error))
            }
        }
    }

    async fn delete(&self, key: &Key, pool: &Pool, vm: &Vm) -> Result<(), PoolError> {
        let member = Key::of(vm);
        let gone = delete_unchanged(&self.vms_of(key), &member, &vm.metadata).await;
        self.report(pool, gone.map_err(PoolError::Delete), |error| {
            format!("Error deleting virtual machine {member}: {error}")
        })?;
        let uid = self.note_deleted(key, vm);
        tracing::info!(vm = member.name, vm_uid = uid, "VM deleted");
        let note = format!("Deleted VM {member} with uid {uid} from pool");
        let reason = Reason::SuccessfulDelete;
        self.recorder.publish(pool, EventType::Normal, reason, note);
        Ok(())
    }

    /// A VM that does not belong to the pool any more lives on by itself.
    async fn release(&self, pool: &Pool, vm: &Vm) -> Result<(), PoolError> {
        let owners = vm.owner_references().iter();
        let left: Vec<Value> = owners
            .filter(|owner| Some(&owner.uid) != pool.metadata.uid.as_ref())
            .map(|owner| json!(owner))
            .collect();
        let key = Key::of(vm);
        let body = json!({"metadata": {
            "resourceVersion": vm.metadata.resource_version,
            "ownerReferences": left,
            "finalizers": others(vm),
        }});
        match merge(&self.vms_of(&key), MANAGER, &key, &body).await {
            Ok(written) => self.vms.wrote(vm, written),
            Err(WriteError::NotFound { .. }) => {}
            Err(error) => return Err(PoolError::LetGo(error)),
        }
        tracing::info!(vm = key.name, "VM released");
        Ok(())
    }

    async fn drop_finalizer(&self, vm: &Vm) -> Result<(), PoolError> {
        let key = Key::of(vm);
        match set_finalizers(&self.vms_of(&key), &key, &vm.metadata, &others(vm)).await {
            Ok(written) => {
                self.vms.wrote(vm, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(PoolError::LetGo(error)),
        }
    }

    /// Without the finalizer of a pool that is gone, nobody would ever let these VMs go.
    pub(super) async fn release_abandoned(
        &self,
        key: &Key,
        uid: Option<&str>,
    ) -> Result<(), PoolError> {
        let mut outcome = Ok(());
        for vm in self.abandoned(key, uid) {
            match self.drop_finalizer(&vm).await {
                Ok(()) => failpoints::after("virt-controller/pool/release-abandoned"),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        outcome
    }

    pub(super) fn note<T>(&self, key: &Key, change: impl FnOnce(&mut Expectations) -> T) -> T {
        change(self.expectations.lock().entry(key.clone()).or_default())
    }

    pub(super) fn note_deleted(&self, key: &Key, vm: &Vm) -> String {
        let uid = vm.metadata.uid.clone().unwrap_or_default();
        self.note(key, |expected| expected.deleted.insert(uid.clone()));
        uid
    }

    /// Publishes an event about a failure, unless it only means that the cache was late.
    pub(super) fn report<T>(
        &self,
        pool: &Pool,
        outcome: Result<T, PoolError>,
        note: impl FnOnce(&str) -> String,
    ) -> Result<T, PoolError> {
        if let Err(error) = &outcome
            && let Some(text) = lasting(error)
        {
            let reason = match error {
                PoolError::Delete(_) => Reason::FailedDelete,
                _ => Reason::FailedUpdate,
            };
            self.recorder
                .publish(pool, EventType::Warning, reason, note(&text));
        }
        outcome
    }

    /// Publishes an event when the pool was paused or resumed.
    fn publish_pause(&self, observed: &Observed) {
        let pool = observed.pool.as_ref();
        let was = conditions::is_true(&pool.status().conditions, &Type::ReplicaPaused);
        let is = pool.spec.paused == Some(true);
        let (reason, note) = match (was, is) {
            (false, true) => (Reason::SuccessfulPaused, "Pool is paused"),
            (true, false) => (Reason::SuccessfulResume, "Pool is unpaused"),
            _ => return,
        };
        self.recorder.publish(pool, EventType::Normal, reason, note);
    }

    async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        pool: &Pool,
        plan: &Plan,
        failure: Option<&Failure>,
    ) -> Result<(), PoolError> {
        let before = pool.status();
        if let Some(Failure { reason, message }) = failure
            && !conditions::is_true(&before.conditions, &Type::ReplicaFailure)
        {
            let note = message.clone();
            self.recorder
                .publish(pool, EventType::Warning, *reason, note);
        }
        let status = status::render(observed, plan, failure);
        let Some(fragment) = status_fragment(pool, Some(&*before), key, &status) else {
            return Ok(());
        };
        let api = Api::<Pool>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, &fragment, pool, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/pool/write-status");
                self.pools.wrote(pool, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(PoolError::Status(error)),
        }
    }

    pub(super) fn vms_of(&self, key: &Key) -> Api<Vm> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    pub(super) fn vmis_of(&self, key: &Key) -> Api<Guest> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }
}

/// The finalizers of others.
fn others(vm: &Vm) -> Vec<String> {
    let all = vm.finalizers().iter();
    all.filter(|one| *one != finalizers::POOL)
        .cloned()
        .collect()
}

/// The text of an error that trying again at once does not end.
pub(super) fn lasting(error: &PoolError) -> Option<String> {
    (error.retry() != Retry::Soon).then(|| error_chain(error))
}

/// Keeps the first error that lasts, or else the first: the condition shows it.
pub(super) fn remember<'a>(
    failed: &mut Option<(PoolError, &'a Step)>,
    error: PoolError,
    step: &'a Step,
) {
    let is_lasting = |error: &PoolError| error.retry() != Retry::Soon;
    let is_first = failed
        .as_ref()
        .is_none_or(|(first, _)| !is_lasting(first) && is_lasting(&error));
    if is_first {
        *failed = Some((error, step));
    }
}

/// What the pool's condition says about the error, if it lasts.
fn failure(error: &PoolError, step: &Step) -> Option<Failure> {
    let text = lasting(error)?;
    let (reason, task) = match step {
        Step::KeepRevision | Step::Create(_) => (Reason::FailedScaleOut, "during scale out"),
        Step::Delete(_) | Step::LetGo(..) => (Reason::FailedScaleIn, "during scale in"),
        Step::Restart(_) | Step::Relabel(..) | Step::Recreate(_) => {
            (Reason::FailedUpdate, "during VMI update")
        }
        Step::Prune(_) => (
            Reason::FailedRevisionPruning,
            "while pruning vmpool revisions",
        ),
        Step::AddFinalizer | Step::Release(_) | Step::Update(_) | Step::RemoveFinalizer => {
            (Reason::FailedUpdate, "during VM update")
        }
    };
    Some(Failure {
        reason,
        message: format!("error {task}: {text}"),
    })
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::AddFinalizer => "virt-controller/pool/add-finalizer",
        Step::Release(_) => "virt-controller/pool/release",
        Step::LetGo(..) => "virt-controller/pool/let-go",
        Step::Delete(_) => "virt-controller/pool/delete",
        Step::KeepRevision => "virt-controller/pool/keep-revision",
        Step::Create(_) => "virt-controller/pool/create",
        Step::Update(_) => "virt-controller/pool/update",
        Step::Restart(_) => "virt-controller/pool/restart",
        Step::Relabel(..) => "virt-controller/pool/relabel",
        Step::Recreate(_) => "virt-controller/pool/recreate",
        Step::Prune(_) => "virt-controller/pool/prune",
        Step::RemoveFinalizer => "virt-controller/pool/remove-finalizer",
    }
}
