//! Creates migrations for guests that have to leave their node, because a pod was evicted or the node has the taint
//! of drained nodes, and removes the mark of an eviction from guests that have left their node.

use cluster_config::ClusterConfig;
use kubevirt_api::migration_request::MigrationPriority;
use kubevirt_api::vmi::EvictionStrategy;
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType, VirtualMachineInstancePhase as GuestPhase,
};
use kubevirt_api::{annotations, conditions};
use reconcile::{Key, Reconciler, Requeue};
use serde_json::json;

use super::automatic::Cause;
use super::{CONFIGURATION, Controller, MigrationError, VMI};
use crate::gate::Gate;
use crate::view::{Guest, GuestStatus as Status, Host};
use crate::wiring::Wiring;

const NODE: &str = "node";

struct Evacuation(Controller);

pub(super) fn register(wiring: &mut Wiring<'_>, controller: &Controller) {
    let gate = Gate::default();
    let (queue, source) = (gate.clone(), controller.source.clone());
    wiring.caches.guests.on_change(move |vmi| {
        let host = source.hosts.get(&host_of(vmi));
        if vmi.status.evacuation_node.is_some()
            || is_drained(vmi, host.as_deref(), &source.cluster.now())
        {
            queue.add(Key::of(vmi), VMI);
        }
    });
    let (queue, source) = (gate.clone(), controller.source.clone());
    let all = controller.vmis.clone();
    wiring.caches.hosts.on_change(move |host: &Host| {
        if !has_taint(host, &source.cluster.now()) {
            return;
        }
        let here = Key::of(host);
        let all = all.list().into_iter();
        let guests = all.filter(|vmi| host_of(vmi) == here);
        queue.add_all(guests.map(|vmi| Key::of(&*vmi)), NODE);
    });
    let (queue, all) = (gate.clone(), controller.vmis.clone());
    // The taint may have another key now.
    wiring.on_configuration(move || queue.add_all(all.keys(), CONFIGURATION));
    let (controller, vmis) = (controller.clone(), controller.vmis.clone());
    wiring.controller(&gate, &vmis, move || Evacuation(controller.clone()));
}

/// Whether an eviction has the guest leave its node now, by a migration of this controller.
pub(super) fn has_to_leave(vmi: &Guest) -> bool {
    let status = &vmi.status;
    status.evacuation_node.is_some() && status.evacuation_node == status.node_name && can_leave(vmi)
}

fn can_leave(vmi: &Guest) -> bool {
    let status = &vmi.status;
    let kind = VirtualMachineInstanceConditionType::LiveMigratable;
    status.phase == GuestPhase::Running
        && vmi.eviction_strategy != Some(EvictionStrategy::External)
        && !vmi.is_deleting()
        && conditions::is_true(&status.conditions, &kind)
        && !vmi.stays_on_node()
}

fn host_of(vmi: &Guest) -> Key {
    Key::new("", vmi.status.node_name.as_deref().unwrap_or_default())
}

fn has_taint(host: &Host, config: &ClusterConfig) -> bool {
    host.no_schedule.contains(config.drain_taint())
}

