//! Data volumes that copy from another namespace need the right of their creator.

use kube::ResourceExt as _;
use kube::api::{ApiResource, PostParams};
use kubevirt_api::data_volume_status::DataVolume;

use super::*;

const RBAC: &str = "rbac.authorization.k8s.io/v1";
const PERMITTED: &str = "ferrovirt.io/copy-permitted";

/// Lets a subject create the resource in the namespace.
async fn permit(environment: &Environment, namespace: &str, resource: &str, subject: Value) {
    let name = resource.replace('/', "-");
    let metadata = json!({ "name": name, "namespace": namespace });
    let rules = json!([{
        "apiGroups": ["cdi.kubevirt.io"], "resources": [resource], "verbs": ["create", "patch"],
    }]);
    let role = json!({ "apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules });
    environment.create(&role).await.unwrap();
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [subject],
    });
    environment.create(&binding).await.unwrap();
}

fn ann() -> Value {
    json!({ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann" })
}

fn volume(name: &str, spec: Value) -> Value {
    let mut spec = spec;
    spec["storage"] = json!({});
    object("cdi.kubevirt.io/v1beta1", "DataVolume", name, spec)
}

fn from(namespace: &str) -> Value {
    json!({ "source": { "pvc": { "namespace": namespace, "name": "fedora" } } })
}

async fn images(environment: &Environment) {
    environment.api.install_importer().await;
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "images" } });
    environment.create(&namespace).await.unwrap();
}

#[tokio::test]
async fn copy_from_another_namespace_needs_the_right_of_its_creator() {
    let environment = Environment::new().await;
    images(&environment).await;
    let kind = ApiResource::erase::<DataVolume>(&());
    let client = environment.api.client_of(User::new("ann", &[]));
    let of_ann: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &kind);
    permit(&environment, NAMESPACE, "datavolumes", ann()).await;
    let create = async |object: Value| {
        let typed: DynamicObject = serde_json::from_value(object).unwrap();
        of_ann.create(&PostParams::default(), &typed).await
    };
    let reference =
        json!({ "sourceRef": { "kind": "DataSource", "namespace": "images", "name": "a" } });
    for spec in [from("images"), reference] {
        let (code, message, _) = refused(create(volume("a", spec)).await);
        assert_eq!(code, 403, "{message}");
        assert!(message.contains("from namespace \"images\""), "{message}");
    }
    let mut leaving = volume("a", from("images"));
    leaving["metadata"]["deletionTimestamp"] = json!("2026-11-25T12:00:00Z");
    let (code, message, _) = refused(create(leaving).await);
    assert_eq!(code, 403, "{message}");
    // What a user writes into the annotation does not count.
    let mut forged = volume("forged", from(NAMESPACE));
    forged["metadata"]["annotations"] = json!({ PERMITTED: "pvc/images/fedora" });
    let made = create(forged).await.unwrap();
    assert!(!made.annotations().contains_key(PERMITTED));
    let forgery = json!({ "metadata": { "annotations": { PERMITTED: "pvc/images/fedora" } } });
    let patch = async || {
        let parameters = PatchParams::default();
        of_ann
            .patch("forged", &parameters, &Patch::Merge(&forgery))
            .await
    };
    let (code, message, _) = refused(patch().await);
    assert_eq!(code, 403, "{message}");

    permit(&environment, "images", "datavolumes/source", ann()).await;
    let made = create(volume("a", from("images"))).await.unwrap();
    assert_eq!(made.annotations()[PERMITTED], "pvc/images/fedora");
    patch().await.unwrap();
    environment.end().await;
}

#[tokio::test]
async fn template_of_a_vm_needs_the_right_of_its_service_account() {
    let environment = Environment::new().await;
    images(&environment).await;
    let mut spec = test_cluster::guest();
    spec["volumes"] = json!([{ "name": "root", "dataVolume": { "name": "a" } }]);
    spec["domain"]["devices"]["disks"] = json!([{ "name": "root", "disk": { "bus": "virtio" } }]);
    let mut template = from("images");
    template["storage"] = json!({ "resources": { "requests": { "storage": "1Gi" } } });
    let vm = object(
        "kubevirt.io/v1",
        "VirtualMachine",
        "a",
        json!({
            "runStrategy": "Halted",
            "dataVolumeTemplates": [{ "metadata": { "name": "a" }, "spec": template }],
            "template": { "spec": spec },
        }),
    );
    let (code, message, _) = refused(environment.create(&vm).await);
    assert_eq!(code, 422, "{message}");
    let part = format!(
        "spec.dataVolumeTemplates[0]: account \"system:serviceaccount:{NAMESPACE}:default\""
    );
    assert!(message.contains(&part), "{message}");
    let account = json!({ "kind": "ServiceAccount", "namespace": NAMESPACE, "name": "default" });
    permit(&environment, "images", "datavolumes/source", account).await;
    environment.create(&vm).await.unwrap();
    environment.end().await;
}
