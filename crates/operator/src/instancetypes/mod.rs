//! The common instance types and preferences, unless the administrator disabled them.
//!
//! Both kinds are reconciled as one set. An object is ours if it has the label `app.kubernetes.io/managed-by` with
//! our value: ours are repaired, and deleted when they leave the set; others of the same name stay as they are.

mod list;
mod plan;

use futures::{TryStreamExt as _, stream};
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use kubevirt_api::{
    instancetype::VirtualMachineClusterInstancetype, preference::VirtualMachineClusterPreference,
};
use reasons::Reason;
use reconcile::{
    Key, ReconcileError, Reconciler, Requeue, Retry, Store, WriteError, create, delete_unchanged,
    merge,
};
use serde_json::Value;

use self::{
    list::{Kind, common},
    plan::{Existing, Step, plan},
};
use crate::{
    MANAGER,
    installation::in_effect,
    view::{ClusterInstancetype, ClusterPreference, Installation},
};

/// Concurrent writes: each is checked by a webhook.
const CONCURRENCY: usize = 4;

/// The only key: all objects are one set.
pub(crate) fn key() -> Key {
    Key::new("", "common-instancetypes")
}

pub(crate) struct Controller {
    pub(crate) client: Client,
    /// Of the installation.
    pub(crate) namespace: String,
    pub(crate) installations: Store<Installation>,
    pub(crate) types: Store<ClusterInstancetype>,
    pub(crate) preferences: Store<ClusterPreference>,
}

#[derive(Debug, thiserror::Error)]
#[error("install the common instance types and preferences")]
pub(crate) struct CommonError(#[source] WriteError);

impl ReconcileError for CommonError {
    fn reason(&self) -> Reason {
        self.0.reason()
    }

    fn retry(&self) -> Retry {
        self.0.retry()
    }
}

impl Reconciler for Controller {
    const NAME: &'static str = "common-instancetypes";
    type Error = CommonError;

    /// The key stands for all common objects.
    fn uid_of(&self, _key: &Key) -> Option<String> {
        None
    }

    async fn reconcile(&self, _key: &Key) -> Result<Requeue, CommonError> {
        // Without the object, its setting is unknown; it is created soon.
        let Some(installation) = in_effect(&self.installations, &self.namespace) else {
            return Ok(Requeue::OnChange);
        };
        let wanted = if is_enabled(&installation.spec) {
            common()
        } else {
            Vec::new()
        };
        for kind in [Kind::Instancetype, Kind::Preference] {
            if !self.is_defined(kind) {
                continue;
            }
            let existing = self.existing(kind);
            let wanted = wanted.iter().filter(|one| one.kind == kind);
            let steps = plan(wanted, &existing);
            if steps.is_empty() {
                continue;
            }
            let count = steps.len();
            stream::iter(steps.into_iter().map(Ok))
                .try_for_each_concurrent(CONCURRENCY, |step| self.act(kind, step))
                .await?;
            tracing::info!(
                kind = kind.name(),
                count,
                "common objects brought up to date"
            );
        }
        Ok(Requeue::OnChange)
    }
}

fn is_enabled(spec: &Value) -> bool {
    spec["configuration"]["commonInstancetypesDeployment"]["enabled"] != Value::Bool(false)
}

impl Controller {
    fn is_defined(&self, kind: Kind) -> bool {
        match kind {
            Kind::Instancetype => self.types.is_defined(),
            Kind::Preference => self.preferences.is_defined(),
        }
    }

    fn existing(&self, kind: Kind) -> Vec<Existing> {
        match kind {
            Kind::Instancetype => {
                let all = self.types.list().into_iter();
                all.map(|one| Existing::new(&one.metadata, &one.spec))
                    .collect()
            }
            Kind::Preference => {
                let all = self.preferences.list().into_iter();
                all.map(|one| Existing::new(&one.metadata, &one.spec))
                    .collect()
            }
        }
    }

    async fn act(&self, kind: Kind, step: Step) -> Result<(), CommonError> {
        let resource = match kind {
            Kind::Instancetype => ApiResource::erase::<VirtualMachineClusterInstancetype>(&()),
            Kind::Preference => ApiResource::erase::<VirtualMachineClusterPreference>(&()),
        };
        let api = Api::<DynamicObject>::all_with(self.client.clone(), &resource);
        let done = match step {
            Step::Create { name, object } => {
                let key = Key::new("", name);
                create(&api, MANAGER, &key, &object).await.map(drop)
            }
            Step::Repair { name, patch } => {
                let key = Key::new("", name);
                merge(&api, MANAGER, &key, &patch).await.map(drop)
            }
            Step::Delete { metadata } => {
                let key = Key::new("", metadata.name.clone().unwrap_or_default());
                delete_unchanged(&api, &key, &metadata).await
            }
        };
        match done {
            // Another client was faster; the watch reports the current object.
            Ok(()) | Err(WriteError::AlreadyExists { .. } | WriteError::NotFound { .. }) => Ok(()),
            Err(error) => Err(CommonError(error)),
        }
    }
}
