//! `expand-spec` of a VM and `expand-vm-spec` of a VM in the request: returns the VM with its instance
//! type and preference applied. Nothing is changed.

use axum::{
    Json,
    extract::{Path, Request, State},
    routing::{get, put},
};
use cluster_config::ClusterConfig;
use cluster_view::sizes::{self, FindError};
use defaults::{Environment, expand};
use error_chain::error_chain;
use instancetype::{Choice, reference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::{
    Api, Client,
    api::{ApiResource, DynamicObject},
};
use kubevirt_api::{
    VirtualMachine, instancetype::VirtualMachineInstancetypeSpec,
    preference::VirtualMachinePreferenceSpec,
};
use serde::{Deserialize as _, de::DeserializeOwned};
use serde_json::{Value, json};
use uuid::Uuid;
use validation::Violation;

use super::{
    contract::{Answer, Contract},
    entry::{Entry, Handler, Level, Object, Verb},
};
use crate::{caller, refusal::Refusal, settings::Shared};

/// Objects are at most 3 MiB at the API server.
const LIMIT: usize = 3 << 20;

const OF_VM_NAME: &str = "expand-spec";
const OF_BODY_NAME: &str = "expand-vm-spec";

pub(super) const OF_VM: Entry = Entry {
    object: Object::Vm,
    name: OF_VM_NAME,
    verb: Verb::Get,
    level: Level::View,
    contract: Contract::new(Answer::Object("VirtualMachine"), &[404, 500]),
    handler: Handler::Built(|| get(of_vm)),
};

pub(super) const OF_BODY: Entry = Entry {
    object: Object::Namespace,
    name: OF_BODY_NAME,
    verb: Verb::Update,
    level: Level::View,
    contract: Contract::new(Answer::Object("VirtualMachine"), &[400]).with_body("VirtualMachine"),
    handler: Handler::Built(|| put(of_body)),
};

/// Why a VM cannot be expanded.
#[derive(Debug)]
enum Fault {
    Find(FindError),
    /// The VM contradicts its instance type or preference.
    Contradiction(Vec<Violation>),
    Unreadable(String),
}

async fn of_vm(
    State(shared): State<Shared>,
    Path((namespace, name)): Path<(String, String)>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let access = caller::Access {
        namespace: &namespace,
        name: &name,
        resource: Object::Vm.plural(),
        subresource: OF_VM_NAME,
        verb: Verb::Get.name(),
    };
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let resource = ApiResource::erase::<VirtualMachine>(&());
    let vms: Api<DynamicObject> =
        Api::namespaced_with(shared.client.clone(), &namespace, &resource);
    let vm = vms.get_opt(&name).await?;
    let vm = vm.ok_or_else(|| Refusal::not_found(Object::Vm.singular(), &name))?;
    let vm = serde_json::to_value(vm).map_err(|err| Refusal::internal(err.to_string()))?;
    let result = expanded(&shared, &namespace, &vm).await;
    result.map(Json).map_err(|fault| match fault {
        Fault::Find(FindError::Unavailable { source, .. }) => Refusal::from(*source),
        Fault::Find(error) => Refusal::missing(error_chain(&error)),
        fault => Refusal::internal(fault.message()),
    })
}

async fn of_body(
    State(shared): State<Shared>,
    Path(namespace): Path<String>,
    request: Request,
) -> Result<Json<Value>, Refusal> {
    let access = caller::Access {
        namespace: &namespace,
        name: "",
        resource: OF_BODY_NAME,
        subresource: "",
        verb: Verb::Update.name(),
    };
    let user = caller::user(&shared, &request)?;
    caller::authorize(&shared, user, &access).await?;
    let body = axum::body::to_bytes(request.into_body(), LIMIT).await;
    let body = body.map_err(|err| Refusal::bad_request(format!("read the body: {err}")))?;
    let vm = read(&body, &namespace).map_err(Refusal::bad_request)?;
    let result = expanded(&shared, &namespace, &vm).await;
    result.map(Json).map_err(|fault| match fault {
        Fault::Find(FindError::Unavailable { source, .. }) => Refusal::from(*source),
        fault => Refusal::bad_request(fault.message()),
    })
}

/// Reads a VM of the namespace from a body.
fn read(body: &[u8], namespace: &str) -> Result<Value, String> {
    let text = std::str::from_utf8(body).map_err(|err| format!("the body is not text: {err}"))?;
    let mut vm: Value =
        serde_saphyr::from_str(text).map_err(|err| format!("the body is malformed: {err}"))?;
    if vm["kind"] != VirtualMachine::KIND || !vm["spec"].is_object() {
        return Err(
            "the body is not a VirtualMachine; send one with apiVersion, kind and spec".into(),
        );
    }
    let metadata = &mut vm["metadata"];
    match metadata["namespace"].as_str() {
        None | Some("") => metadata["namespace"] = json!(namespace),
        Some(own) if own == namespace => {}
        Some(own) => {
            return Err(format!(
                "metadata.namespace: {own:?} is not the namespace of the request, {namespace:?}"
            ));
        }
    }
    Ok(vm)
}

async fn expanded(shared: &Shared, namespace: &str, vm: &Value) -> Result<Value, Fault> {
    let found = find(&shared.client, namespace, vm).await?;
    let now = Time(shared.clock.now());
    found.expand(vm, &shared.cluster.now(), &now)
}

/// The instance type and preference of a VM.
#[derive(Debug)]
struct Found {
    size: Option<VirtualMachineInstancetypeSpec>,
    preference: Option<VirtualMachinePreferenceSpec>,
}

impl Found {
    fn expand(&self, vm: &Value, config: &ClusterConfig, now: &Time) -> Result<Value, Fault> {
        let choice = Choice {
            instancetype: self.size.as_ref(),
            preference: self.preference.as_ref(),
        };
        let env = Environment {
            now,
            new_uuid: &Uuid::new_v4,
        };
        expand(vm, choice, config, env).map_err(Fault::Contradiction)
    }
}

async fn find(client: &Client, namespace: &str, vm: &Value) -> Result<Found, Fault> {
    let read = VirtualMachine::deserialize(vm);
    let read = read.map_err(|error| Fault::Unreadable(error.to_string()))?;
    let status = read.status.unwrap_or_default();
    let size = reference::instancetype(
        read.spec.instancetype.as_ref(),
        status.instancetype_ref.as_ref(),
    );
    let preference = reference::preference(
        read.spec.preference.as_ref(),
        status.preference_ref.as_ref(),
    );
    Ok(Found {
        size: spec(client, namespace, size).await?,
        preference: spec(client, namespace, preference).await?,
    })
}

async fn spec<T: DeserializeOwned>(
    client: &Client,
    namespace: &str,
    reference: Option<reference::Reference>,
) -> Result<Option<T>, Fault> {
    let Some(reference) = reference else {
        return Ok(None);
    };
    let found = sizes::find(client, namespace, &reference).await;
    found.map(|found| Some(found.spec)).map_err(Fault::Find)
}

impl Fault {
    fn message(&self) -> String {
        match self {
            Self::Find(error) => error_chain(error),
            Self::Unreadable(message) => message.clone(),
            Self::Contradiction(found) => {
                let all: Vec<String> = found.iter().map(ToString::to_string).collect();
                all.join("; ")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use embedded_api::Identity;
    use kube::api::PostParams;
    use kubevirt_api::instancetype::VirtualMachineClusterInstancetype;
    use test_cluster::TestApi;

    use super::*;

    fn vm(name: &str) -> Value {
        json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
            "metadata": { "name": "a", "namespace": "default" },
            "spec": {
                "runStrategy": "Halted", "instancetype": { "name": name },
                "template": { "spec": { "domain": { "devices": {} }, "brandNew": 1 } },
            },
        })
    }

    #[tokio::test]
    async fn vm_is_expanded_by_its_instance_type() {
        let api = TestApi::start(Identity::component("test")).await;
        let client = api.client.clone();
        let spec = json!({ "cpu": { "guest": 3 }, "memory": { "guest": "1Gi" } });
        let spec = serde_json::from_value(spec).unwrap();
        let small = VirtualMachineClusterInstancetype::new("small", spec);
        Api::all(client.clone())
            .create(&PostParams::default(), &small)
            .await
            .unwrap();

        let now: Time = serde_json::from_value(json!("2026-01-02T03:04:05Z")).unwrap();
        let config = ClusterConfig::default();
        let run = async |vm: &Value| {
            let found = find(&client, "default", vm).await?;
            found.expand(vm, &config, &now)
        };
        let done = run(&vm("small")).await.unwrap();
        assert_eq!(done["spec"]["instancetype"], Value::Null);
        let spec = &done["spec"]["template"]["spec"];
        assert_eq!(spec["domain"]["cpu"]["sockets"], 3);
        assert_eq!(
            (&spec["brandNew"], &spec["architecture"]),
            (&json!(1), &json!("amd64"))
        );

        let fault = run(&vm("none")).await.unwrap_err();
        assert!(
            matches!(fault, Fault::Find(FindError::NoObject { .. })),
            "{fault:?}"
        );
        let mut both = vm("small");
        both["spec"]["template"]["spec"]["domain"]["cpu"] = json!({ "cores": 2 });
        let fault = run(&both).await.unwrap_err();
        assert!(
            fault
                .message()
                .contains("spec.template.spec.domain.cpu.cores")
        );
        let mut plain = vm("small");
        plain["spec"]
            .as_object_mut()
            .unwrap()
            .remove("instancetype");
        assert_eq!(run(&plain).await.unwrap(), plain);
        api.end().await;
    }

    #[test]
    fn body_must_be_a_vm_of_the_namespace() {
        let text = |vm: &Value| vm.to_string().into_bytes();
        let mut own = vm("small");
        assert_eq!(read(&text(&own), "default").unwrap(), own);
        assert!(
            read(&text(&own), "other")
                .unwrap_err()
                .contains("metadata.namespace")
        );
        own["metadata"].as_object_mut().unwrap().remove("namespace");
        assert_eq!(
            read(&text(&own), "other").unwrap()["metadata"]["namespace"],
            "other"
        );
        for body in ["{}", "[]", "{", "kind: Pod"] {
            assert!(read(body.as_bytes(), "default").is_err(), "{body}");
        }
    }
}
