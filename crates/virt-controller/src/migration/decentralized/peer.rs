//! The other end of a migration.

use std::sync::Arc;

use kube::Api;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::migration::VirtualMachineInstanceMigrationState as State;
use kubevirt_api::migration_request::VirtualMachineInstanceMigrationPhase as Phase;
use kubevirt_api::vmi_status::VirtualMachineInstancePhase as GuestPhase;
use model::MigrationEnd;
use reconcile::Key;

use super::match_up::{self, immovable};
use crate::migration::limits::Turn;
use crate::migration::view::Migration;
use crate::migration::{Controller, MigrationError};
use crate::view::Guest;

/// What is known of the other end.
#[derive(Debug, Clone, Default)]
pub(in crate::migration) struct Other {
    pub(in crate::migration) peer: Peer,
    /// The VMI of the other end.
    pub(in crate::migration) vmi: Option<Arc<Guest>>,
    /// Why the guest of the one VMI cannot go on in the other one.
    pub(in crate::migration) mismatch: Option<String>,
    /// The hardware addresses of the guest, which it keeps: names and addresses of its interfaces.
    pub(in crate::migration) addresses: Vec<(String, String)>,
    /// For the end that receives: whether the other one may begin.
    pub(in crate::migration) turn: Option<Turn>,
}

/// The migration object of the other end.
#[derive(Debug, Clone, Default)]
pub(in crate::migration) enum Peer {
    #[default]
    None,
    One(Arc<Migration>),
    /// Several claim to be that, or to be this end: virt-controller cannot tell which one the owner means.
    Several,
    /// None is open, and that of this name has failed, or is being deleted, since this end was created.
    GivenUp(Key),
}

/// The migrations that have the same ID, without this one.
pub(in crate::migration) fn peers<'a>(
    all: &'a [Arc<Migration>],
    migration: &'a Migration,
) -> impl Iterator<Item = &'a Arc<Migration>> {
    let id = migration.migration_id();
    all.iter()
        .filter(move |one| id.is_some() && one.migration_id() == id && one.uid() != migration.uid())
}

fn find(all: &[Arc<Migration>], migration: &Migration) -> Peer {
    let mut open = peers(all, migration).filter(|one| !one.is_final() && !one.is_deleting());
    match (open.next(), open.next()) {
        (None, _) => {
            let mut ended = peers(all, migration).filter(|one| one.end() != migration.end());
            let ended = ended.find(|one| has_given_up(one, migration));
            ended.map_or(Peer::None, |one| Peer::GivenUp(Key::of(one.as_ref())))
        }
        (Some(one), None) if one.end() != migration.end() => Peer::One(Arc::clone(one)),
        _ => Peer::Several,
    }
}

/// Whether the other end has ended without success while this one was there. One that has ended before belongs to an
/// earlier attempt.
fn has_given_up(other: &Migration, migration: &Migration) -> bool {
    let failed = other.since().filter(|_| other.phase() == Phase::Failed);
    let deleted = other.metadata.deletion_timestamp.as_ref().map(|at| at.0);
    let ended = failed.or(deleted.filter(|_| !other.is_final()));
    // Both times are of whole seconds.
    ended.is_some_and(|ended| {
        migration
            .created()
            .is_none_or(|created| ended.as_second() >= created.as_second())
    })
}

/// The one that the state of this end names: a third one that has the same ID by now changes nothing.
fn paired(all: &[Arc<Migration>], migration: &Migration, state: &State) -> Peer {
    let of_source = state.source_state.as_ref();
    let of_target = state.target_state.as_ref();
    let uids = [
        of_source.and_then(|one| one.migration_uid.as_deref()),
        of_target.and_then(|one| one.migration_uid.as_deref()),
    ];
    let mut open = peers(all, migration).filter(|one| !one.is_final() && !one.is_deleting());
    let found = open.find(|one| uids.contains(&Some(one.uid())));
    found.map_or(Peer::None, |one| Peer::One(Arc::clone(one)))
}

/// The VMI at the other end, as the state of this end names it.
pub(super) fn named(state: &State, end: MigrationEnd) -> Option<(Key, &str)> {
    let (namespace, name, uid) = match end {
        MigrationEnd::Source => {
            let target = state.target_state.as_ref()?;
            let uid = &target.virtual_machine_instance_uid;
            (&target.domain_namespace, &target.domain_name, uid)
        }
        MigrationEnd::Target => {
            let source = state.source_state.as_ref()?;
            let uid = &source.virtual_machine_instance_uid;
            (&source.domain_namespace, &source.domain_name, uid)
        }
    };
    let key = Key::new(namespace.as_deref()?, name.as_deref()?);
    Some((key, uid.as_deref()?))
}

