//! The source of a data volume that names a data source.
//!
//! **Invariants**: a data source of another namespace is followed, and what is there copied, only with the permission
//! to copy from there: that of the creator, where data volumes are reviewed, or that of the service account; a
//! claim that exists is filled with what its data source stood for when it was created.

use std::time::Duration;

use cluster_view::{DEFAULT_ACCOUNT, Subject};
use kubevirt_api::annotations;
use kubevirt_api::data_source::DataSource;
use kubevirt_api::data_volume::DataVolumeSourceRef;
use kubevirt_api::data_volume_status::DataVolume;
use reasons::Reason;
use reconcile::Key;

use super::request::{Refusal, Unmet};
use super::{Controller, DataVolumeError};
use crate::CopyRights;
use crate::data_source::{Target, resolve};
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

/// The annotation of a claim that records its source. The namespace is left out if it is that of the claim.
pub(super) fn record(named: &Named, own: &DataVolume) -> String {
    let Key { namespace, name } = named.target.key();
    if own.metadata.namespace.as_ref() == Some(namespace) {
        format!("{}/{name}", kind_of(&named.target))
    } else {
        permit(&named.target)
    }
}

/// A source with its namespace, as in the annotation that permits to copy it.
pub(crate) fn permit(target: &Target) -> String {
    let Key { namespace, name } = target.key();
    format!("{}/{namespace}/{name}", kind_of(target))
}

fn kind_of(target: &Target) -> &'static str {
    match target {
        Target::Claim(_) => CLAIM,
        Target::Snapshot(_) => SNAPSHOT,
    }
}

/// The source that a claim was created for.
pub(super) fn recorded(claim: &Claim) -> Option<Named> {
    let text = claim.annotation(annotations::COPIED_FROM)?;
    let own = claim.metadata.namespace.as_deref().unwrap_or_default();
    let (kind, rest) = text.split_once('/')?;
    let (namespace, name) = rest.split_once('/').unwrap_or((own, rest));
    let at = Key::new(namespace, name);
    let target = match kind {
        CLAIM => Target::Claim(at),
        SNAPSHOT => Target::Snapshot(at),
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
        whole: &DataVolume,
        reference: &DataVolumeSourceRef,
    ) -> Result<Result<Named, Unmet>, DataVolumeError> {
        let at = match key_of(reference, &key.namespace) {
            Ok(at) => at,
            Err(refusal) => return Ok(Err(refusal.into())),
        };
        // Where data volumes are reviewed, one has the annotation only with the right to follow this reference.
        let is_reviewed = self.reviewed(whole).is_some();
        if at.namespace != key.namespace
            && !is_reviewed
            && let Err(unmet) = self.account_may_copy(key, &at.namespace).await?
        {
            return Ok(Err(unmet));
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

    /// Whether the source in another namespace may be copied.
    pub(super) async fn may_copy(
        &self,
        key: &Key,
        whole: &DataVolume,
        target: &Target,
    ) -> Result<Result<(), Unmet>, DataVolumeError> {
        if self.reviewed(whole) == Some(permit(target).as_str()) {
            return Ok(Ok(()));
        }
        self.account_may_copy(key, &target.key().namespace).await
    }

    /// What the review of the data volume permits to copy.
    fn reviewed<'a>(&self, whole: &'a DataVolume) -> Option<&'a str> {
        if self.copies != CopyRights::Reviewed {
            return None;
        }
        let all = whole.metadata.annotations.as_ref()?;
        all.get(annotations::COPY_PERMITTED).map(String::as_str)
    }

    async fn account_may_copy(
        &self,
        key: &Key,
        namespace: &str,
    ) -> Result<Result<(), Unmet>, DataVolumeError> {
        let account = Subject::account(&key.namespace, DEFAULT_ACCOUNT);
        let allowed = account.may_copy(&self.client, namespace).await;
        if allowed.map_err(DataVolumeError::read)? {
            return Ok(Ok(()));
        }
        let account = account.name();
        Ok(Err(Unmet::Waits {
            reason: Reason::SourceNotPermitted,
            message: format!("account {account} must not copy from namespace {namespace}"),
            again: Some(PERMISSION_PAUSE),
        }))
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
            Target::Claim(Key::new("other", "a")),
            Target::Snapshot(Key::new("pvc", "n")),
        ] {
            let named = Named { target };
            let own: DataVolume =
                serde_json::from_value(json!({"metadata": {"namespace": "n"}})).unwrap();
            assert_eq!(recorded(&claim(&record(&named, &own))), Some(named));
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
