//! Writes the states of the two ends.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kubevirt_api::annotations;
use model::MigrationEnd;
use reasons::Reason;
use reconcile::{EventType, Key};
use serde_json::{Value, json};

use super::{Peer, send};
use crate::merge_patch::in_place_of;
use crate::migration::act::place;
use crate::migration::observe::Observed;
use crate::migration::steps::Plan;
use crate::migration::{Controller, MigrationError};
use crate::view::Guest;

/// A VMI, its migration and its pod.
fn end(vmi: &Guest, migration_uid: &str) -> Value {
    let Key { namespace, name } = Key::of(vmi);
    json!({
        "node": vmi.status.node_name,
        "pod": launcher_pod::current_pod_name(&vmi.identity()),
        "migrationUID": migration_uid,
        "domainName": name,
        "domainNamespace": namespace,
        "virtualMachineInstanceUID": vmi.metadata.uid,
    })
}

impl Controller {
    /// On the VMI that waits: which guest comes. From here on it gets a pod.
    pub(in crate::migration) async fn pair(
        &self,
        observed: &Observed,
    ) -> Result<(), MigrationError> {
        let (Some(vmi), Some(other)) = (&observed.vmi, &observed.other) else {
            return Ok(());
        };
        let (Some(source), Peer::One(sends)) = (&other.vmi, &other.peer) else {
            return Ok(());
        };
        let own = end(vmi, observed.migration.uid());
        let source_end = end(source, sends.uid());
        let new = json!({
            "migrationUid": observed.migration.uid(),
            "sourceNode": source_end["node"],
            "sourcePod": source_end["pod"],
            "targetPod": own["pod"],
            "sourceState": source_end,
            "targetState": own,
        });
        let state = in_place_of(&json!(vmi.status.migration), new);
        let mut body = json!({"status": {"migrationState": state}});
        if !other.addresses.is_empty() {
            // The pod's networks are made for them.
            let all = other.addresses.iter();
            let all = all.map(|(name, mac)| json!({"name": name, "mac": mac}));
            body["status"]["interfaces"] = all.collect();
        }
        self.publish_on(vmi, body).await?;
        failpoints::after("virt-controller/migration/pair");
        Ok(())
    }

    /// On the VMI that waits: its pod is ready.
    pub(in crate::migration) async fn accept_node(
        &self,
        observed: &Observed,
    ) -> Result<(), MigrationError> {
        let Some(vmi) = &observed.vmi else {
            return Ok(());
        };
        let node = &vmi.status.node_name;
        let state = json!({"targetNode": node, "targetState": {"node": node}});
        self.publish_on(vmi, json!({"status": {"migrationState": state}}))
            .await?;
        failpoints::after("virt-controller/migration/accept-node");
        Ok(())
    }

    /// On the VMI of the guest: from here on virt-handlers act.
    pub(in crate::migration) async fn hand_over_elsewhere(
        &self,
        observed: &Observed,
    ) -> Result<(), MigrationError> {
        let (Some(vmi), Some(other)) = (&observed.vmi, &observed.other) else {
            return Ok(());
        };
        let target = other.vmi.as_deref();
        let Some(offer) = target.and_then(|target| send::offer(observed, vmi, target)) else {
            return Ok(());
        };
        let mut new = self.state_of_source(observed, vmi);
        new["targetNode"] = json!(offer.target_node);
        new["targetPod"] = json!(offer.target_pod);
        new["sourceState"] = end(vmi, observed.migration.uid());
        new["targetState"] = json!(offer.target_state);
        let state = in_place_of(&json!(vmi.status.migration), new);
        self.publish_on(vmi, json!({"status": {"migrationState": state}}))
            .await?;
        failpoints::after("virt-controller/migration/hand-over-elsewhere");
        let note = format!(
            "The migration to {} was handed to virt-handler",
            place(observed)
        );
        let reason = Reason::SuccessfulHandOver;
        self.publish(observed, EventType::Normal, reason, &note);
        Ok(())
    }

    /// On the VMI of this end: what the other one has reported.
    pub(in crate::migration) async fn synchronize(
        &self,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<(), MigrationError> {
        let (Some(vmi), Some(news)) = (&observed.vmi, &plan.news) else {
            return Ok(());
        };
        let mut body = json!({"status": {"migrationState": news}});
        let has_come = news["completed"] == true && news["failed"] != true;
        if has_come && observed.migration.end() == Some(MigrationEnd::Target) {
            // It is a VMI like any other now.
            body["metadata"] =
                json!({"annotations": {annotations::CREATE_MIGRATION_TARGET: Value::Null}});
        }
        self.publish_on(vmi, body).await?;
        failpoints::after("virt-controller/migration/synchronize");
        Ok(())
    }

    /// On the VMI that waits: no guest comes.
    pub(in crate::migration) async fn withdraw(
        &self,
        observed: &Observed,
        plan: &Plan,
    ) -> Result<(), MigrationError> {
        let Some(vmi) = &observed.vmi else {
            return Ok(());
        };
        let state = json!({
            "completed": true, "failed": true, "failureReason": plan.withdrawal,
            "endTimestamp": Time(observed.now),
        });
        self.publish_on(vmi, json!({"status": {"migrationState": state}}))
            .await?;
        failpoints::after("virt-controller/migration/withdraw");
        Ok(())
    }
}
