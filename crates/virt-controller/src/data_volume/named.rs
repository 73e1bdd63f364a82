//! The source of a data volume that names a data source.
//!
//! **Invariants**: a data source of another namespace is followed only with the permission to copy from there; a
//! claim that exists is filled with what its data source stood for when it was created.

use std::time::Duration;

use kubevirt_api::annotations;
use kubevirt_api::data_source::DataSource;
use kubevirt_api::data_volume::DataVolumeSourceRef;
use reasons::Reason;
use reconcile::Key;

use super::request::{Refusal, Unmet};
use super::{Controller, DataVolumeError};
use crate::data_source::{Target, resolve};
use crate::permission::{self, Account, DEFAULT_ACCOUNT};
use crate::view::Claim;

/// How often to ask again for a permission, which no watch reports.
const PERMISSION_PAUSE: Duration = Duration::from_mins(1);
const CLAIM: &str = "pvc";
const SNAPSHOT: &str = "snapshot";

/// What a data source stands for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) target: Target,
}

/// The annotation of a claim that records its source.
pub(super) fn record(named: &Named) -> String {
    let name = &named.target.key().name;
    match named.target {
        Target::Claim(_) => format!("{CLAIM}/{name}"),
        Target::Snapshot(_) => format!("{SNAPSHOT}/{name}"),
    }
}

/// The source that a claim was created for. It is in the namespace of the claim.
pub(super) fn recorded(claim: &Claim) -> Option<Named> {
    let text = claim.annotation(annotations::COPIED_FROM)?;
    let namespace = claim.metadata.namespace.as_deref().unwrap_or_default();
    let target = match text.split_once('/')? {
        (CLAIM, name) => Target::Claim(Key::new(namespace, name)),
        (SNAPSHOT, name) => Target::Snapshot(Key::new(namespace, name)),
        _ => return None,
    };
    Some(Named { target })
}

/// The key of the data source.
pub(super) fn key_of(reference: &DataVolumeSourceRef, own: &str) -> Result<Key, Refusal> {
    if !reference.kind.eq_ignore_ascii_case(DataSource::KIND) {
        return Err(Refusal(format!(
            "spec.sourceRef.kind: {:?} cannot be a source; write {}",
            reference.kind,
            DataSource::KIND
        )));
    }
    if reference.name.is_empty() {
        return Err(Refusal(
            "spec.sourceRef.name: name the data source".to_owned(),
        ));
    }
    let given = reference.namespace.as_deref().filter(|it| !it.is_empty());
    Ok(Key::new(given.unwrap_or(own), &reference.name))
}

impl Controller {
    /// What the data source stands for now.
    pub(super) async fn named(
        &self,
        key: &Key,
        reference: &DataVolumeSourceRef,
    ) -> Result<Result<Named, Unmet>, DataVolumeError> {
        let at = match key_of(reference, &key.namespace) {
            Ok(at) => at,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        if at.namespace != key.namespace {
            let account = Account {
                namespace: &key.namespace,
                name: DEFAULT_ACCOUNT,
            };
            let allowed = permission::may_copy(&self.client, account, &at.namespace).await;
            if !allowed.map_err(DataVolumeError::read)? {
                let (account, namespace) = (account.user(), &at.namespace);
                return Ok(Err(Unmet::Waits {
                    reason: Reason::SourceNotPermitted,
                    message: format!("account {account} must not copy from namespace {namespace}"),
                    again: Some(PERMISSION_PAUSE),
                }));
            }
        }
        let waits = |message: String| {
            Err(Unmet::Waits {
                reason: Reason::DataSourceNotReady,
                message,
                again: None,
            })
        };
        let Some(source) = self.data_sources.get(&at, key) else {
            return Ok(waits(format!("data source {at} does not exist")));
        };
        let find = |other: &Key| {
            let found = self.data_sources.get(other, key);
            found.map(|found| found.spec.clone())
        };
        Ok(match resolve(&at, &source.spec, find) {
            Ok(target) => Ok(Named { target }),
            Err(problem) => waits(format!("data source {at} cannot be used: {problem}")),
        })
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn record_of_a_source_is_read_back() {
        let claim = |text: &str| -> Claim {
            let metadata = json!({"name": "a", "namespace": "n",
                                  "annotations": {annotations::COPIED_FROM: text}});
            serde_json::from_value(json!({"metadata": metadata})).unwrap()
        };
        for target in [
            Target::Claim(Key::new("n", "a")),
            Target::Snapshot(Key::new("n", "b")),
        ] {
            let named = Named { target };
            assert_eq!(recorded(&claim(&record(&named))), Some(named));
        }
        for wrong in ["", "a", "node/a"] {
            assert_eq!(recorded(&claim(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn only_data_sources_are_referred_to() {
        let key = |kind: &str, namespace: Option<&str>, name: &str| {
            let reference = DataVolumeSourceRef {
                kind: kind.to_owned(),
                namespace: namespace.map(str::to_owned),
                name: name.to_owned(),
            };
            key_of(&reference, "own").map_err(|refusal| refusal.0)
        };
        assert_eq!(key("DataSource", None, "a"), Ok(Key::new("own", "a")));
        assert_eq!(key("datasource", Some(""), "a"), Ok(Key::new("own", "a")));
        assert_eq!(key("DataSource", Some("n"), "a"), Ok(Key::new("n", "a")));
        let refused = key("Pod", None, "a").unwrap_err();
        assert!(refused.starts_with("spec.sourceRef.kind: "), "{refused}");
        let refused = key("DataSource", None, "").unwrap_err();
        assert!(refused.starts_with("spec.sourceRef.name: "), "{refused}");
    }
}
