//! Everything a pass may look at.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use reconcile::Key;
use tokio::time::Instant;

use super::{Controller, ReplicaSetError, selects};
use crate::view::{Guest, ReplicaSet};

/// How long the cache may lag before the server is asked what became of a VMI we made.
const PATIENCE: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) set: Arc<ReplicaSet>,
    /// VMIs that the set controls and its selector takes, without those we have deleted.
    pub(super) members: Vec<Arc<Guest>>,
    /// That it controls though its selector does not take them any more.
    pub(super) strangers: Vec<Arc<Guest>>,
    /// That nobody controls and its selector takes.
    pub(super) orphans: Vec<Arc<Guest>>,
    /// VMIs that were made and have not shown yet.
    pub(super) awaited: usize,
    pub(super) now: Timestamp,
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        set: Arc<ReplicaSet>,
    ) -> Result<Observed, ReplicaSetError> {
        self.settle(key).await?;
        let uid = set.uid().unwrap_or_default();
        let controlled = self.vmis.controlled_by(&uid);
        let (members, strangers) = controlled
            .into_iter()
            .partition::<Vec<_>, _>(|vmi| selects(&set, vmi));
        let free = self.vmis.uncontrolled().into_iter();
        let orphans = free.filter(|vmi| {
            vmi.metadata.namespace == set.metadata.namespace
                && !vmi.is_deleting()
                && !vmi.is_final()
                && selects(&set, vmi)
        });
        let orphans = orphans.collect();
        let all = self.asked_for.lock();
        let asked_for = all.get(key);
        let is_deleted = |vmi: &Arc<Guest>| {
            let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
            asked_for.is_some_and(|asked| asked.deleted.contains(uid))
        };
        Ok(Observed {
            members: members.into_iter().filter(|vmi| !is_deleted(vmi)).collect(),
            strangers,
            orphans,
            awaited: asked_for.map_or(0, |asked| asked.made.len()),
            set,
            now: self.clock.now(),
        })
    }

    /// Forgets what the cache shows by now, and asks for what it should have shown long since.
    async fn settle(&self, key: &Key) -> Result<(), ReplicaSetError> {
        let now = Instant::now();
        let mut late = Vec::new();
        if let Some(asked) = self.asked_for.lock().get_mut(key) {
            let is_seen = |name: &str| self.vmis.get(&Key::new(&key.namespace, name)).is_some();
            asked.made.retain(|name, _| !is_seen(name));
            let is_late = |since: &Instant| now.duration_since(*since) >= PATIENCE;
            let names = asked.made.iter().filter(|(_, since)| is_late(since));
            late.extend(names.map(|(name, _)| name.clone()));
            if !asked.deleted.is_empty() {
                let present = self.vmis.list();
                let uids = present.iter().filter(|vmi| !vmi.is_deleting());
                let left: Vec<&str> = uids.filter_map(|vmi| vmi.metadata.uid.as_deref()).collect();
                asked.deleted.retain(|uid| left.contains(&uid.as_str()));
            }
        }
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        for name in late {
            let found = api.get_opt(&name).await;
            if found
                .map_err(|error| ReplicaSetError::Look(Box::new(error)))?
                .is_none()
                && let Some(asked) = self.asked_for.lock().get_mut(key)
            {
                asked.made.remove(&name);
            }
        }
        Ok(())
    }
}
