//! Migrations, which this version does not carry out, can be deleted.

use kube::Api;
use kube::api::{DeleteParams, PostParams};
use kubevirt_api::migration_request::VirtualMachineInstanceMigration;
use serde_json::json;

use super::cluster::{NAMESPACE, TestCluster};

#[tokio::test(start_paused = true)]
async fn deleted_migration_with_the_finalizer_of_an_earlier_version_goes() {
    let cluster = TestCluster::new().await;
    let api: Api<VirtualMachineInstanceMigration> =
        Api::namespaced(cluster.client.clone(), NAMESPACE);
    let migration = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachineInstanceMigration",
        "metadata": {"name": "m", "finalizers": ["kubevirt.io/migrationJobFinalize"]},
        "spec": {"vmiName": "a"},
    });
    let migration = serde_json::from_value(migration).unwrap();
    api.create(&PostParams::default(), &migration)
        .await
        .unwrap();
    api.delete("m", &DeleteParams::default()).await.unwrap();
    cluster
        .wait_until("the migration is gone", async || {
            api.get_opt("m").await.unwrap().is_none()
        })
        .await;
}
