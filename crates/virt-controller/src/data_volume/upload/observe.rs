//! Observation: everything that one reconcile may read.

use std::sync::Arc;

use jiff::Timestamp;
use kube::ResourceExt as _;
use reconcile::Key;

use super::super::observe::{claim_user, is_of, waits_for_consumer};
use super::super::pod;
use super::super::view::ImporterPod;
use super::{Controller, UploadError, plan};
use crate::view::Claim;

#[derive(Debug)]
pub(super) struct Observed {
    pub(super) claim: Arc<Claim>,
    /// The claim has no volume until a pod uses it.
    pub(super) waits_for_consumer: bool,
    /// Another pod that uses the claim; not looked for while there is a pod of the upload.
    pub(super) user: Option<String>,
    pub(super) pod: Option<Arc<ImporterPod>>,
    pub(super) now: Timestamp,
}

impl Controller {
    pub(super) async fn observe(
        &self,
        key: &Key,
        claim: Arc<Claim>,
    ) -> Result<Observed, UploadError> {
        let uid = claim.uid().unwrap_or_default();
        let name = pod::upload_name(&uid);
        let pod = self.pods.get(&Key::new(&key.namespace, &name));
        let mut observed = Observed {
            pod: pod.filter(|pod| is_of(pod.as_ref(), &uid)),
            waits_for_consumer: false,
            user: None,
            now: self.clock.now(),
            claim,
        };
        if observed.pod.is_some() || plan::is_over(&observed.claim) {
            return Ok(observed);
        }
        let waits = waits_for_consumer(&self.client, &observed.claim).await;
        observed.waits_for_consumer = waits.map_err(UploadError::read)?;
        let user = claim_user(&self.client, key, |pod| pod.name_any() != name).await;
        observed.user = user.map_err(UploadError::read)?;
        Ok(observed)
    }
}
