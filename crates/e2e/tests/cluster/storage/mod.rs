//! Disks that come from outside, change while a guest runs, and leave the cluster, on a cluster without CDI.
//!
//! Snapshots are not here: no storage of the test cluster copies volumes.

mod images;
mod running;

use e2e::wait_for;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind},
};
use serde_json::Value;

use crate::TestNamespace;

/// Waits until the operator has defined data volumes and registered the API for uploads, which it does last.
async fn wait_importer(test: &TestNamespace) {
    let kind = GroupVersionKind::gvk("apiregistration.k8s.io", "v1", "APIService");
    let resource = ApiResource::from_gvk(&kind);
    let services: Api<DynamicObject> = Api::all_with(test.client.clone(), &resource);
    let is_available = |service: &Value| {
        let conditions = service["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["type"] == "Available" && one["status"] == "True")
    };
    let name = "v1beta1.upload.cdi.kubevirt.io";
    wait_for(&services, name, "available", is_available).await;
}
