//! The migrations that this controller creates by itself.

use kube::Api;
use kubevirt_api::migration_request::{MigrationPriority, VirtualMachineInstanceMigration};
use kubevirt_api::{API_VERSION, finalizers, labels};
use reasons::Reason;
use reconcile::{EventType, Key, WriteError, create};
use serde_json::{Value, json};

use super::view::Migration;
use super::{Controller, MigrationError};
use crate::MANAGER;
use crate::view::Guest;

/// Why a guest is moved without a user's request.
pub(super) struct Cause<'a> {
    /// The first part of the migration's name.
    pub(super) prefix: &'static str,
    /// Annotation of the migration, with its value.
    pub(super) mark: (&'static str, &'a str),
    pub(super) priority: MigrationPriority,
    /// The end of the event's message.
    pub(super) note: &'a str,
}

impl Controller {
    /// Creates the migration, unless one for that cause was created since the last one ended.
    pub(super) async fn move_guest(
        &self,
        vmi: &Guest,
        cause: &Cause<'_>,
    ) -> Result<(), MigrationError> {
        let key = Key::of(vmi);
        let all = self.migrations.in_namespace(&key.namespace);
        let of_guest = all.iter().filter(|one| one.guest() == key);
        let last = of_guest.max_by_key(|one| (one.created(), one.uid().to_owned()));
        let body = body(vmi, &key, cause, last.map_or("", |one| one.uid()));
        let name = body["metadata"]["name"].as_str().unwrap_or_default();
        let own = Key::new(&key.namespace, name);
        let api = Api::<Migration>::namespaced(self.client.clone(), &key.namespace);
        match create(&api, MANAGER, &own, &body).await {
            Ok(_) => {
                failpoints::after("virt-controller/migration/move-guest");
                let note = format!("Created migration {name}: {}", cause.note);
                let reason = Reason::SuccessfulCreate;
                self.recorder.publish(vmi, EventType::Normal, reason, note);
                Ok(())
            }
            // By an earlier reconcile, and not observed yet.
            Err(WriteError::AlreadyExists { .. }) => Ok(()),
            Err(error) => Err(MigrationError::Request(error)),
        }
    }
}

/// The migration. Its name follows from the last one of the guest, so that it is created once.
fn body(vmi: &Guest, key: &Key, cause: &Cause<'_>, last: &str) -> Value {
    let mut identity = vmi.identity();
    identity.metadata.name = Some(key.name.chars().take(150).collect());
    let (mark, value) = cause.mark;
    let unique = launcher_pod::target_pod_name(&identity, &format!("{mark}/{value}/{last}"));
    let suffix = unique.strip_prefix("virt-launcher-").unwrap_or(&unique);
    json!({
        "apiVersion": API_VERSION,
        "kind": VirtualMachineInstanceMigration::KIND,
        "metadata": {
            "name": format!("{}-{suffix}", cause.prefix),
            "namespace": key.namespace,
            "annotations": {(mark): value},
            "labels": {labels::MIGRATION_VMI_NAME: launcher_pod::label_value(&key.name)},
            "finalizers": [finalizers::MIGRATION],
        },
        "spec": {"vmiName": key.name, "priority": cause.priority},
    })
}
