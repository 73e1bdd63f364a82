//! A node reports missing requirements of guests, with the remedy.

use std::path::Path;

use e2e::wait_for;
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams},
};
use serde_json::Value;

use crate::test_namespace;

#[tokio::test]
async fn node_reports_missing_guest_requirements() {
    let test = test_namespace().await;
    let kind = |kind: &str| ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", kind));
    let nodes: Api<DynamicObject> = Api::all_with(test.client.clone(), &kind("Node"));
    let has_beat = |node: &Value| {
        let annotations = &node["metadata"]["annotations"];
        annotations["ferrovirt.io/handler-address"].is_string()
    };
    let node = wait_for(&nodes, "n1", "reported by its agent", has_beat).await;
    let lacks = node["metadata"]["annotations"]["ferrovirt.io/lacks"]
        .as_str()
        .unwrap_or_default();
    let kvm = &node["status"]["allocatable"]["devices.kubevirt.io/kvm"];
    let no_kvm = kvm.is_null() || kvm == "0";
    let is_old = !Path::new("/sys/fs/cgroup/cgroup.controllers").exists();
    for (expected, reason, remedy) in [
        (no_kvm, "KvmMissing", "Load kvm_intel or kvm_amd"),
        (is_old, "CgroupV1", "systemd.unified_cgroup_hierarchy=1"),
        (
            !Path::new("/dev/net/tun").exists(),
            "TunMissing",
            "modprobe tun",
        ),
    ] {
        assert_eq!(lacks.contains(reason), expected, "{reason}: {lacks:?}");
        assert_eq!(lacks.contains(remedy), expected, "{lacks:?}");
        if !expected {
            continue;
        }
        let events: Api<DynamicObject> =
            Api::namespaced_with(test.client.clone(), "default", &kind("Event"));
        let about = format!("involvedObject.kind=Node,involvedObject.name=n1,reason={reason}");
        let found = events.list(&ListParams::default().fields(&about)).await;
        let found = found.expect("list events").items.into_iter();
        let message = |event: DynamicObject| event.data["message"].to_string();
        let all: Vec<String> = found.map(message).collect();
        assert!(all.iter().any(|text| text.contains(remedy)), "{all:?}");
    }
}
