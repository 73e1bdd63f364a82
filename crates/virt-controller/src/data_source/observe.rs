//! Observation: the data behind a data source.

use cluster_view::{DEFAULT_ACCOUNT, Subject};
use kubevirt_api::data_source::DataSource;
use kubevirt_api::data_volume_status::DataVolumePhase;
use reconcile::Key;

use super::plan::{Observed, State};
use super::resolve::{Target, resolve};
use super::{Controller, DataSourceError};

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        source: &DataSource,
    ) -> Result<Observed, DataSourceError> {
        let find = |other: &Key| {
            let found = self.sources.get(other, key);
            found.map(|found| found.spec.clone())
        };
        let target = resolve(key, &source.spec, find);
        let state = match &target {
            Ok(target) => self.state(key, target).await?,
            Err(_) => State::Unknown,
        };
        Ok(Observed { target, state })
    }

    async fn state(&self, key: &Key, target: &Target) -> Result<State, DataSourceError> {
        let namespace = &target.key().namespace;
        if *namespace != key.namespace {
            let account = Subject::account(&key.namespace, DEFAULT_ACCOUNT);
            // Who may not copy the data must not learn whether it exists either.
            let allowed = account.may_copy(&self.client, namespace).await;
            if !allowed.map_err(|error| DataSourceError::Read(Box::new(error)))? {
                let account = account.name().to_owned();
                return Ok(State::NotPermitted { account });
            }
        }
        Ok(match target {
            Target::Claim(at) => self.claim(key, at),
            Target::Snapshot(at) => self.snapshot(key, at),
        })
    }

    fn claim(&self, key: &Key, at: &Key) -> State {
        let populates = self.volumes.data_volumes.get(at, key);
        let claim = self.volumes.claims.get(at, key);
        match (populates, claim) {
            (Some(volume), _) if volume.phase != DataVolumePhase::Succeeded => {
                State::Importing(volume.phase.clone())
            }
            (_, Some(claim)) if claim.awaits_upload() => State::AwaitsUpload,
            // It will be complete, or deleted.
            (_, Some(claim)) if claim.open_restore().is_some() => State::Missing,
            (_, Some(claim)) if claim.metadata.deletion_timestamp.is_none() => State::Complete,
            _ => State::Missing,
        }
    }

    fn snapshot(&self, key: &Key, at: &Key) -> State {
        let found = self.snapshots.get(at, key);
        let Some(found) = found.filter(|it| it.metadata.deletion_timestamp.is_none()) else {
            return State::Missing;
        };
        let status = found.status.clone().unwrap_or_default();
        if status.ready_to_use == Some(true) {
            State::Complete
        } else {
            State::Incomplete(status.error.and_then(|error| error.message))
        }
    }
}