/// Whether the guest is to leave a node that is drained by its taint, without an eviction of its pod.
fn is_drained(vmi: &Guest, host: Option<&Host>, config: &ClusterConfig) -> bool {
    use EvictionStrategy::{LiveMigrate, LiveMigrateIfPossible};
    let own = vmi.eviction_strategy.as_ref();
    let strategy = own.unwrap_or(&config.eviction_strategy);
    matches!(strategy, LiveMigrate | LiveMigrateIfPossible)
        && host.is_some_and(|host| has_taint(host, config))
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
        let host = controller.source.hosts.get(&host_of(&vmi));
        let config = controller.source.cluster.now();
        let is_drained = can_leave(&vmi) && is_drained(&vmi, host.as_deref(), &config);
        if !has_to_leave(&vmi) && !is_drained {
            return Ok(Requeue::OnChange);
        }
        let all = controller.migrations.in_namespace(&key.namespace);
        let mut of_guest = all.iter().filter(|one| one.guest() == *key);
        if of_guest.any(|one| !one.is_final()) {
            return Ok(Requeue::After(AGAIN));
        }
        let node = vmi.status.node_name.as_deref().unwrap_or_default();
        let cause = Cause {
            prefix: "kubevirt-evacuation",
            mark: (annotations::EVACUATION_MIGRATION, node),
            priority: MigrationPriority::SystemCritical,
            note: &format!("the guest has to leave node {node}"),
        };
        controller.move_guest(&vmi, &cause).await?;
        Ok(Requeue::After(AGAIN))
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.0.vmis.get(key)?.metadata.uid.clone()
    }
}

/// When an evacuation is looked at again: its migration may have failed, which the VMI need not show.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(5);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn guest_has_to_leave_unless_another_controller_moves_it() {
        let guest = |strategy: &str| -> Guest {
            let vmi = json!({
                "metadata": {},
                "spec": {"domain": {"devices": {}}, "evictionStrategy": strategy},
                "status": {
                    "phase": "Running", "nodeName": "n1", "evacuationNodeName": "n1",
                    "conditions": [{"type": "LiveMigratable", "status": "True"}],
                },
            });
            serde_json::from_value(vmi).unwrap()
        };
        for (strategy, expected) in [
            ("LiveMigrate", true),
            ("LiveMigrateIfPossible", true),
            ("External", false),
        ] {
            assert_eq!(has_to_leave(&guest(strategy)), expected, "{strategy}");
        }
    }

    #[test]
    fn taint_of_drained_nodes_moves_guests_whose_strategy_allows_it() {
        let host = |key: &str, effect: &str| -> Host {
            let taint = json!({"key": key, "effect": effect});
            let node = json!({"metadata": {"name": "n1"}, "spec": {"taints": [taint]}});
            serde_json::from_value(node).unwrap()
        };
        let config = |strategy: Option<&str>, key: Option<&str>| {
            let written = json!({"evictionStrategy": strategy,
                "migrations": {"nodeDrainTaintKey": key}});
            ClusterConfig::from_kubevirt(&serde_json::from_value(written).unwrap())
        };
        let drain = "kubevirt.io/drain";
        for (own, default, key, host, expected) in [
            (
                Some("LiveMigrate"),
                None,
                None,
                host(drain, "NoSchedule"),
                true,
            ),
            (
                Some("LiveMigrateIfPossible"),
                None,
                None,
                host(drain, "NoSchedule"),
                true,
            ),
            (
                None,
                Some("LiveMigrate"),
                None,
                host(drain, "NoSchedule"),
                true,
            ),
            (None, None, None, host(drain, "NoSchedule"), false),
            (
                Some("None"),
                Some("LiveMigrate"),
                None,
                host(drain, "NoSchedule"),
                false,
            ),
            (
                Some("External"),
                None,
                None,
                host(drain, "NoSchedule"),
                false,
            ),
            (
                Some("LiveMigrate"),
                None,
                None,
                host(drain, "NoExecute"),
                false,
            ),
            (
                Some("LiveMigrate"),
                None,
                None,
                host("other", "NoSchedule"),
                false,
            ),
            (
                Some("LiveMigrate"),
                None,
                Some("other"),
                host("other", "NoSchedule"),
                true,
            ),
        ] {
            let vmi = json!({"metadata": {}, "status": {"nodeName": "n1"},
                "spec": {"domain": {"devices": {}}, "evictionStrategy": own}});
            let vmi: Guest = serde_json::from_value(vmi).unwrap();
            let found = is_drained(&vmi, Some(&host), &config(default, key));
            assert_eq!(found, expected, "{own:?} {default:?} {key:?} {host:?}");
        }
    }

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
