//! Carrying out a plan: members first, then the status.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use std::sync::Arc;
use std::sync::atomic::Ordering;

use kube::{Api, ResourceExt as _};
use kubevirt_api::conditions;
use kubevirt_api::replica_set::VirtualMachineInstanceReplicaSetConditionType as Type;
use kubevirt_api::{API_VERSION, VirtualMachineInstance};
use reasons::Reason;
use reconcile::{
    EventType, Fragment, Key, Requeue, WriteError, apply, create, delete_as_seen, merge,
};
use serde_json::{Value, json};
use tokio::time::Instant;

use super::observe::Observed;
use super::plan::{Plan, Step};
use super::status::{self, Failure};
use super::{Controller, KIND, ReplicaSetError};
use crate::MANAGER;
use crate::view::{Guest, ReplicaSet};

/// As an API server makes them up: without vowels, so that they make no words.
const LETTERS: &[u8] = b"bcdfghjklmnpqrstvwxz2456789";
const SUFFIX: usize = 5;
/// Room for the suffix in a name.
const LONGEST_BASE: usize = 57;

impl Controller {
    pub(super) async fn act(
        &self,
        key: &Key,
        seen: &Observed,
        plan: &Plan,
    ) -> Result<Requeue, ReplicaSetError> {
        let mut failure = None;
        let mut outcome = Ok(());
        for step in &plan.steps {
            outcome = self.step(key, seen, step, &mut failure).await;
            if outcome.is_err() {
                break;
            }
            failpoints::after(name(step));
        }
        self.tell_pause(seen);
        self.write_status(key, seen, plan, failure.as_ref()).await?;
        outcome?;
        Ok(plan.look_again_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn step(
        &self,
        key: &Key,
        seen: &Observed,
        step: &Step,
        failure: &mut Option<Failure>,
    ) -> Result<(), ReplicaSetError> {
        let set = seen.set.as_ref();
        match step {
            Step::Adopt(vmi) => self.own(vmi, |owners| owners.push(owner(set))).await,
            Step::LetGo(vmi) => {
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
        let refused = self.note(key, |asked| asked.refused.take());
        let name = refused.unwrap_or_else(|| self.name(set));
        let member = Key::new(&key.namespace, &name);
        // Noted first: whatever becomes of the answer, the VMI may be there from now on.
        self.note(key, |asked| {
            asked.made.insert(name.clone(), Instant::now());
        });
        let body = body(set, &member);
        match create::<Guest>(&self.api(key), MANAGER, &member, &body).await {
            Ok(vmi) => {
                tracing::info!(vmi = name, vmi_uid = vmi.uid(), "instance created");
                let note = format!("Created instance {name}");
                let reason = Reason::SuccessfulCreate;
                self.recorder.publish(set, EventType::Normal, reason, note);
                Ok(())
            }
            Err(error) => {
                let is_taken = matches!(error, WriteError::AlreadyExists { .. });
                if !matches!(error, WriteError::Unavailable { .. }) {
                    self.note(key, |asked| {
                        asked.made.remove(&name);
                        asked.refused = (!is_taken).then(|| name.clone());
                    });
                }
                let note = format!("Cannot create instance {name}: {error}");
                let reason = Reason::FailedCreate;
                self.recorder.publish(set, EventType::Warning, reason, note);
                *failure = Some((Reason::FailedCreate, error.to_string()));
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
        match delete_as_seen(&self.api(key), &member, &vmi.metadata).await {
            Ok(()) => {
                self.note(key, |asked| {
                    asked.deleted.insert(uid.clone());
                });
                tracing::info!(vmi = member.name, vmi_uid = uid, "instance deleted");
                let note = format!("Deleted instance {}", member.name);
                let reason = Reason::SuccessfulDelete;
                self.recorder.publish(set, EventType::Normal, reason, note);
                Ok(())
            }
            Err(error @ WriteError::Conflict { .. }) => Err(ReplicaSetError::Delete(error)),
            Err(error) => {
                let note = format!("Cannot delete instance {}: {error}", member.name);
                let reason = Reason::FailedDelete;
                self.recorder.publish(set, EventType::Warning, reason, note);
                *failure = Some((Reason::FailedDelete, error.to_string()));
                Err(ReplicaSetError::Delete(error))
            }
        }
    }

    fn note<T>(&self, key: &Key, change: impl FnOnce(&mut super::AskedFor) -> T) -> T {
        change(self.asked_for.lock().entry(key.clone()).or_default())
    }

    /// Once for each time.
    fn tell_pause(&self, seen: &Observed) {
        let set = seen.set.as_ref();
        let was = conditions::is_true(&set.status().conditions, &Type::ReplicaPaused);
        let is = set.spec.paused == Some(true);
        let (reason, note) = match (was, is) {
            (false, true) => (Reason::SuccessfulPaused, "The set is paused"),
            (true, false) => (Reason::SuccessfulResumed, "The set goes on"),
            _ => return,
        };
        self.recorder.publish(set, EventType::Normal, reason, note);
    }

    async fn write_status(
        &self,
        key: &Key,
        seen: &Observed,
        plan: &Plan,
        failure: Option<&Failure>,
    ) -> Result<(), ReplicaSetError> {
        let status = status::render(seen, plan, failure);
        let Some(body) = status::fragment(&seen.set, key, &status) else {
            return Ok(());
        };
        let fragment = Fragment {
            manager: MANAGER,
            key,
            subresource: Some("status"),
            body,
        };
        let api = Api::<ReplicaSet>::namespaced(self.client.clone(), &key.namespace);
        match apply(&api, &fragment).await {
            Ok(written) => {
                failpoints::after("virt-controller/replica-set/write-status");
                self.sets.wrote(&seen.set, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(ReplicaSetError::Status(error)),
        }
    }

    fn api(&self, key: &Key) -> Api<Guest> {
        Api::namespaced(self.client.clone(), &key.namespace)
    }

    /// A name that no member had before.
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
        let number = self.made.fetch_add(1, Ordering::Relaxed);
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
        Step::LetGo(_) => "virt-controller/replica-set/let-go",
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
