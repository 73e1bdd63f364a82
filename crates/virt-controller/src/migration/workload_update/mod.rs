//! Moves running guests into new pods: those whose pod has an outdated launcher, and those with a change that
//! takes effect in another pod, as the `KubeVirt` object wants it.
//!
//! - `view` reads the strategy of the administrator;
//! - `plan` decides which guests move and which pods are evicted;
//! - `abort` ends moves whose cause is gone.
//!
//! **Invariants**: without a strategy, no guest moves or ends; at any time no more guests move than the
//! limits of migrations permit; a pod is evicted by the eviction API, which respects disruption budgets.

mod abort;
mod plan;
mod view;

use std::collections::BTreeMap;
use std::sync::Arc;

use error_chain::error_chain;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::EvictParams;
use kube::runtime::watcher;
use kubevirt_api::migration_request::MigrationPriority;
use kubevirt_api::vmi_status::VirtualMachineInstanceConditionType as Condition;
use kubevirt_api::{annotations, conditions};
use parking_lot::Mutex;
use reasons::Reason;
use reconcile::{EventType, Key, Reconciler, Requeue, Store};
use serde_json::json;

use self::plan::{Need, Observed, Outdated, plan};
use self::view::Installation;
use super::automatic::Cause;
use super::limits::Limits;
use super::observe::{back_off_of, by_guest};
use super::{Controller, MigrationError, VMI};
use crate::MANAGER;
use crate::gate::Gate;
use crate::view::Guest;
use crate::wiring::Wiring;

/// Trigger by a `KubeVirt` object.
const KUBEVIRT: &str = "kubevirt";
/// How often guests that are to move are looked at, as long as there are any.
const AGAIN: std::time::Duration = std::time::Duration::from_secs(5);
/// Guests that move to other pods of their node at a time: each needs its memory twice there meanwhile.
const MOVES_WITHIN_NODE: u32 = 1;

#[derive(Clone)]
struct WorkloadUpdate {
    controller: Controller,
    installations: Store<Installation>,
    tries: Arc<Mutex<Tries>>,
}

/// What this process has tried: a new leader may evict a batch too early.
#[derive(Default)]
struct Tries {
    last_eviction: Option<Timestamp>,
    /// Of guests that are still to move: when an eviction, or a move that was refused, was tried.
    of_guests: BTreeMap<Key, Timestamp>,
}

pub(super) fn register(wiring: &mut Wiring<'_>, controller: &Controller) {
    let gate = Gate::default();
    let installations: Store<Installation> = Store::new();
    let queue = gate.clone();
    let on_change = move |one: &Installation| queue.add(Key::of(one), KUBEVIRT);
    wiring.watch_if_defined(watcher::Config::default(), &installations, on_change);
    let (queue, all) = (gate.clone(), installations.clone());
    let current = controller.source.launcher.launcher_image.clone();
    wiring.caches.guests.on_change(move |vmi| {
        let is_changed =
            vmi.awaits_size() || vmi.awaits_network() || !vmi.volume_moves().is_empty();
        if vmi.status.runs_in_other_than(&current) || is_changed {
            queue.add_all(all.keys(), VMI);
        }
    });
    let update = WorkloadUpdate {
        controller: controller.clone(),
        installations: installations.clone(),
        tries: Arc::default(),
    };
    wiring.controller(&gate, &installations, move || update.clone());
}

impl Reconciler for WorkloadUpdate {
    const NAME: &'static str = "workload-update";
    type Error = MigrationError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, MigrationError> {
        // While an installation is incomplete, a new launcher may need what is not there yet.
        let found = self.installations.get(key);
        let Some(installation) = found.filter(|one| one.is_complete) else {
            return Ok(Requeue::OnChange);
        };
        let concerned = self.concerned();
        let current = &self.controller.source.launcher.launcher_image;
        let outdated = concerned
            .values()
            .filter(|(vmi, _)| vmi.status.runs_in_other_than(current));
        let count = i64::try_from(outdated.count()).unwrap_or(i64::MAX);
        let is_moving = self.abort_needless_moves().await;
        // Without a method, only the number matters.
        if installation.strategy.moves || installation.strategy.evicts {
            let plan = plan(&self.observe(&installation, &concerned));
            for guest in &plan.moves {
                if let Some((vmi, need)) = concerned.get(guest) {
                    self.move_guest(guest, vmi, *need).await;
                }
            }
            for guest in &plan.evictions {
                self.evict(guest).await;
            }
        }
        if installation.outdated != Some(count) {
            self.publish_count(key, count).await?;
        }
        Ok(if concerned.is_empty() && !is_moving {
            Requeue::OnChange
        } else {
            Requeue::After(AGAIN)
        })
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.installations.get(key)?.metadata.uid.clone()
    }
}

impl WorkloadUpdate {
    /// The running guests that are to move, by name.
    fn concerned(&self) -> BTreeMap<Key, (Arc<Guest>, Need)> {
        let current = &self.controller.source.launcher.launcher_image;
        let guests = self.controller.vmis.list().into_iter();
        let concerned = guests.filter_map(|vmi| {
            let can_move = conditions::is_true(&vmi.status.conditions, &Condition::LiveMigratable);
            let is_outdated = vmi.status.runs_in_other_than(current);
            let is_resized = vmi.awaits_size() && !self.has_room(&vmi);
            let is_changed = is_resized || vmi.awaits_network() || !vmi.volume_moves().is_empty();
            let need = match (is_outdated, is_changed) {
                // The pod that the user waits for has the current launcher too.
                (true, true) if can_move => Need::Change,
                (true, _) => Need::Launcher,
                (false, true) => Need::Change,
                (false, false) => return None,
            };
            Some((Key::of(vmi.as_ref()), (vmi, need)))
        });
        concerned.collect()
    }

