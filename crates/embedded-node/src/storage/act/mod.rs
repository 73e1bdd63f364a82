//! Performs the planned steps of claims and volumes.
//!
//! - [`claims`] and [`volumes`] are the reconcilers; [`provision`] makes a volume for a claim.
//! - [`startup`] makes the storage class and recovers from an earlier process.

mod claims;
mod provision;
mod startup;
mod volumes;

use std::io;

use kube::{
    Api,
    api::{Patch, PatchParams},
};
use reasons::Reason;
use reconcile::{Key, ReconcileError, Retry, WriteError};
use serde_json::{Value, json};

use super::backing::BackingError;

pub(super) use claims::Claims;
pub(super) use startup::{ensure_class, recover};
pub(super) use volumes::Volumes;

/// Field manager of claims and volumes.
const MANAGER: &str = "persistentvolume-controller";
const BOUND_BY_US: &str = "pv.kubernetes.io/bound-by-controller";
/// More steps than any claim or volume needs in one reconcile.
const MAX_STEPS: usize = 12;

#[derive(Debug, thiserror::Error)]
pub(crate) enum StorageError {
    #[error(transparent)]
    Write(#[from] WriteError),
    #[error(transparent)]
    Backing(#[from] BackingError),
    #[error("{tried}")]
    Disk {
        tried: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("read snapshot {snapshot}")]
    ReadSnapshot {
        snapshot: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("read the claims that may need snapshot {snapshot}")]
    ReadClaims {
        snapshot: String,
        #[source]
        source: Box<kube::Error>,
    },
    #[error("read the claim of volume {volume}")]
    Read {
        volume: String,
        #[source]
        source: Box<kube::Error>,
    },
}

impl ReconcileError for StorageError {
    fn reason(&self) -> Reason {
        match self {
            Self::Write(error) => error.reason(),
            Self::Backing(_) => Reason::ProvisioningFailed,
            Self::Disk { .. } => Reason::VolumeFailedDelete,
            Self::Read { .. } | Self::ReadSnapshot { .. } | Self::ReadClaims { .. } => {
                Reason::ServerUnavailable
            }
        }
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Write(error) => error.retry(),
            _ => Retry::BackOff,
        }
    }
}

pub(in super::super) async fn blocking<T: Send + 'static>(
    tried: &'static str,
    work: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> Result<T, StorageError> {
    tokio::task::spawn_blocking(|| panics::catch_io(work))
        .await
        .unwrap_or_else(|error| Err(io::Error::other(error)))
        .map_err(|source| StorageError::Disk { tried, source })
}

pub(super) fn with_finalizer(finalizers: Option<&Vec<String>>, one: &str) -> Vec<String> {
    let mut all = finalizers.cloned().unwrap_or_default();
    all.push(one.to_owned());
    all
}

pub(super) fn without_finalizer(finalizers: Option<&Vec<String>>, one: &str) -> Vec<String> {
    let all = finalizers.into_iter().flatten();
    all.filter(|name| *name != one).cloned().collect()
}

pub(super) async fn write_status<K>(api: &Api<K>, key: &Key, status: Value) -> Result<K, WriteError>
where
    K: Clone + serde::de::DeserializeOwned + std::fmt::Debug,
{
    let parameters = PatchParams {
        field_manager: Some(MANAGER.into()),
        ..PatchParams::default()
    };
    let patch = Patch::Merge(json!({"status": status}));
    api.patch_status(&key.name, &parameters, &patch)
        .await
        .map_err(|error| match &error {
            kube::Error::Api(status) if status.code == 404 => WriteError::NotFound {
                what: key.to_string(),
            },
            _ => WriteError::Unavailable {
                what: key.to_string(),
                source: Box::new(error),
            },
        })
}
