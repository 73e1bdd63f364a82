//! Observation: everything that one reconcile may read.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::{Api, ResourceExt as _};
use kubevirt_api::conditions;
use kubevirt_api::vm_status::{StateChangeRequestAction as Action, VirtualMachineConditionType};
use kubevirt_api::vmi_status::{
    VirtualMachineInstanceConditionType, VirtualMachineInstancePhase as Phase,
};
use kubevirt_api::{finalizers, labels};
use reconcile::Key;
use tokio::time::Instant;

use super::view::{Pool, Revision};
use super::{Controller, KIND, PoolError, concerns, former, is_controlled, selects, template};
use crate::view::Guest;
use crate::vm::{Strategy, Vm};

/// How long the cache may lag before the controller reads a created VM from the server.
const LAG: Duration = Duration::from_secs(5);
/// Created VMs that are read from the server in one reconcile.
const MAX_READS: usize = 10;

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) pool: Arc<Pool>,
    /// VMs that the pool controls, its selector matches, and whose name it gave, by their number.
    pub(super) members: Vec<Member>,
    /// Other VMs that the pool controls.
    pub(super) strangers: Vec<Arc<Vm>>,
    /// VMs without a controlling owner that still have the pool's finalizer.
    pub(super) orphans: Vec<Arc<Vm>>,
    /// Numbers whose name a VM has, whoever controls it.
    pub(super) taken: BTreeSet<u32>,
    /// Created VMs that the cache does not show yet.
    pub(super) awaited: usize,
    /// By name.
    pub(super) revisions: BTreeMap<String, Arc<Revision>>,
    pub(super) now: Timestamp,
}

/// A VM of the pool.
#[derive(Debug, Clone)]
pub(super) struct Member {
    pub(super) vm: Arc<Vm>,
    pub(super) ordinal: u32,
    /// Its VMI.
    pub(super) guest: Option<Arc<Guest>>,
    /// It is being deleted, even if the cache does not show that yet.
    pub(super) is_leaving: bool,
    /// This controller has deleted the guest, even if the cache does not show that yet.
    pub(super) is_restarted: bool,
}

impl Member {
    /// Whether the VM reports that its guest is ready.
    pub(super) fn is_ready(&self) -> bool {
        let status = self.vm.status();
        conditions::is_true(&status.conditions, &VirtualMachineConditionType::Ready)
    }

    /// Whether the guest itself is in service.
    pub(super) fn is_available(&self) -> bool {
        self.guest.as_ref().is_some_and(|guest| {
            let ready = &VirtualMachineInstanceConditionType::Ready;
            !guest.is_deleting()
                && !self.is_ending()
                && *guest.phase() == Phase::Running
                && conditions::is_true(&guest.status.conditions, ready)
        })
    }

    /// Whether the guest is about to end, though it may still run.
    pub(super) fn is_ending(&self) -> bool {
        let uid = self
            .guest
            .as_ref()
            .and_then(|guest| guest.metadata.uid.as_ref());
        let status = self.vm.status();
        let mut requests = status.state_change_requests.iter();
        self.is_restarted
            || requests.any(|request| {
                matches!(request.action, Action::Stop)
                    && uid.is_some()
                    && request.uid.as_ref() == uid
            })
    }

    /// Whether the VM starts another guest only if it is asked to.
    pub(super) fn starts_on_request(&self) -> bool {
        let strategy = Strategy::of(&self.vm.spec);
        matches!(strategy, Strategy::Manual | Strategy::RerunOnFailure)
    }

    /// Whether the guest has ended and the VM leaves it at that.
    pub(super) fn is_at_rest(&self) -> bool {
        let strategy = Strategy::of(&self.vm.spec);
        matches!(strategy, Strategy::Manual | Strategy::Once)
            && self.guest.as_deref().is_some_and(Guest::is_final)
    }

    /// The revision of the pool that the VM is like.
    pub(super) fn revision(&self) -> Option<&str> {
        revision_of(&self.vm.metadata)
    }

    /// The revision that the guest was started from.
    pub(super) fn guest_revision(&self) -> Option<&str> {
        revision_of(&self.guest.as_ref()?.metadata)
    }
}

fn revision_of(metadata: &ObjectMeta) -> Option<&str> {
    let all = metadata.labels.as_ref()?;
    all.get(labels::POOL_REVISION_NAME).map(String::as_str)
}

/// Whether the object is in the namespace of the pool. Who may write elsewhere can name the pool as an owner
/// there, too.
fn is_beside(pool: &Pool, metadata: &ObjectMeta) -> bool {
    metadata.namespace == pool.metadata.namespace
}

/// Whether the object waits for this controller before it goes.
pub(super) fn is_held(metadata: &ObjectMeta) -> bool {
    let mut all = metadata.finalizers.iter().flatten();
    all.any(|finalizer| finalizer == finalizers::POOL)
}

/// VMs of the namespace without a controlling owner that still have the pool's finalizer.
fn orphans(pool: &Pool, present: &[Arc<Vm>]) -> Vec<Arc<Vm>> {
    let is_orphan =
        |vm: &&Arc<Vm>| is_held(&vm.metadata) && !is_controlled(vm) && concerns(pool, vm);
    present.iter().filter(is_orphan).map(Arc::clone).collect()
}

