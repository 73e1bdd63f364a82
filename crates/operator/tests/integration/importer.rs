//! Data volumes on a cluster: defined where CDI is not installed, and left to it where it is.

use serde_json::{Value, json};

use crate::world::{NAMESPACE, World};

const LABEL: &str = "ferrovirt.io/importer";

fn definition(name: &str) -> Value {
    json!({
        "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
        "metadata": {"name": name},
    })
}

fn registration() -> Value {
    json!({
        "apiVersion": "apiregistration.k8s.io/v1", "kind": "APIService",
        "metadata": {"name": "v1beta1.upload.cdi.kubevirt.io"},
    })
}

fn config() -> Value {
    json!({
        "apiVersion": "cdi.kubevirt.io/v1beta1", "kind": "CDIConfig",
        "metadata": {"name": "config"},
    })
}

/// As virt-api publishes it.
fn authority() -> Value {
    json!({
        "apiVersion": "v1", "kind": "ConfigMap",
        "metadata": {"name": "kubevirt-ca", "namespace": NAMESPACE},
        "data": {"ca-bundle": "PEM"},
    })
}

/// The kind by which an administrator configures CDI.
fn cdi() -> Value {
    let mut cdi = definition("cdis.cdi.kubevirt.io");
    cdi["spec"] = json!({
        "group": "cdi.kubevirt.io", "scope": "Cluster",
        "names": {"kind": "CDI", "listKind": "CDIList", "plural": "cdis", "singular": "cdi"},
        "versions": [{
            "name": "v1beta1", "served": true, "storage": true,
            "schema": {"openAPIV3Schema": {
                "type": "object", "x-kubernetes-preserve-unknown-fields": true,
            }},
        }],
    });
    cdi
}

fn has_label(found: &Value) -> bool {
    found["metadata"]["labels"][LABEL] == ""
}

#[tokio::test(start_paused = true)]
async fn data_volumes_are_defined_and_left_to_cdi() {
    let world = World::on_cluster().await;
    let decisive = definition("datavolumes.cdi.kubevirt.io");
    let others = definition("storageprofiles.cdi.kubevirt.io");
    for one in [&decisive, &others] {
        world.wait(one, has_label).await;
    }
    // Without the authority, an API server would not trust the service.
    assert!(world.get(&registration()).await.is_null());
    world.api.create(authority()).await.unwrap();
    let published = |found: &Value| found["status"]["uploadProxyCA"] == "PEM";
    world.wait(&config(), published).await;
    let registered = world.get(&registration()).await;
    assert_eq!(registered["spec"]["service"]["name"], "virt-api");
    assert_eq!(registered["spec"]["service"]["namespace"], NAMESPACE);
    let owner = &registered["metadata"]["ownerReferences"][0];
    assert_eq!(owner["name"], "v1.subresources.kubevirt.io");

    // Long before the next look at everything: until then the API server does not trust virt-api.
    let more = json!({"data": {"ca-bundle": "PEM PEM"}});
    world.patch(&authority(), None, &more).await;
    let trusted = |found: &Value| found["spec"]["caBundle"] == "UEVNIFBFTQ==";
    world.wait(&registration(), trusted).await;
    let published = |found: &Value| found["status"]["uploadProxyCA"] == "PEM PEM";
    world.wait(&config(), published).await;

    let address = "https://upload.example";
    let named = json!({"spec": {"uploadProxyURLOverride": address}});
    world.patch(&config(), None, &named).await;
    let in_effect = |found: &Value| found["status"]["uploadProxyURL"] == address;
    world.wait(&config(), in_effect).await;

    let before = world.get(&decisive).await;
    world.api.create(cdi()).await.unwrap();
    world.wait(&registration(), Value::is_null).await;
    for one in [&decisive, &others] {
        let left = world.wait(one, |found| !has_label(found)).await;
        assert!(!left.is_null(), "data volumes of users stay");
    }
    assert_eq!(world.get(&decisive).await["spec"], before["spec"]);
    assert!(!world.get(&config()).await.is_null());
    world.end().await;
}
