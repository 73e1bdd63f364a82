//! Observation: everything that one reconcile may read.

use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use kube::{Api, ResourceExt as _};
use reconcile::Key;
use tokio::time::Instant;

use super::view::ReplicaSet;
use super::{Controller, ReplicaSetError, selects};
use crate::view::Guest;

/// How long the cache may lag before the controller reads a created VMI from the server.
const LAG: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) set: Arc<ReplicaSet>,
    /// VMIs that the set controls and its selector matches, without those we have deleted.
    pub(super) members: Vec<Arc<Guest>>,
    /// VMIs that the set controls though its selector no longer matches them.
    pub(super) unmatched: Vec<Arc<Guest>>,
    /// VMIs without a controlling owner that its selector matches.
    pub(super) orphans: Vec<Arc<Guest>>,
    /// Created VMIs that the cache does not show yet.
    pub(super) awaited: usize,
    pub(super) now: Timestamp,
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        set: Arc<ReplicaSet>,
    ) -> Result<Observed, ReplicaSetError> {
        self.update_expectations(key).await?;
        let uid = set.uid().unwrap_or_default();
        let controlled = self.vmis.controlled_by(&uid);
        let (members, unmatched) = controlled
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
        let all = self.expectations.lock();
        let expectations = all.get(key);
        let is_deleted = |vmi: &Arc<Guest>| {
            let uid = vmi.metadata.uid.as_deref().unwrap_or_default();
            expectations.is_some_and(|expected| expected.deleted.contains(uid))
        };
        Ok(Observed {
            members: members.into_iter().filter(|vmi| !is_deleted(vmi)).collect(),
            unmatched,
            orphans,
            awaited: expectations.map_or(0, |expected| expected.created.len()),
            set,
            now: self.clock.now(),
        })
    }

    /// Drops the expectations that the cache has caught up with, and reads overdue VMIs from the
    /// server.
    async fn update_expectations(&self, key: &Key) -> Result<(), ReplicaSetError> {
        let now = Instant::now();
        let mut late = Vec::new();
        if let Some(expected) = self.expectations.lock().get_mut(key) {
            let is_observed = |name: &str| self.vmis.get(&Key::new(&key.namespace, name)).is_some();
            expected.created.retain(|name, _| !is_observed(name));
            let is_final_step = |since: &Instant| now.duration_since(*since) >= LAG;
            let names = expected
                .created
                .iter()
                .filter(|(_, since)| is_final_step(since));
            late.extend(names.map(|(name, _)| name.clone()));
            if !expected.deleted.is_empty() {
                let present = self.vmis.list();
                let uids = present.iter().filter(|vmi| !vmi.is_deleting());
                let left: Vec<&str> = uids.filter_map(|vmi| vmi.metadata.uid.as_deref()).collect();
                expected.deleted.retain(|uid| left.contains(&uid.as_str()));
            }
        }
        let api = Api::<Guest>::namespaced(self.client.clone(), &key.namespace);
        for name in late {
            let found = api.get_opt(&name).await;
            if found
                .map_err(|error| ReplicaSetError::Read(Box::new(error)))?
                .is_none()
                && let Some(expected) = self.expectations.lock().get_mut(key)
            {
                expected.created.remove(&name);
            }
        }
        Ok(())
    }
}
