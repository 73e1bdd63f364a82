//! Creates migrations for guests that have to leave their node, because a pod was evicted, and removes
//! that mark from guests that have left it.

use kube::Api;
use kubevirt_api::conditions;
use kubevirt_api::migration_request::{MigrationPriority, VirtualMachineInstanceMigration};
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType, VirtualMachineInstancePhase as GuestPhase,
};
use kubevirt_api::{API_VERSION, annotations, finalizers, labels};
use reasons::Reason;
use reconcile::{EventType, Key, Reconciler, Requeue, WriteError, create};
use serde_json::json;

use super::view::Migration;
use super::{Controller, MigrationError, VMI};
use crate::MANAGER;
use crate::gate::Gate;
use crate::view::{Guest, GuestStatus as Status};
use crate::wiring::Wiring;

struct Evacuation(Controller);

pub(super) fn register(wiring: &mut Wiring<'_>, controller: &Controller) {
    let gate = Gate::default();
    let queue = gate.clone();
    wiring.caches.guests.on_change(move |vmi| {
        if vmi.status.evacuation_node.is_some() {
            queue.add(Key::of(vmi), VMI);
        }
    });
    let (controller, vmis) = (controller.clone(), controller.vmis.clone());
    wiring.controller(&gate, &vmis, move || Evacuation(controller.clone()));
}

/// Whether the guest can and has to leave its node now.
fn has_to_leave(vmi: &Guest) -> bool {
    let status = &vmi.status;
    let kind = VirtualMachineInstanceConditionType::LiveMigratable;
    status.evacuation_node.is_some()
        && status.evacuation_node == status.node_name
        && status.phase == GuestPhase::Running
        && !vmi.is_deleting()
        && conditions::is_true(&status.conditions, &kind)
}

/// Whether the guest has left the node that it had to leave.
fn has_left(vmi: &Guest) -> bool {
    let Status {
        evacuation_node,
        node_name,
        ..
    } = &vmi.status;
    let is_marked = evacuation_node
        .as_ref()
        .is_some_and(|node| !node.is_empty());
    is_marked && node_name.is_some() && evacuation_node != node_name
}

impl Controller {
    /// Removes the mark of the evacuation: while it is there, no other eviction of the guest begins.
    async fn end_evacuation(&self, vmi: &Guest) -> Result<(), MigrationError> {
        let body = json!({"status": {"evacuationNodeName": null}});
        self.publish_on(vmi, body).await?;
        failpoints::after("virt-controller/migration/end-evacuation");
        Ok(())
    }
}

impl Reconciler for Evacuation {
    const NAME: &'static str = "evacuation";
    type Error = MigrationError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, MigrationError> {
        let controller = &self.0;
        let Some(vmi) = controller.vmis.get(key) else {
            return Ok(Requeue::OnChange);
        };
        if has_left(&vmi) {
            controller.end_evacuation(&vmi).await?;
            return Ok(Requeue::OnChange);
        }
        if !has_to_leave(&vmi) {
            return Ok(Requeue::OnChange);
        }
        let all = controller.migrations.in_namespace(&key.namespace);
        let mut of_guest: Vec<_> = all.iter().filter(|one| one.guest() == *key).collect();
        of_guest.sort_by_key(|one| (one.created(), one.uid().to_owned()));
        if of_guest.iter().any(|one| !one.is_final()) {
            return Ok(Requeue::After(AGAIN));
        }
        let last = of_guest.last().map_or("", |one| one.uid());
        let node = vmi.status.node_name.as_deref().unwrap_or_default();
        let body = body(&vmi, key, node, last);
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let own = Key::new(&key.namespace, name);
        let api = Api::<Migration>::namespaced(controller.client.clone(), &key.namespace);
        match create(&api, MANAGER, &own, &body).await {
            Ok(_) => {
                failpoints::after("virt-controller/migration/evacuate");
                let note = format!("Created migration {name}: the guest has to leave node {node}");
                let recorder = &controller.recorder;
                let reason = Reason::SuccessfulCreate;
                recorder.publish(vmi.as_ref(), EventType::Normal, reason, note);
            }
            // By an earlier reconcile, and not observed yet.
            Err(WriteError::AlreadyExists { .. }) => {}
            Err(error) => return Err(MigrationError::Evacuate(error)),
        }
        Ok(Requeue::After(AGAIN))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.0.vmis.get(key)?.metadata.uid.clone()
    }
}

/// When an evacuation is looked at again: its migration may have failed, which the VMI need not show.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(5);

/// The migration. Its name follows from the last one of the guest, so that it is created once.
fn body(vmi: &Guest, key: &Key, node: &str, last: &str) -> serde_json::Value {
    let mut identity = vmi.identity();
    identity.metadata.name = Some(key.name.chars().take(150).collect());
    let unique = launcher_pod::target_pod_name(&identity, &format!("{node}/{last}"));
    let suffix = unique.strip_prefix("virt-launcher-").unwrap_or(&unique);
    json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachineInstanceMigration::KIND,
        "metadata": {
            "name": format!("kubevirt-evacuation-{suffix}"),
            "namespace": key.namespace,
            "annotations": {annotations::EVACUATION_MIGRATION: node},
            "labels": {labels::MIGRATION_VMI_NAME: launcher_pod::label_value(&key.name)},
            "finalizers": [finalizers::MIGRATION],
        },
        "spec": {"vmiName": key.name, "priority": MigrationPriority::SystemCritical},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn evacuation_ends_on_another_node() {
        let check = |status: serde_json::Value, expected: bool| {
            let vmi = json!({"metadata": {}, "status": status});
            let vmi: Guest = serde_json::from_value(vmi).unwrap();
            assert_eq!(has_left(&vmi), expected, "{status}");
        };
        check(json!({"nodeName": "n1"}), false);
        check(json!({"evacuationNodeName": "n1"}), false);
        check(json!({"nodeName": "n1", "evacuationNodeName": "n1"}), false);
        check(json!({"nodeName": "n1", "evacuationNodeName": ""}), false);
        check(json!({"nodeName": "n2", "evacuationNodeName": "n1"}), true);
    }
}
