//! Observation: everything that one reconcile may read.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as GuestPhase;
use model::MigrationEnd;
use reconcile::Key;

use super::attachment::Attachment;
use super::decentralized::Other;
use super::limits::{self, Limits, Turn, Waiting};
use super::view::Migration;
use super::{Controller, MigrationError};
use crate::view::Guest;
use crate::vmi::{LauncherPod, PodState, pod_state};

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) migration: Arc<Migration>,
    pub(super) vmi: Option<Arc<Guest>>,
    /// The pod of this migration.
    pub(super) target: Option<Arc<LauncherPod>>,
    /// That pod is the one in which the guest runs.
    pub(super) is_target_current: bool,
    /// Of the target; read once that pod is ready, until the hand-over.
    pub(super) attachment: Attachment,
    /// The UID of the pod in which the guest runs, if that pod is there.
    pub(super) current_pod: Option<String>,
    /// An older migration of the same guest that is not over.
    pub(super) rival: Option<String>,
    pub(super) turn: Turn,
    /// The other end of a migration between two VMIs.
    pub(super) other: Option<Other>,
    /// How many migrations of the guest have ended after this one.
    pub(super) newer: usize,
    pub(super) now: Timestamp,
}

/// How far a migration has come that still waits according to the cache.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Begun {
    Permitted,
    /// Its turn cannot be given to another one any more.
    PodCreated,
}

impl Observed {
    /// Whether the guest moves to another pod of its node.
    pub(super) fn is_within_node(&self) -> bool {
        self.vmi
            .as_deref()
            .is_some_and(|vmi| match vmi.migration(self.migration.uid()) {
                Some(state) => model::is_within_node(state),
                None => vmi.stays_on_node(),
            })
    }
}

impl Controller {
    pub(super) async fn observe(
        &self,
        migration: Arc<Migration>,
    ) -> Result<Observed, MigrationError> {
        let now = self.clock.now();
        let guest = migration.guest();
        let vmi = self.vmis.get(&guest);
        let other = self.observe_other(&migration, vmi.as_deref()).await?;
        let (mut target, mut is_target_current, mut current_pod) = (None, false, None);
        let mut attachment = Attachment::NotNeeded;
        // Between two VMIs each has its own pod.
        if let Some(vmi) = vmi.as_ref().filter(|_| other.is_none()) {
            let named = vmi.identity();
            let name = launcher_pod::target_pod_name(&named, migration.uid());
            let current = launcher_pod::current_pod_name(&named);
            is_target_current = current == name;
            target = self.target(&migration, vmi, &name).await?;
            let is_open = !migration.is_final() && vmi.migration(migration.uid()).is_none();
            let ready = target.as_deref().filter(|_| is_open);
            let ready = ready.filter(|pod| pod_state(Some(pod)) == PodState::Ready);
            if let Some(ready) = ready {
                attachment = self.attachment(vmi, ready).await?;
            }
            let current = self.pods.get(&Key::new(&guest.namespace, current));
            current_pod = current
                .filter(|pod| is_of(pod, vmi))
                .and_then(|pod| pod.uid());
        }
        let others = self.migrations.in_namespace(&guest.namespace);
        let others = others.iter().filter(|one| one.guest() == guest);
        let others: Vec<_> = others.filter(|one| one.uid() != migration.uid()).collect();
        let age = |one: &Migration| (one.created(), one.name().to_owned());
        let rival = others
            .iter()
            .find(|one| !one.is_final() && age(one) < age(&migration));
        let newer = others
            .iter()
            .filter(|one| one.is_final() && age(one) > age(&migration));
        Ok(Observed {
            rival: rival.map(|one| one.name().to_owned()),
            newer: newer.count(),
            turn: match other {
                None => self.turn(&migration, now),
                Some(_) => Turn::Now,
            },
            other,
            migration,
            vmi,
            target,
            is_target_current,
            attachment,
            current_pod,
            now,
        })
    }

    /// The pod of this migration that the VMI controls. The watch may lag behind one that was created
    /// just now, so a missing one is read from the server: also for a migration that has ended, which
    /// deletes its pod before it lets go.
    async fn target(
        &self,
        migration: &Migration,
        vmi: &Guest,
        name: &str,
    ) -> Result<Option<Arc<LauncherPod>>, MigrationError> {
        let key = Key::new(migration.guest().namespace, name);
        let mut found = self.pods.get(&key);
        if found.is_none() && migration.may_have_unseen_pod() {
            let api = Api::<LauncherPod>::namespaced(self.client.clone(), &key.namespace);
            let read = api.get_opt(name).await;
            found = read
                .map_err(|source| MigrationError::Read {
                    what: "the pod",
                    source: Box::new(source),
                })?
                .map(Arc::new);
        }
        Ok(found.filter(|pod| is_of(pod, vmi)))
    }

