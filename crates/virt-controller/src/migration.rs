//! Migrations: removes the finalizer from those that are being deleted.
//!
//! This version does not migrate guests, so nothing waits for the end of a migration. New objects get
//! no finalizer; objects from an earlier version, or from another installation, may have it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::runtime::watcher;
use kube::{Api, Client};
use kubevirt_api::finalizers;
use kubevirt_api::migration_request::VirtualMachineInstanceMigration;
use reasons::Reason;
use reconcile::{Key, ReconcileError, Reconciler, Requeue, Retry, Store, WriteError, merge};
use serde::Deserialize;
use serde_json::json;

use crate::MANAGER;
use crate::gate::Gate;
use crate::wiring::Wiring;

/// Trigger by a migration.
const MIGRATION: &str = "virtualmachineinstancemigration";

/// A migration, as far as this controller reads it.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Migration {
    metadata: ObjectMeta,
}

reconcile::resource_view!(
    Migration,
    VirtualMachineInstanceMigration,
    NamespaceResourceScope
);

struct Controller {
    client: Client,
    migrations: Store<Migration>,
}

#[derive(Debug, thiserror::Error)]
enum MigrationError {
    #[error("remove the finalizer")]
    Finalizer(#[source] WriteError),
}

impl ReconcileError for MigrationError {
    fn reason(&self) -> Reason {
        Reason::FailedUpdate
    }

    fn retry(&self) -> Retry {
        match self {
            Self::Finalizer(source) => source.retry(),
        }
    }
}

pub(crate) fn register(wiring: &mut Wiring<'_>) {
    let gate = Gate::default();
    let migrations: Store<Migration> = Store::new();
    let queue = gate.clone();
    let on_change = move |migration: &Migration| queue.add(Key::of(migration), MIGRATION);
    wiring.watch_if_defined(watcher::Config::default(), &migrations, on_change);
    let (client, store) = (wiring.settings.client.clone(), migrations.clone());
    wiring.controller(&gate, &migrations, move || Controller {
        client: client.clone(),
        migrations: store.clone(),
    });
}

impl Reconciler for Controller {
    const NAME: &'static str = "migration";
    type Error = MigrationError;

    async fn reconcile(&self, key: &Key) -> Result<Requeue, MigrationError> {
        if let Some(migration) = self.migrations.get(key)
            && let Some(left) = finalizers_left(&migration.metadata)
        {
            let body = json!({"metadata": {
                "resourceVersion": migration.metadata.resource_version,
                "finalizers": left,
            }});
            let api = Api::<Migration>::namespaced(self.client.clone(), &key.namespace);
            match merge(&api, MANAGER, key, &body).await {
                Ok(written) => self.migrations.wrote(&migration, written),
                Err(WriteError::NotFound { .. }) => {}
                Err(error) => return Err(MigrationError::Finalizer(error)),
            }
        }
        Ok(Requeue::OnChange)
    }

    fn uid_of(&self, key: &Key) -> Option<String> {
        self.migrations.get(key)?.metadata.uid.clone()
    }
}

/// The finalizers that stay; `None` if nothing is to be removed.
fn finalizers_left(metadata: &ObjectMeta) -> Option<Vec<&String>> {
    metadata.deletion_timestamp.as_ref()?;
    let all = metadata.finalizers.as_deref().unwrap_or_default();
    let left: Vec<&String> = all
        .iter()
        .filter(|name| *name != finalizers::MIGRATION)
        .collect();
    (left.len() < all.len()).then_some(left)
}