    /// Whether the guest gets what it waits for in the pod that it has, or that pod is not known yet.
    fn has_room(&self, vmi: &Guest) -> bool {
        let name = launcher_pod::current_pod_name(&vmi.identity());
        let pod = Key::new(Key::of(vmi).namespace, name);
        let pod = self.controller.pods.get(&pod);
        pod.is_none_or(|pod| pod.size.is_some_and(|made_for| made_for.covers(vmi.size)))
    }

    fn observe<'a>(
        &self,
        installation: &'a Installation,
        guests: &BTreeMap<Key, (Arc<Guest>, Need)>,
    ) -> Observed<'a> {
        let controller = &self.controller;
        let now = controller.clock.now();
        let all = controller.migrations.list();
        let groups = by_guest(&all);
        let mut tries = self.tries.lock();
        let of_guests = &mut tries.of_guests;
        of_guests.retain(|key, _| guests.contains_key(key));
        let outdated: Vec<_> = guests
            .iter()
            .map(|(guest, (vmi, need))| {
                let of_guest = groups.get(guest).map_or(&[][..], Vec::as_slice);
                let is_moving = of_guest.iter().any(|one| !one.is_final());
                let is_leaving = vmi.is_deleting() || vmi.status.evacuation_node.is_some();
                let is_waiting = back_off_of(of_guest, now).is_some();
                Outdated {
                    need: *need,
                    can_move: conditions::is_true(
                        &vmi.status.conditions,
                        &Condition::LiveMigratable,
                    ),
                    is_held_back: is_moving || is_leaving || is_waiting,
                    tried: of_guests.get(guest).copied(),
                    guest: guest.clone(),
                }
            })
            .collect();
        let config = controller.source.cluster.now();
        let limit = if guests.values().any(|(vmi, _)| vmi.stays_on_node()) {
            MOVES_WITHIN_NODE
        } else {
            Limits::of(config.written.migrations.as_ref()).per_cluster
        };
        let unfinished = all.iter().filter(|one| !one.is_final()).count();
        Observed {
            strategy: &installation.strategy,
            outdated,
            free_moves: usize::try_from(limit)
                .unwrap_or(usize::MAX)
                .saturating_sub(unfinished),
            last_batch: tries.last_eviction,
            now,
        }
    }

    /// A refusal is published, and does not keep back other guests.
    async fn move_guest(&self, guest: &Key, vmi: &Guest, need: Need) {
        let controller = &self.controller;
        let (priority, note) = match need {
            Need::Launcher => (
                MigrationPriority::SystemMaintenance,
                "the guest moves to a pod with the current launcher",
            ),
            Need::Change => (
                MigrationPriority::UserTriggered,
                "a change of the VM takes effect in another pod",
            ),
        };
        let cause = Cause {
            prefix: "kubevirt-workload-update",
            mark: (annotations::WORKLOAD_UPDATE_MIGRATION, ""),
            priority,
            note,
        };
        if let Err(error) = controller.move_guest(vmi, &cause).await {
            let now = controller.clock.now();
            self.tries.lock().of_guests.insert(guest.clone(), now);
            let note = format!(
                "Cannot move the guest to another pod ({note}): {}",
                error_chain(&error)
            );
            controller
                .recorder
                .publish(vmi, EventType::Warning, Reason::FailedCreate, note);
        }
    }

    /// A refusal is published, and repeated with a later batch.
    async fn evict(&self, guest: &Key) {
        let controller = &self.controller;
        let Some(vmi) = controller.vmis.get(guest) else {
            return;
        };
        let now = controller.clock.now();
        {
            let mut tries = self.tries.lock();
            tries.last_eviction = Some(now);
            tries.of_guests.insert(guest.clone(), now);
        }
        let pod = launcher_pod::current_pod_name(&vmi.identity());
        let api = Api::<Pod>::namespaced(controller.client.clone(), &guest.namespace);
        let (kind, reason, note) = match api.evict(&pod, &EvictParams::default()).await {
            Ok(_) => {
                failpoints::after("virt-controller/migration/evict-outdated");
                let note = format!("Evicted pod {pod}, which has an outdated launcher");
                (EventType::Normal, Reason::SuccessfulEvict, note)
            }
            Err(kube::Error::Api(status)) if status.code == 404 => return,
            Err(error) => {
                let note = format!("Cannot evict pod {pod} with an outdated launcher: {error}");
                (EventType::Warning, Reason::FailedEvict, note)
            }
        };
        controller
            .recorder
            .publish(vmi.as_ref(), kind, reason, note);
    }

    async fn publish_count(&self, key: &Key, count: i64) -> Result<(), MigrationError> {
        let body = json!({"status": {"outdatedVirtualMachineInstanceWorkloads": count}});
        let api = Api::<Installation>::namespaced(self.controller.client.clone(), &key.namespace);
        reconcile::merge_status(&api, MANAGER, key, &body)
            .await
            .map(drop)
            .map_err(MigrationError::Count)
    }
}