    pub(super) fn turn(&self, migration: &Migration, now: Timestamp) -> Turn {
        // Without the finalizer it does not begin yet, so it takes no turn from others.
        if !migration.is_waiting() || !migration.has_finalizer() {
            return Turn::Now;
        }
        // Of a migration between two VMIs, the end counts that the guest leaves.
        let mut all = self.migrations.list();
        all.retain(|one| one.end() != Some(MigrationEnd::Target));
        let groups = by_guest(&all);
        if let Some(wait) = back_off(migration, &groups, now) {
            return Turn::In(wait);
        }
        let config = self.source.cluster.now();
        let node_of = |one: &Migration| {
            let vmi = self.vmis.get(&one.guest())?;
            let runs = *vmi.phase() == GuestPhase::Running;
            runs.then(|| vmi.status.node_name.clone()).flatten()
        };
        let waiting = all.iter().filter(|one| {
            let is_kept_back = one.uid() != migration.uid() && one.is_rejected();
            // One that waits for its other end takes no turn from others.
            let is_asking = one.end().is_none() || one.uid() == migration.uid();
            let is_ready = one.is_waiting() && !one.is_deleting() && !is_kept_back && is_asking;
            is_ready && back_off(one, &groups, now).is_none()
        });
        // Others are decided on at the same time, before their writes are in the cache.
        let mut begun = self.begun.lock();
        begun.retain(|uid, _| all.iter().any(|one| one.uid() == uid && one.is_waiting()));
        if begun.get(migration.uid()) == Some(&Begun::PodCreated) {
            return Turn::Now;
        }
        let has_begun =
            |one: &Migration| one.uid() != migration.uid() && begun.contains_key(one.uid());
        let waiting = waiting.filter(|one| !has_begun(one)).filter_map(|one| {
            Some(Waiting {
                uid: one.uid().to_owned(),
                node: node_of(one)?,
                priority: limits::priority(one.spec.priority.as_ref()),
                created: one.created(),
            })
        });
        let active = all
            .iter()
            .filter(|one| has_begun(one) || !one.is_waiting() && !one.is_final());
        let active: Vec<String> = active.map(|one| node_of(one).unwrap_or_default()).collect();
        let limits = Limits::of(config.written.migrations.as_ref());
        if limits::may_begin(migration.uid(), waiting.collect(), &active, limits) {
            begun.insert(migration.uid().to_owned(), Begun::Permitted);
            Turn::Now
        } else {
            // One that goes before it has appeared. That one must not wait for this one.
            begun.remove(migration.uid());
            let priority = limits::priority(migration.spec.priority.as_ref());
            Turn::In(limits::next_look(priority))
        }
    }
}

/// Whether the VMI controls the pod; a user may have created one of that name.
pub(super) fn is_of(pod: &LauncherPod, vmi: &Guest) -> bool {
    let mut owners = pod.owner_references().iter();
    owners.any(|owner| {
        owner.controller == Some(true) && Some(&owner.uid) == vmi.metadata.uid.as_ref()
    })
}

/// Migrations by their guest.
pub(super) type ByGuest<'a> = BTreeMap<Key, Vec<&'a Migration>>;

/// Groups migrations, so that not each guest has to look at those of all others.
pub(super) fn by_guest(all: &[Arc<Migration>]) -> ByGuest<'_> {
    let mut groups = ByGuest::new();
    for one in all {
        groups.entry(one.guest()).or_default().push(one.as_ref());
    }
    groups
}

/// How long a migration waits because earlier ones of the same guest have failed.
fn back_off(migration: &Migration, groups: &ByGuest<'_>, now: Timestamp) -> Option<Duration> {
    if !migration.is_repeated() {
        return None;
    }
    back_off_of(groups.get(&migration.guest())?, now)
}

/// How long no component moves a guest, because its last moves have failed. The migrations are those of the guest.
pub(super) fn back_off_of(of_guest: &[&Migration], now: Timestamp) -> Option<Duration> {
    let ended = of_guest.iter().copied();
    let ended = ended.filter(|one| one.is_final() && one.is_repeated());
    let mut ended: Vec<&Migration> = ended.collect();
    ended.sort_by_key(|one| one.since());
    let failed = ended.iter().rev();
    let failed = failed.take_while(|one| one.phase() == Phase::Failed);
    let failures = u32::try_from(failed.count()).unwrap_or(u32::MAX);
    limits::back_off(failures, ended.last().and_then(|one| one.since()), now)
}
