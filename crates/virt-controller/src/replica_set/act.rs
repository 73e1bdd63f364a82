//! Carries out a plan: members first, then the status.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kube::{Api, ResourceExt as _};
use kubevirt_api::conditions;
use kubevirt_api::replica_set::VirtualMachineInstanceReplicaSetConditionType as Type;
use kubevirt_api::{API_VERSION, VirtualMachineInstance};
use reasons::Reason;
use reconcile::{
    EventType, Key, Requeue, WriteError, apply_reported, create, delete_unchanged, merge,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::observe::Observed;
use super::plan::{Plan, Step};
use super::status::{self, Failure};
use super::view::ReplicaSet;
use super::{Controller, KIND, ReplicaSetError};
use crate::MANAGER;
use crate::view::Guest;

/// The alphabet of generated names in Kubernetes: without vowels, so that names form no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
/// Leaves space for the suffix.
const LONGEST_BASE: usize = 57;

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<Requeue, ReplicaSetError> {
        let mut failure = None;
        let mut outcome = Ok(());
        for step in &plan.steps {
            outcome = self.step(key, observed, step, &mut failure).await;
            if outcome.is_err() {
                break;
            }
            failpoints::after(name(step));
        }
        self.publish_pause(observed);
        self.write_status(key, observed, plan, failure.as_ref())
            .await?;
        outcome?;
        Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn step(
        &self,
        key: &Key,
        observed: &Observed,
        step: &Step,
        failure: &mut Option<Failure>,
    ) -> Result<(), ReplicaSetError> {
        let set = observed.set.as_ref();
        match step {
            Step::Adopt(vmi) => self.own(vmi, |owners| owners.push(owner(set))).await,
            Step::Release(vmi) => {
                let uid = set.metadata.uid.clone();
                self.own(vmi, |owners| {
                    owners.retain(|owner| owner["uid"].as_str() != uid.as_deref());
                })
                .await
            }
            Step::Delete(vmi) => self.delete(key, set, vmi, failure).await,
            Step::Create(count) => {
                for _ in 0..*count {
                    self.create(key, set, failure).await?;
                    failpoints::after(name(step));
                }
                Ok(())
            }
        }
    }

    async fn own(
        &self,
        vmi: &Arc<Guest>,
        change: impl FnOnce(&mut Vec<Value>),
    ) -> Result<(), ReplicaSetError> {
        let owners = vmi.metadata.owner_references.iter().flatten();
        let mut owners: Vec<Value> = owners.map(|owner| json!(owner)).collect();
        change(&mut owners);
        let key = Key::of(vmi.as_ref());
        let body = json!({"metadata": {
            "resourceVersion": vmi.metadata.resource_version,
            "ownerReferences": owners,
        }});
        let written = merge(&self.api(&key), MANAGER, &key, &body).await;
        self.vmis.wrote(vmi, written.map_err(ReplicaSetError::Own)?);
        Ok(())
    }

    async fn create(
        &self,
        key: &Key,
        set: &ReplicaSet,
        failure: &mut Option<Failure>,
    ) -> Result<(), ReplicaSetError> {
        let refused = self.note(key, |expected| expected.refused.take());
        let name = refused.unwrap_or_else(|| self.name(set));
        let member = Key::new(&key.namespace, &name);
        // Noted first: even without a response, the VMI may exist from now on.
        self.note(key, |expected| {
            expected.created.insert(name.clone(), Instant::now());
        });
        let body = body(set, &member);
        match create::<Guest>(&self.api(key), MANAGER, &member, &body).await {
            Ok(vmi) => {
                tracing::info!(vmi = name, vmi_uid = vmi.uid(), "VMI created");
                let note = format!("Created VMI {name}");
                let reason = Reason::SuccessfulCreate;
                self.recorder.publish(set, EventType::Normal, reason, note);
                Ok(())
            }
            Err(error) => {
                let is_taken = matches!(error, WriteError::AlreadyExists { .. });
                if !matches!(error, WriteError::Unavailable { .. }) {
                    self.note(key, |expected| {
                        expected.created.remove(&name);
                        expected.refused = (!is_taken).then(|| name.clone());
                    });
                }
                let note = format!("Cannot create VMI {name}: {error}");
                let reason = Reason::FailedCreate;
                self.recorder.publish(set, EventType::Warning, reason, note);
                *failure = Some(Failure {
                    reason: Reason::FailedCreate,
                    message: error.to_string(),
                });
                Err(ReplicaSetError::Create(error))
            }
        }
    }

    async fn delete(
        &self,
        key: &Key,
        set: &ReplicaSet,
        vmi: &Guest,
        failure: &mut Option<Failure>,
    ) -> Result<(), ReplicaSetError> {
        let member = Key::of(vmi);
        let uid = vmi.uid().unwrap_or_default();
        match delete_unchanged(&self.api(key), &member, &vmi.metadata).await {
            Ok(()) => {
                self.note(key, |expected| {
                    expected.deleted.insert(uid.clone());
                });
                tracing::info!(vmi = member.name, vmi_uid = uid, "VMI deleted");
                let note = format!("Deleted VMI {}", member.name);
                let reason = Reason::SuccessfulDelete;
                self.recorder.publish(set, EventType::Normal, reason, note);
                Ok(())
            }
            Err(error @ WriteError::Conflict { .. }) => Err(ReplicaSetError::Delete(error)),
            Err(error) => {
                let note = format!("Cannot delete VMI {}: {error}", member.name);
                let reason = Reason::FailedDelete;
                self.recorder.publish(set, EventType::Warning, reason, note);
                *failure = Some(Failure {
                    reason: Reason::FailedDelete,
                    message: error.to_string(),
                });
                Err(ReplicaSetError::Delete(error))
            }
        }
    }

    fn note<T>(&self, key: &Key, change: impl FnOnce(&mut super::Expectations) -> T) -> T {
        change(self.expectations.lock().entry(key.clone()).or_default())
    }

    /// Publishes an event when the set was paused or resumed.
    fn publish_pause(&self, observed: &Observed) {
        let set = observed.set.as_ref();
        let was = conditions::is_true(&set.status().conditions, &Type::ReplicaPaused);
        let is = set.spec.paused == Some(true);
        let (reason, note) = match (was, is) {
            (false, true) => (Reason::SuccessfulPaused, "The set is paused"),
            (true, false) => (Reason::SuccessfulResumed, "The set is resumed"),
            _ => return,
        };
        self.recorder.publish(set, EventType::Normal, reason, note);
    }

    async fn write_status(
        &self,
        key: &Key,
        observed: &Observed,
        plan: &Plan,
        failure: Option<&Failure>,
    ) -> Result<(), ReplicaSetError> {
        let status = status::render(observed, plan, failure);
        let Some(fragment) = status::fragment(&observed.set, key, &status) else {
            return Ok(());
        };
        let api = Api::<ReplicaSet>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, &fragment, observed.set.as_ref(), &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/replica-set/write-status");
                self.sets.wrote(&observed.set, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(ReplicaSetError::Status(error)),
        }
    }

    fn api(&self, key: &Key) -> Api<Guest> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// A new name for a member.
    fn name(&self, set: &ReplicaSet) -> String {
        let metadata = &set.spec.template["metadata"];
        let given = ["generateName", "name"]
            .iter()
            .find_map(|member| metadata[member].as_str().filter(|name| !name.is_empty()));
        let base = given.map_or_else(|| set.name_any(), ToOwned::to_owned);
        let base: String = base
            .trim_end_matches('-')
            .chars()
            .take(LONGEST_BASE)
            .collect();
        let mut hasher = DefaultHasher::new();
        let number = self.created.fetch_add(1, Ordering::Relaxed);
        (&set.metadata.uid, self.clock.now().as_second(), number).hash(&mut hasher);
        let mut left = hasher.finish();
        let radix = LETTERS.len() as u64;
        let letters = (0..SUFFIX).map(|_| {
            let letter = usize::try_from(left % radix).unwrap_or(0);
            left /= radix;
            char::from(LETTERS[letter])
        });
        format!("{base}-{}", letters.collect::<String>())
    }
}

fn name(step: &Step) -> &'static str {
    match step {
        Step::Adopt(_) => "virt-controller/replica-set/adopt",
        Step::Release(_) => "virt-controller/replica-set/release",
        Step::Delete(_) => "virt-controller/replica-set/delete",
        Step::Create(_) => "virt-controller/replica-set/create",
    }
}

fn owner(set: &ReplicaSet) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": set.metadata.name,
        "uid": set.metadata.uid,
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

fn body(set: &ReplicaSet, member: &Key) -> Value {
    let template = &set.spec.template;
    let mut metadata = json!({
        "name": member.name,
        "namespace": member.namespace,
        "ownerReferences": [owner(set)],
    });
    for part in ["labels", "annotations"] {
        let given = &template["metadata"][part];
        if given.is_object() {
            metadata[part] = given.clone();
        }
    }
    json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachineInstance::KIND,
        "metadata": metadata,
        "spec": template["spec"],
    })
}
