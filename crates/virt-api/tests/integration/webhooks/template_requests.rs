//! Requests for templates need the rights to what they make.

use kube::api::{ApiResource, PostParams};
use kubevirt_api::template::VirtualMachineTemplateRequest;

use super::*;

const RBAC: &str = "rbac.authorization.k8s.io/v1";

/// Lets user `ann` create these resources.
async fn permit(environment: &Environment, name: &str, group: &str, resource: &str) {
    permit_in(NAMESPACE, environment, name, (group, resource)).await;
}

async fn permit_in(
    namespace: &str,
    environment: &Environment,
    name: &str,
    (group, resource): (&str, &str),
) {
    let metadata = json!({ "name": name, "namespace": namespace });
    let rules = json!([{ "apiGroups": [group], "resources": [resource], "verbs": ["create"] }]);
    let role = json!({ "apiVersion": RBAC, "kind": "Role", "metadata": metadata, "rules": rules });
    environment.create(&role).await.unwrap();
    let binding = json!({
        "apiVersion": RBAC, "kind": "RoleBinding", "metadata": metadata,
        "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": name },
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "ann",
        }],
    });
    environment.create(&binding).await.unwrap();
}

#[tokio::test]
async fn request_for_a_template_needs_the_rights_to_what_it_makes() {
    let environment = Environment::new().await;
    let group = "template.kubevirt.io";
    let reference = json!({ "namespace": NAMESPACE, "name": "a" });
    let request = object(
        "template.kubevirt.io/v1alpha1",
        "VirtualMachineTemplateRequest",
        "r",
        json!({ "virtualMachineRef": reference }),
    );
    let kind = ApiResource::erase::<VirtualMachineTemplateRequest>(&());
    let client = environment.api.client_of(User::new("ann", &[]));
    let of_ann: Api<DynamicObject> = Api::namespaced_with(client, NAMESPACE, &kind);
    let typed: DynamicObject = serde_json::from_value(request.clone()).unwrap();
    let create = async || of_ann.create(&PostParams::default(), &typed).await;
    permit(
        &environment,
        "requests",
        group,
        "virtualmachinetemplaterequests",
    )
    .await;
    for (group, resource) in [
        ("cdi.kubevirt.io", "datavolumes"),
        (group, "virtualmachinetemplates"),
    ] {
        let (code, message, _) = refused(create().await);
        assert_eq!(code, 403, "{message}");
        assert!(
            message.contains(&format!("create resource {resource}")),
            "{message}"
        );
        permit(&environment, resource, group, resource).await;
    }
    create().await.unwrap();
    // A VM of another namespace.
    let namespace =
        json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": "images" } });
    environment.create(&namespace).await.unwrap();
    let mut elsewhere = typed.clone();
    elsewhere.metadata.name = Some("elsewhere".to_owned());
    elsewhere.data["spec"]["virtualMachineRef"]["namespace"] = "images".into();
    let create = async || of_ann.create(&PostParams::default(), &elsewhere).await;
    let (code, message, _) = refused(create().await);
    assert_eq!(code, 403, "{message}");
    assert!(
        message.contains("virtualmachinetemplaterequests/source") && message.contains("\"images\""),
        "{message}"
    );
    let source = (group, "virtualmachinetemplaterequests/source");
    permit_in("images", &environment, "source", source).await;
    create().await.unwrap();
    // The installation may.
    let mut other = request;
    other["metadata"]["name"] = "other".into();
    environment.create(&other).await.unwrap();
    environment.end().await;
}