impl Controller {
    pub(super) async fn observe(&self, key: &Key, pool: Arc<Pool>) -> Result<Observed, PoolError> {
        self.update_expectations(key).await?;
        let uid = pool.uid().unwrap_or_default();
        let all = self.expectations.lock();
        let expectations = all.get(key);
        let is_deleted = |vm: &Vm| {
            let uid = vm.metadata.uid.as_deref().unwrap_or_default();
            expectations.is_some_and(|expected| expected.deleted.contains(uid))
        };
        let is_restarted = |guest: &Guest| {
            let restarted = expectations.and_then(|all| all.restarted.get(&guest.name_any()));
            restarted.is_some() && restarted == guest.metadata.uid.as_ref()
        };
        let mut members = Vec::new();
        let mut strangers = Vec::new();
        let controlled = self.vms.controlled_by(&uid).into_iter();
        for vm in controlled.filter(|vm| is_beside(&pool, &vm.metadata)) {
            let number = template::ordinal(&key.name, &vm.name_any());
            match number.filter(|_| selects(&pool, &vm)) {
                Some(ordinal) => {
                    let guest = self.guest_of(&vm);
                    members.push(Member {
                        ordinal,
                        is_restarted: guest.as_deref().is_some_and(is_restarted),
                        guest,
                        is_leaving: vm.metadata.deletion_timestamp.is_some() || is_deleted(&vm),
                        vm,
                    });
                }
                None => strangers.push(vm),
            }
        }
        members.sort_by_key(|member| member.ordinal);
        let present = self.vms.in_namespace(&key.namespace);
        let names = present.iter().filter_map(|vm| vm.metadata.name.clone());
        let created = expectations
            .into_iter()
            .flat_map(|expected| expected.created.keys().cloned());
        let taken = names.chain(created);
        let revisions = self.revisions.controlled_by(&uid).into_iter();
        let revisions = revisions.filter(|one| is_beside(&pool, &one.metadata));
        Ok(Observed {
            members,
            strangers,
            orphans: orphans(&pool, &present),
            taken: taken
                .filter_map(|name| template::ordinal(&key.name, &name))
                .collect(),
            awaited: expectations.map_or(0, |expected| expected.created.len()),
            revisions: revisions.map(|one| (one.name_any(), one)).collect(),
            pool,
            now: self.clock.now(),
        })
    }

    /// The VMI that the VM controls.
    fn guest_of(&self, vm: &Vm) -> Option<Arc<Guest>> {
        let guest = self.vmis.get(&Key::of(vm))?;
        let mut owners = guest.metadata.owner_references.iter().flatten();
        let is_own = owners.any(|owner| Some(&owner.uid) == vm.metadata.uid.as_ref());
        is_own.then_some(guest)
    }

    /// VMs that are being deleted and wait for a pool of that name which does not exist any more.
    pub(super) fn abandoned(&self, key: &Key, uid: Option<&str>) -> Vec<Arc<Vm>> {
        let is_abandoned = |vm: &Arc<Vm>| {
            let mut owners = vm.metadata.owner_references.iter().flatten();
            let is_of_another = Key::of_controller(vm.as_ref(), KIND).as_ref() == Some(key)
                && !owners.any(|owner| Some(owner.uid.as_str()) == uid);
            vm.metadata.deletion_timestamp.is_some()
                && is_held(&vm.metadata)
                && (is_of_another || (uid.is_none() && former(vm).as_ref() == Some(key)))
        };
        let all = self.vms.in_namespace(&key.namespace).into_iter();
        all.filter(is_abandoned).collect()
    }

    /// Drops the expectations that the cache has caught up with, and reads overdue VMs from the
    /// server.
    async fn update_expectations(&self, key: &Key) -> Result<(), PoolError> {
        let now = Instant::now();
        let mut late = Vec::new();
        if let Some(expected) = self.expectations.lock().get_mut(key) {
            let is_observed = |name: &str| self.vms.get(&Key::new(&key.namespace, name)).is_some();
            expected.created.retain(|name, _| !is_observed(name));
            let is_overdue = |since: &Instant| now.duration_since(*since) >= LAG;
            let names = expected
                .created
                .iter()
                .filter(|(_, since)| is_overdue(since));
            late.extend(names.map(|(name, _)| name.clone()).take(MAX_READS));
            let is_there = |name: &str, uid: &str| {
                let guest = self.vmis.get(&Key::new(&key.namespace, name));
                guest.is_some_and(|guest| {
                    !guest.is_deleting() && guest.metadata.uid.as_deref() == Some(uid)
                })
            };
            expected.restarted.retain(|name, uid| is_there(name, uid));
            if !expected.deleted.is_empty() {
                let present = self.vms.in_namespace(&key.namespace);
                let live = present
                    .iter()
                    .filter(|vm| vm.metadata.deletion_timestamp.is_none());
                let left: BTreeSet<&str> =
                    live.filter_map(|vm| vm.metadata.uid.as_deref()).collect();
                expected.deleted.retain(|uid| left.contains(uid.as_str()));
            }
        }
        let api = Api::<Vm>::namespaced(self.client.clone(), &key.namespace);
        for name in late {
            let found = api.get_opt(&name).await;
            let found = found.map_err(|error| PoolError::Read(Box::new(error)))?;
            if let Some(expected) = self.expectations.lock().get_mut(key) {
                match found {
                    // The others come first next time.
                    Some(_) => expected.created.insert(name, now),
                    None => expected.created.remove(&name),
                };
            }
        }
        Ok(())
    }
}
