//! Carries out a plan: the step, then the status, then the events.

use std::fmt::Display;

use kube::Api;
use kubevirt_api::migration::{MigrationAbortStatus, MigrationMode};
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use kubevirt_api::{annotations, finalizers, labels};
use model::MigrationEnd;
use reasons::Reason;
use reconcile::{EventType, Key, Requeue, WriteError, apply_reported, create, delete, merge};
use serde_json::{Map, Value, json};

use super::figures;
use super::observe::{Begun, Observed, is_of};
use super::status::{self, Done};
use super::steps::{Plan, Step};
use super::view::Migration;
use super::{Controller, MigrationError};
use crate::MANAGER;
use crate::operation::set_finalizers;
use crate::view::Guest;
use crate::vmi::LauncherPod;

impl Controller {
    pub(super) async fn act(
        &self,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<Requeue, MigrationError> {
        let migration = observed.migration.as_ref();
        let mut done = Done::default();
        let outcome = match plan.step {
            None => Ok(()),
            Some(Step::AddFinalizer) => return self.add_finalizer(migration).await,
            Some(Step::RemoveFinalizer) => {
                self.forget_pods(observed).await?;
                return self.remove_finalizer(migration).await;
            }
            Some(Step::CleanUp) => return self.clean_up(migration).await,
            Some(Step::CreateTarget) => {
                let created = Box::pin(self.create_target(observed, &mut done)).await;
                if created.is_err() {
                    // Others get its turn meanwhile.
                    self.begun.lock().remove(migration.uid());
                }
                created
            }
            Some(Step::CreateAttachment) => self.create_attachment(observed).await,
            Some(Step::HandOver) => self.hand_over(observed).await,
            Some(Step::RequestAbort) => self.request_abort(observed).await,
            Some(Step::Pair) => self.pair(observed).await,
            Some(Step::AcceptNode) => self.accept_node(observed).await,
            Some(Step::HandOverElsewhere) => self.hand_over_elsewhere(observed).await,
            Some(Step::Synchronize) => self.synchronize(observed, plan).await,
            Some(Step::Withdraw) => self.withdraw(observed, plan).await,
            Some(Step::DeleteTarget) => self.delete_target(observed).await,
        };
        self.write_status(observed, plan, &done).await?;
        outcome?;
        Ok(plan.requeue_in.map_or(Requeue::OnChange, Requeue::After))
    }

    async fn create_target(
        &self,
        observed: &Observed,
        done: &mut Done,
    ) -> Result<(), MigrationError> {
        let pod = match self.render_target(observed).await? {
            None => return Ok(()),
            Some(Ok(pod)) => pod,
            Some(Err(error)) if error.is_transient() => {
                self.reject(observed, done, &error);
                return Err(MigrationError::Render(error));
            }
            Some(Err(error)) => {
                done.failure = Some(format!("the target pod cannot be rendered: {error}"));
                return Ok(());
            }
        };
        let key = Key::of(&pod);
        let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
        match create(&api, MANAGER, &key, &pod).await {
            Ok(_) => {
                let uid = observed.migration.uid().to_owned();
                self.begun.lock().insert(uid, Begun::PodCreated);
                failpoints::after("virt-controller/migration/create-target");
                tracing::info!(pod = key.name, "target pod created");
                let note = format!("Created target pod {}", key.name);
                self.publish(observed, EventType::Normal, Reason::SuccessfulCreate, &note);
                Ok(())
            }
            // Created by an earlier reconcile, and not observed yet.
            Err(WriteError::AlreadyExists { .. }) => {
                let found = api.get_opt(&key.name).await;
                let found = found.map_err(|source| MigrationError::Read {
                    what: "the pod",
                    source: Box::new(source),
                })?;
                let vmi = observed.vmi.as_deref();
                if let (Some(pod), Some(vmi)) = (found, vmi)
                    && !is_of(&pod, vmi)
                {
                    let name = &key.name;
                    done.failure = Some(format!("another pod has the name {name}: delete it"));
                }
                Ok(())
            }
            Err(error) => {
                self.reject(observed, done, &error);
                Err(MigrationError::Create(error))
            }
        }
    }

    /// Says why there is no pod yet. A later attempt may succeed.
    fn reject(&self, observed: &Observed, done: &mut Done, error: &impl Display) {
        let note = format!("Cannot create the target pod: {error}");
        self.publish(observed, EventType::Warning, Reason::FailedCreate, &note);
        done.rejection = Some(error.to_string());
    }

    /// Publishes the migration on the VMI, unless it has changed meanwhile.
    async fn hand_over(&self, observed: &Observed) -> Result<(), MigrationError> {
        let (Some(vmi), Some(target)) = (&observed.vmi, &observed.target) else {
            return Ok(());
        };
        let uid = target.metadata.uid.clone().unwrap_or_default();
        // In the same write: from here on the list of these volumes stays until the migration is over.
        let carries = !vmi.volume_moves().is_empty();
        let body = json!({
            "metadata": {
                "labels": {labels::MIGRATION_TARGET_NODE_NAME: target.node_name},
                "annotations": {
                    annotations::VOLUMES_CARRIED_BY: carries.then_some(observed.migration.uid()),
                },
            },
            "status": {
                "activePods": {uid: target.node_name},
                "migrationState": self.state(observed, vmi),
            },
        });
        self.publish_on(vmi, body).await?;
        failpoints::after("virt-controller/migration/hand-over");
        let place = place(observed);
        let note = format!("The migration to {place} was handed to virt-handler");
        self.publish(
            observed,
            EventType::Normal,
            Reason::SuccessfulHandOver,
            &note,
        );
        Ok(())
    }

    async fn request_abort(&self, observed: &Observed) -> Result<(), MigrationError> {
        let Some(vmi) = &observed.vmi else {
            return Ok(());
        };
        let aborting = MigrationAbortStatus::Aborting;
        let state = json!({"abortRequested": true, "abortStatus": aborting});
        self.publish_on(vmi, json!({"status": {"migrationState": state}}))
            .await?;
        failpoints::after("virt-controller/migration/request-abort");
        Ok(())
    }

    /// Removes the pods from the VMI that this migration has left behind: those on other nodes than the
    /// guest, and, if it does not leave its node, all but its current one.
    async fn forget_pods(&self, observed: &Observed) -> Result<(), MigrationError> {
        let vmi = observed.vmi.as_deref();
        let Some(vmi) = vmi.filter(|vmi| vmi.migration(observed.migration.uid()).is_some()) else {
            return Ok(());
        };
        let current = observed.current_pod.as_ref();
        let all = vmi.status.active_pods.iter();
        let left = all.filter(|(uid, node)| {
            Some(*node) != vmi.status.node_name.as_ref()
                || (observed.is_within_node() && current.is_some_and(|current| current != *uid))
        });
        let left: Map<String, Value> = left.map(|(uid, _)| (uid.clone(), Value::Null)).collect();
        if left.is_empty() {
            return Ok(());
        }
        self.publish_on(vmi, json!({"status": {"activePods": left}}))
            .await?;
        failpoints::after("virt-controller/migration/forget-pods");
        Ok(())
    }

    pub(super) async fn publish_on(
        &self,
        vmi: &Guest,
        mut body: Value,
    ) -> Result<(), MigrationError> {
        let key = Key::of(vmi);
        body["metadata"]["resourceVersion"] = json!(vmi.metadata.resource_version);
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        let written = merge(&api, MANAGER, &key, &body).await;
        self.vmis
            .wrote(vmi, written.map_err(MigrationError::Publish)?);
        Ok(())
    }

    async fn delete_target(&self, observed: &Observed) -> Result<(), MigrationError> {
        let Some(pod) = &observed.target else {
            return Ok(());
        };
        let key = Key::of(pod.as_ref());
        let uid = pod.metadata.uid.clone().unwrap_or_default();
        let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
        let deleted = delete(&api, &key, &uid, None).await;
        deleted.map_err(MigrationError::Delete)?;
        failpoints::after("virt-controller/migration/delete-target");
        tracing::info!(pod = key.name, "target pod deleted");
        let note = format!("Deleted target pod {}", key.name);
        self.publish(observed, EventType::Normal, Reason::SuccessfulDelete, &note);
        Ok(())
    }

    async fn add_finalizer(&self, migration: &Migration) -> Result<Requeue, MigrationError> {
        let mut all = migration.metadata.finalizers.clone().unwrap_or_default();
        all.push(finalizers::MIGRATION.to_owned());
        self.set_finalizers(migration, &all).await?;
        failpoints::after("virt-controller/migration/add-finalizer");
        Ok(Requeue::OnChange)
    }

    pub(super) async fn remove_finalizer(
        &self,
        migration: &Migration,
    ) -> Result<Requeue, MigrationError> {
        if migration.has_finalizer() {
            let mut all = migration.metadata.finalizers.clone().unwrap_or_default();
            all.retain(|name| name != finalizers::MIGRATION);
            self.set_finalizers(migration, &all).await?;
            failpoints::after("virt-controller/migration/remove-finalizer");
        }
        Ok(Requeue::OnChange)
    }

    async fn set_finalizers(
        &self,
        migration: &Migration,
        all: &[String],
    ) -> Result<(), MigrationError> {
        let key = Key::of(migration);
        let api = Api::<Migration>::namespaced(self.client.clone(), &key.namespace);
        match set_finalizers(&api, &key, &migration.metadata, all).await {
            Ok(written) => self.migrations.wrote(migration, written),
            Err(WriteError::NotFound { .. }) => {}
            Err(error) => return Err(MigrationError::Finalizer(error)),
        }
        Ok(())
    }

    async fn clean_up(&self, migration: &Migration) -> Result<Requeue, MigrationError> {
        let key = Key::of(migration);
        let api = Api::<Migration>::namespaced(self.client.clone(), &key.namespace);
        let deleted = delete(&api, &key, migration.uid(), None).await;
        deleted.map_err(MigrationError::CleanUp)?;
        failpoints::after("virt-controller/migration/clean-up");
        Ok(Requeue::OnChange)
    }

    async fn write_status(
        &self,
        observed: &Observed,
        plan: &Plan,
        done: &Done,
    ) -> Result<(), MigrationError> {
        let migration = observed.migration.as_ref();
        let status = status::render(observed, plan, done);
        let key = Key::of(migration);
        let Some(fragment) = status::fragment(migration, &key, &status) else {
            return Ok(());
        };
        let api = Api::<Migration>::namespaced(self.client.clone(), &key.namespace);
        match apply_reported(&api, &fragment, migration, &self.recorder).await {
            Ok(written) => {
                failpoints::after("virt-controller/migration/write-status");
                let before = migration.phase();
                let after = status.phase.unwrap_or_default();
                if before != after {
                    tracing::info!(from = %before, to = %after, "phase changes");
                    figures::enter(&after, migration.created(), observed.now);
                    let message = done.failure.as_ref().or(plan.failure.as_ref());
                    self.publish_end(observed, &after, message.map(String::as_str));
                }
                self.migrations.wrote(migration, written);
                Ok(())
            }
            Err(WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(MigrationError::Status(error)),
        }
    }

    fn publish_end(&self, observed: &Observed, phase: &Phase, message: Option<&str>) {
        match phase {
            Phase::Succeeded => {
                let note = format!("The guest runs on {}", place(observed));
                self.publish(
                    observed,
                    EventType::Normal,
                    Reason::SuccessfulMigration,
                    &note,
                );
            }
            Phase::Failed if observed.migration.is_deleting() && !was_switched(observed) => {
                let note = "The migration was cancelled; the guest stays where it is";
                let reason = Reason::SuccessfulAbortMigration;
                self.publish(observed, EventType::Normal, reason, note);
            }
            Phase::Failed => {
                let message = message.unwrap_or_default();
                let note = if was_switched(observed) {
                    format!("The guest is lost: {message}")
                } else {
                    format!("The guest stays where it is: {message}")
                };
                self.publish(observed, EventType::Warning, Reason::FailedMigration, &note);
            }
            _ => {}
        }
    }

    /// Publishes an event on the migration and on its VMI.
    pub(super) fn publish(&self, observed: &Observed, kind: EventType, reason: Reason, note: &str) {
        let migration = observed.migration.as_ref();
        self.recorder.publish(migration, kind, reason, note);
        if let Some(vmi) = &observed.vmi {
            self.recorder.publish(vmi.as_ref(), kind, reason, note);
        }
    }
}

/// Whether the guest could not go back, because its memory was in two pods.
fn was_switched(observed: &Observed) -> bool {
    let vmi = observed.vmi.as_deref();
    let state = vmi.and_then(|vmi| vmi.migration(observed.migration.uid()));
    state.is_some_and(|state| state.mode == Some(MigrationMode::PostCopy))
}

/// Where a migration moves the guest, for messages.
pub(super) fn place(observed: &Observed) -> String {
    let other = observed.other.as_ref();
    if observed.migration.end() == Some(MigrationEnd::Source)
        && let Some(vmi) = other.and_then(|other| other.vmi.as_deref())
    {
        let node = vmi.status.node_name.as_deref().unwrap_or_default();
        return format!("node {node}, as VirtualMachineInstance {}", Key::of(vmi));
    }
    let target = observed.target.as_deref();
    let node = target.and_then(|pod| pod.node_name.as_deref());
    let of_vmi = || observed.vmi.as_deref()?.status.node_name.as_deref();
    let node = format!("node {}", node.or_else(of_vmi).unwrap_or_default());
    let pod = target.and_then(|pod| pod.metadata.name.as_deref());
    match pod.filter(|_| observed.is_within_node()) {
        Some(pod) => format!("{node}, in pod {pod}"),
        None => node,
    }
}
