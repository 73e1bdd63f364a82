//! The other end of a migration.

use std::sync::Arc;

use kube::Api;
use kubevirt_api::VirtualMachineInstance;
use kubevirt_api::migration::VirtualMachineInstanceMigrationState as State;
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
    /// Several claim to be that, or to be this end: nobody can tell which one its owner means.
    Several,
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
        (None, _) => Peer::None,
        (Some(one), None) if one.end() != migration.end() => Peer::One(Arc::clone(one)),
        _ => Peer::Several,
    }
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
            Peer::None | Peer::Several => None,
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
            // Asked for last: a turn that is given counts.
            if other.mismatch.is_none() {
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
