//! The verbs of templates of VMs, through the server.

use kube::{Api, ResourceExt as _, api::ListParams};
use kubevirt_api::{VirtualMachine, template::VirtualMachineTemplate};
use serde_json::{Value, json};

use crate::server::Running;

fn path(version: &str, template: &str, verb: &str) -> String {
    let base = format!("/apis/subresources.template.kubevirt.io/{version}/namespaces/default");
    format!("{base}/virtualmachinetemplates/{template}/{verb}")
}

async fn with_template(vm: Value) -> Running {
    let running = Running::start().await;
    let template = json!({
        "metadata": {"name": "web"},
        "spec": {
            "parameters": [
                {"name": "NAME", "generate": "expression", "from": "web-[a-z0-9]{6}"},
                {"name": "CORES", "value": "1"},
            ],
            "message": "start ${NAME}",
            "virtualMachine": vm,
        },
    });
    running.create::<VirtualMachineTemplate>(template).await;
    running
}

fn vm() -> Value {
    json!({
        "metadata": {"name": "${NAME}"},
        "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {
            "cpu": {"cores": "${{CORES}}"}, "devices": {},
        }}}},
    })
}

#[tokio::test]
async fn process_returns_the_vm_and_creates_nothing() {
    let running = with_template(vm()).await;
    let body = json!({"metadata": {}, "parameters": {"NAME": "shop", "CORES": "2"}});
    for version in ["v1beta1", "v1alpha1"] {
        let answer = running.post(&path(version, "web", "process"), &body).await;
        let made = answer.json();
        assert_eq!(answer.code, 200, "{made}");
        assert_eq!(
            made["apiVersion"],
            format!("subresources.template.kubevirt.io/{version}")
        );
        assert_eq!(made["kind"], "ProcessedVirtualMachineTemplate");
        assert_eq!(
            made["templateRef"],
            json!({"namespace": "default", "name": "web"})
        );
        assert_eq!(made["message"], "start shop");
        let vm = &made["virtualMachine"];
        assert_eq!(vm["kind"], "VirtualMachine");
        assert_eq!(vm["metadata"]["name"], "shop");
        assert_eq!(vm["spec"]["template"]["spec"]["domain"]["cpu"]["cores"], 2);
    }
    let vms: Api<VirtualMachine> = Api::default_namespaced(running.api.client.clone());
    assert!(vms.get_opt("shop").await.unwrap().is_none());
    running.api.end().await;
}

#[tokio::test]
async fn create_makes_the_vm_unless_it_is_a_dry_run() {
    let running = with_template(vm()).await;
    let vms: Api<VirtualMachine> = Api::default_namespaced(running.api.client.clone());
    let body = json!({"parameters": {"NAME": "shop"}});
    let create = path("v1beta1", "web", "create");
    let dry = running.post(&format!("{create}?dryRun=All"), &body).await;
    assert_eq!(dry.code, 200, "{dry:?}");
    assert!(vms.get_opt("shop").await.unwrap().is_none());
    let answer = running.post(&create, &body).await;
    let made = answer.json();
    assert_eq!(answer.code, 200, "{made}");
    let vm = vms.get("shop").await.unwrap();
    assert_eq!(
        made["virtualMachine"]["metadata"]["uid"].as_str(),
        vm.uid().as_deref()
    );
    let again = running.post(&create, &body).await;
    assert_eq!(again.code, 409, "{again:?}");
    let generated = running.post(&create, &json!({})).await.json();
    let name = generated["virtualMachine"]["metadata"]["name"]
        .as_str()
        .unwrap();
    assert!(name.starts_with("web-") && name.len() == 10, "{name}");
    running.api.end().await;
}

#[tokio::test]
async fn wrong_requests_name_the_field_and_create_nothing() {
    let mut with_label = vm();
    with_label["spec"]["template"]["metadata"] =
        json!({"labels": {"kubevirt.io/created-by": "me"}});
    let running = with_template(with_label).await;
    for (template, body, code, text) in [
        (
            "web",
            json!({"parameters": {"SIZE": "1"}}),
            422,
            "parameters.SIZE",
        ),
        ("web", json!({"parameters": ["a"]}), 400, "parameters"),
        ("web", json!({"values": {}}), 400, "values"),
        ("web", json!({}), 422, "kubevirt.io/created-by"),
        ("other", json!({}), 404, "other"),
    ] {
        let create = path("v1beta1", template, "create");
        let answer = running.post(&create, &body).await;
        let status = answer.json();
        assert_eq!(answer.code, code, "{status}");
        let message = status["message"].as_str().unwrap();
        assert!(message.contains(text), "{message}");
    }
    let vms: Api<VirtualMachine> = Api::default_namespaced(running.api.client.clone());
    assert!(
        vms.list(&ListParams::default())
            .await
            .unwrap()
            .items
            .is_empty()
    );
    running.api.end().await;
}

#[tokio::test]
async fn user_needs_the_right_to_the_verb() {
    let running = with_template(vm()).await;
    let post = http::Method::POST;
    for verb in ["process", "create"] {
        let path = path("v1beta1", "web", verb);
        let answer = running.request_of("nobody", &post, &path).await;
        assert_eq!(answer.code, 403, "{answer:?}");
        let message = answer.json()["message"].to_string();
        assert!(
            message.contains(&format!("virtualmachinetemplates/{verb}")),
            "{message}"
        );
    }
    running.api.end().await;
}