impl Controller {
    pub(in crate::migration) async fn observe_other(
        &self,
        migration: &Migration,
        vmi: Option<&Guest>,
    ) -> Result<Option<Other>, MigrationError> {
        let Some(end) = migration.end() else {
            return Ok(None);
        };
        let all = self.migrations.list();
        let state = vmi.and_then(|vmi| vmi.migration(migration.uid()));
        if let Some((state, (key, uid))) = state.and_then(|state| Some((state, named(state, end)?)))
        {
            let found = self.vmis.get(&key);
            let found = found.filter(|one| one.metadata.uid.as_deref() == Some(uid));
            return Ok(Some(Other {
                peer: paired(&all, migration, state),
                vmi: found,
                ..Other::default()
            }));
        }
        let peer = find(&all, migration);
        let of_peer = match &peer {
            Peer::One(one) => self.vmis.get(&one.guest()),
            Peer::None | Peer::Several | Peer::GivenUp(_) => None,
        };
        let mut other = Other {
            peer,
            vmi: of_peer,
            ..Other::default()
        };
        if end == MigrationEnd::Target
            && let (Some(own), Some(source), Peer::One(sends)) = (vmi, &other.vmi, &other.peer)
            && *own.phase() == GuestPhase::WaitingForSync
            && *source.phase() == GuestPhase::Running
        {
            let whole = self.read_whole(source).await?;
            other.addresses = whole.as_ref().map(addresses).unwrap_or_default();
            let differs = || match_up::mismatch(whole.as_ref()?, own.whole()?);
            other.mismatch = immovable(source).or_else(differs);
            // The other end has looked at its guest: it may have to fail. Asked for last: a turn that is given counts.
            if other.mismatch.is_none() && sends.phase() == Phase::Synchronizing {
                other.turn = Some(self.turn(sends, self.clock.now()));
            }
        }
        Ok(Some(other))
    }

    /// Its spec is not kept after its pod has been created.
    async fn read_whole(
        &self,
        source: &Guest,
    ) -> Result<Option<VirtualMachineInstance>, MigrationError> {
        let key = Key::of(source);
        let api = Api::<VirtualMachineInstance>::namespaced(self.client.clone(), &key.namespace);
        let read = api.get_opt(&key.name).await;
        read.map_err(|source| MigrationError::Read {
            what: "the VMI at the other end",
            source: Box::new(source),
        })
    }
}

fn addresses(vmi: &VirtualMachineInstance) -> Vec<(String, String)> {
    let all = vmi.status.iter().flat_map(|status| &status.interfaces);
    all.filter_map(|one| Some((one.name.clone()?, one.mac.clone()?)))
        .collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    /// At second `at` the migration was created, or has entered its phase.
    fn migration(uid: &str, end: &str, at: u8, change: &Value) -> Arc<Migration> {
        let at = format!("2026-11-21T12:00:{at:02}Z");
        let mut migration = json!({
            "metadata": {"name": uid, "namespace": "n", "uid": uid, "creationTimestamp": at},
            "spec": {"vmiName": "v", end: {"migrationID": "id"}},
        });
        for (path, value) in change.as_object().unwrap() {
            migration[path.as_str()] = value.clone();
        }
        Arc::new(serde_json::from_value(migration).unwrap())
    }

    fn ended(phase: &str, at: u8) -> Value {
        let at = format!("2026-11-21T12:00:{at:02}Z");
        json!({"status": {"phase": phase, "phaseTransitionTimestamps": [
            {"phase": phase, "phaseTransitionTimestamp": at}]}})
    }

    #[test]
    fn other_end_is_the_only_open_one_or_has_given_up() {
        let own = migration("own", "sendTo", 10, &json!({}));
        let check = |others: Vec<Arc<Migration>>, expected: &str| {
            let all: Vec<_> = others.into_iter().chain([Arc::clone(&own)]).collect();
            let found = match find(&all, &own) {
                Peer::None => "none".to_owned(),
                Peer::One(one) => one.name().to_owned(),
                Peer::Several => "several".to_owned(),
                Peer::GivenUp(key) => format!("given up: {key}"),
            };
            assert_eq!(found, expected);
        };
        let receives = |uid: &str, change: Value| migration(uid, "receive", 5, &change);
        check(Vec::new(), "none");
        check(vec![receives("a", json!({}))], "a");
        check(
            vec![receives("a", json!({})), receives("b", json!({}))],
            "several",
        );
        check(vec![migration("a", "sendTo", 5, &json!({}))], "several");
        check(vec![receives("a", ended("Failed", 10))], "given up: n/a");
        let deleted = json!({"metadata": {"name": "a", "namespace": "n", "uid": "a",
            "deletionTimestamp": "2026-11-21T12:00:11Z"}});
        check(vec![receives("a", deleted)], "given up: n/a");
        // Of an earlier attempt.
        check(vec![receives("a", ended("Failed", 9))], "none");
        check(vec![receives("a", ended("Succeeded", 11))], "none");
        // It is another one of this end.
        let rival = migration("a", "sendTo", 5, &ended("Failed", 11));
        check(vec![rival], "none");
        // Another one is there by now.
        check(
            vec![receives("a", ended("Failed", 11)), receives("b", json!({}))],
            "b",
        );
    }
}
