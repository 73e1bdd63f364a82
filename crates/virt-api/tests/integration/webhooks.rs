//! Our API server calls our webhooks over TLS, as the installation registers them: kinds, statuses,
//! evictions.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test fails so")]
#![expect(
    clippy::needless_pass_by_value,
    reason = "specs are written where they are passed"
)]

mod copies;
mod sizes;
mod template_requests;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use cluster_config::ClusterConfig;
use embedded_api::Identity as User;
use installation::guard::GUARD_PATH;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Pod;
use kube::{
    Api, Client, Error,
    api::{DeleteParams, DynamicObject, EvictParams, Patch, PatchParams},
};
use kubevirt_api::VirtualMachineInstance;
use reconcile::Clock;
use serde_json::{Value, json};
use serving::{Authority, ClientCertificates, HttpsClient, Leaf, TlsSource, Validity};
use test_cluster::{NAMESPACE, TestApi};
use tokio::net::TcpListener;
use virt_api::{
    Configuration, EVICT, FrontProxy, MUTATE, MUTATE_COPY, Settings, VALIDATE, VALIDATE_COPY,
    Webhook, WebhookCallers,
};

/// The installation's own components may write what users may not.
const CONTROLLER: &str = "kubevirt-controller";

struct Environment {
    api: TestApi,
    client: Client,
}

impl Environment {
    async fn new() -> Self {
        let api = TestApi::start(User::component(CONTROLLER)).await;
        let client = api.client.clone();
        let environment = Self { api, client };
        environment.serve_webhooks().await;
        environment
    }

    /// Runs the server and registers all its webhooks.
    async fn serve_webhooks(&self) {
        let validity = Validity::starting(Timestamp::now(), SignedDuration::from_hours(1));
        let authority = Authority::create("test", validity).unwrap();
        let mut leaf = Leaf::server("localhost", validity);
        leaf.addresses.push([127, 0, 0, 1].into());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let settings = Settings {
            client: self.client.clone(),
            listener,
            tls: TlsSource::fixed(
                &authority.issue(&leaf).unwrap(),
                &ClientCertificates::Ignored,
            )
            .unwrap(),
            front_proxy: FrontProxy::default(),
            webhook_callers: WebhookCallers::Anyone,
            nodes: HttpsClient::new(&authority.trust(), None, self.api.tasks.clone()).unwrap(),
            cluster: Configuration::with_initial(
                ClusterConfig {
                    component_users: vec![format!("*{CONTROLLER}"), CONTROLLER.to_owned()],
                    ..ClusterConfig::default()
                },
                "kubevirt",
            ),
            neighbours: Vec::new(),
            clock: Clock::system(),
            uploads: None,
            metrics: vec![&virt_api::METRICS],
        };
        let stop = self.api.stop.clone();
        self.api.tasks.spawn(virt_api::run(settings, stop));
        let bundle = STANDARD.encode(authority.trust().pem());
        for (kind, list) in [
            (
                "MutatingWebhookConfiguration",
                [MUTATE, &[MUTATE_COPY]].concat(),
            ),
            (
                "ValidatingWebhookConfiguration",
                [VALIDATE, EVICT, &[VALIDATE_COPY]].concat(),
            ),
        ] {
            let one = |webhook: &Webhook| {
                json!({
                    "name": webhook.name,
                    "clientConfig": {
                        "url": format!("https://localhost:{port}{}", webhook.path),
                        "caBundle": bundle,
                    },
                    "rules": [{
                        "apiGroups": [webhook.group], "apiVersions": webhook.versions,
                        "operations": webhook.operations, "resources": webhook.resources,
                    }],
                    "sideEffects": if webhook.side_effects { "NoneOnDryRun" } else { "None" },
                    "admissionReviewVersions": ["v1"],
                })
            };
            let configuration = json!({
                "apiVersion": "admissionregistration.k8s.io/v1", "kind": kind,
                "metadata": { "name": "virt-api" },
                "webhooks": list.iter().map(one).collect::<Vec<_>>(),
            });
            self.create(&configuration).await.unwrap();
        }
        self.guard(&format!("https://localhost:{port}"), &bundle)
            .await;
    }

    /// Registers the guard as a cluster has it, with its conditions.
    async fn guard(&self, base: &str, bundle: &str) {
        let settings = installation::Settings::usual();
        let objects = installation::objects(&settings, &["virtualmachines.kubevirt.io"]).unwrap();
        let mut objects = objects.into_iter();
        let mut configuration = objects
            .find(|object| object["kind"] == "ValidatingWebhookConfiguration")
            .unwrap();
        configuration["metadata"]["name"] = "guard".into();
        let webhooks = configuration["webhooks"].as_array_mut().unwrap();
        webhooks.retain(|one| one["clientConfig"]["service"]["path"] == GUARD_PATH);
        let [one] = &mut webhooks[..] else {
            panic!("one webhook guards: {webhooks:?}")
        };
        one["clientConfig"] = json!({"url": format!("{base}{GUARD_PATH}"), "caBundle": bundle});
        self.create(&configuration).await.unwrap();
    }

    async fn end(self) {
        self.api.end().await;
    }

    async fn create(&self, object: &Value) -> Result<DynamicObject, Error> {
        self.api.create(object.clone()).await
    }

    async fn patch_status(&self, object: &Value, status: Value) -> Result<DynamicObject, Error> {
        let name = object["metadata"]["name"].as_str().unwrap();
        let patch = Patch::Merge(json!({ "status": status }));
        let parameters = PatchParams::default();
        self.api
            .api_for(object)
            .patch_status(name, &parameters, &patch)
            .await
    }
}

/// Code, message and first field of a refusal.
fn refused<T: std::fmt::Debug>(answer: Result<T, Error>) -> (u16, String, String) {
    let Err(Error::Api(status)) = answer else {
        panic!("no refusal: {answer:?}");
    };
    let causes = status
        .details
        .map(|details| details.causes)
        .unwrap_or_default();
    let field = causes
        .first()
        .map(|cause| cause.field.clone())
        .unwrap_or_default();
    (status.code, status.message, field)
}

fn object(api_version: &str, kind: &str, name: &str, spec: Value) -> Value {
    json!({
        "apiVersion": api_version, "kind": kind,
        "metadata": { "name": name, "namespace": NAMESPACE }, "spec": spec,
    })
}

fn guest() -> Value {
    json!({
        "domain": {
            "memory": { "guest": "128Mi" },
            "devices": { "disks": [{ "name": "root", "disk": { "bus": "virtio" } }] },
        },
        "volumes": [{ "name": "root", "containerDisk": { "image": "guest:1" } }],
    })
}

#[tokio::test]
async fn statuses_are_validated() {
    let environment = Environment::new().await;
    let spec = json!({ "runStrategy": "Halted", "template": { "spec": guest() } });
    let vm = object("kubevirt.io/v1", "VirtualMachine", "a", spec);
    environment.create(&vm).await.unwrap();
    let unplug = json!({ "removeVolumeOptions": { "name": "more" } });
    let written = environment
        .patch_status(&vm, json!({ "created": false, "volumeRequests": [unplug] }))
        .await
        .unwrap();
    assert_eq!(written.data["status"]["volumeRequests"][0], unplug);
    // The schema accepts this; only the webhook refuses it.
    let (code, message, field) = refused(
        environment
            .patch_status(&vm, json!({ "volumeRequests": [unplug, unplug] }))
            .await,
    );
    assert_eq!((code, field.as_str()), (422, "status.volumeRequests[1]"));
    let asked = "admission webhook \"kubevirt-crd-status-validator.kubevirt.io\" denied";
    assert!(message.starts_with(asked), "{message}");

    // The webhook reads the VMI to compare requests with its volumes.
    let mut plugged = guest();
    plugged["volumes"][0]["name"] = json!("other");
    plugged["domain"]["devices"]["disks"][0]["name"] = json!("other");
    let vmi = object("kubevirt.io/v1", "VirtualMachineInstance", "a", plugged);
    environment.create(&vmi).await.unwrap();
    let add = json!({ "addVolumeOptions": {
        "name": "other", "disk": { "name": "other", "disk": { "bus": "scsi" } },
        "volumeSource": { "dataVolume": { "name": "d" } },
    }});
    let (_, message, field) = refused(
        environment
            .patch_status(&vm, json!({ "volumeRequests": [add] }))
            .await,
    );
    assert_eq!(
        field, "status.volumeRequests[0].addVolumeOptions.name",
        "{message}"
    );

    let template = json!({ "metadata": { "labels": { "a": "b" } }, "spec": guest() });
    let spec = json!({ "selector": { "matchLabels": { "a": "b" } }, "template": template });
    let set = object(
        "kubevirt.io/v1",
        "VirtualMachineInstanceReplicaSet",
        "s",
        spec,
    );
    environment.create(&set).await.unwrap();
    let written = environment
        .patch_status(&set, json!({ "replicas": 1 }))
        .await
        .unwrap();
    assert_eq!(written.data["status"]["replicas"], 1);
    environment.end().await;
}

#[tokio::test]
async fn kinds_are_validated_with_related_objects() {
    let environment = Environment::new().await;
    let migration = |name: &str| {
        let spec = json!({ "vmiName": "a" });
        object(
            "kubevirt.io/v1",
            "VirtualMachineInstanceMigration",
            name,
            spec,
        )
    };
    let (code, message, _) = refused(environment.create(&migration("m")).await);
    assert_eq!(code, 400);
    assert!(message.contains("no VirtualMachineInstance"), "{message}");
    let mut vmi = object("kubevirt.io/v1", "VirtualMachineInstance", "a", guest());
    vmi["status"] = json!({ "phase": "Running" });
    environment.create(&vmi).await.unwrap();
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(environment.client.clone(), NAMESPACE);
    let running = Patch::Merge(json!({ "status": { "phase": "Running" } }));
    vmis.patch("a", &PatchParams::default(), &running)
        .await
        .unwrap();
    let made = environment.create(&migration("m")).await.unwrap();
    // Defaults come from the other webhook.
    assert_eq!(made.metadata.labels.unwrap()["kubevirt.io/vmi-name"], "a");
    let (code, message, _) = refused(environment.create(&migration("n")).await);
    assert_eq!(code, 400);
    assert!(
        message.contains("\"m\" of this VirtualMachineInstance is in progress"),
        "{message}"
    );

    let one = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "KubeVirt",
        "metadata": { "name": "kubevirt", "namespace": "kubevirt" },
        "spec": { "uninstallStrategy": "BlockUninstallIfWorkloadsExist" },
    });
    environment.create(&one).await.unwrap();
    let mut other = one.clone();
    other["metadata"]["name"] = json!("other");
    let (_, message, _) = refused(environment.create(&other).await);
    assert!(
        message.contains("kubevirt/kubevirt exists already"),
        "{message}"
    );
    environment
        .patch_status(&one, json!({ "phase": "Deployed" }))
        .await
        .unwrap();
    let kubevirts = environment.api.api_for(&one);
    let parameters = DeleteParams::default();
    let deleted = kubevirts.delete("kubevirt", &parameters);
    let (_, message, _) = refused(deleted.await);
    assert!(
        message.contains("still virtualmachineinstances"),
        "{message}"
    );

    // The webhooks support every kind that they are registered for.
    let spec = json!({ "source": {
        "apiGroup": "kubevirt.io", "kind": "VirtualMachineInstance", "name": "a",
    }});
    let snapshot = object(
        "snapshot.kubevirt.io/v1beta1",
        "VirtualMachineSnapshot",
        "s",
        spec,
    );
    let (code, _, field) = refused(environment.create(&snapshot).await);
    assert_eq!((code, field.as_str()), (422, "spec.source.kind"));
    environment.end().await;
}

#[tokio::test]
async fn evictions_mark_the_guest_and_are_postponed() {
    let environment = Environment::new().await;
    let pods: Api<Pod> = Api::namespaced(environment.client.clone(), NAMESPACE);
    let vmis: Api<VirtualMachineInstance> = Api::namespaced(environment.client.clone(), NAMESPACE);
    let mut spec = guest();
    spec["evictionStrategy"] = json!("External");
    let vmi = object("kubevirt.io/v1", "VirtualMachineInstance", "a", spec);
    environment.create(&vmi).await.unwrap();
    let status = Patch::Merge(json!({ "status": { "phase": "Running", "nodeName": "one" } }));
    vmis.patch("a", &PatchParams::default(), &status)
        .await
        .unwrap();
    for (name, labels) in [
        (
            "virt-launcher-a-x",
            json!({ "kubevirt.io": "virt-launcher" }),
        ),
        ("plain", json!({})),
    ] {
        let pod = json!({
            "apiVersion": "v1", "kind": "Pod",
            "metadata": {
                "name": name, "namespace": NAMESPACE, "labels": labels,
                "annotations": { "kubevirt.io/domain": "a" },
            },
            "spec": { "nodeName": "one", "containers": [{ "name": "compute", "image": "i:1" }] },
        });
        environment.create(&pod).await.unwrap();
    }
    let evict = async |name: &str| pods.evict(name, &EvictParams::default()).await;
    assert!(evict("plain").await.is_ok());
    let (code, message, _) = refused(evict("virt-launcher-a-x").await);
    assert_eq!(code, 429, "{message}");
    let marked = vmis.get("a").await.unwrap().status.unwrap();
    assert_eq!(marked.evacuation_node_name.as_deref(), Some("one"));
    // A marked VMI is not marked again.
    let version = vmis.get("a").await.unwrap().metadata.resource_version;
    let (code, ..) = refused(evict("virt-launcher-a-x").await);
    assert_eq!(code, 429);
    assert_eq!(
        vmis.get("a").await.unwrap().metadata.resource_version,
        version
    );
    environment.end().await;
}

#[tokio::test]
async fn installation_cannot_be_deleted_while_vms_exist() {
    let environment = Environment::new().await;
    let definition = |name: &str| {
        environment.api.api_for(&json!({
            "apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": name},
        }))
    };
    let role = |name: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": {"name": name}, "rules": [],
        })
    };
    let (ours, theirs) = (role("kubevirt-controller"), role("somebodys"));
    for role in [&ours, &theirs] {
        environment.create(role).await.unwrap();
    }
    let vm = json!({
        "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine",
        "metadata": {"name": "kept", "namespace": NAMESPACE},
        "spec": {"runStrategy": "Halted", "template": {"spec": guest()}},
    });
    environment.create(&vm).await.unwrap();
    let delete = DeleteParams::default();
    let machines = "virtualmachines.kubevirt.io";
    let answer = definition(machines).delete(machines, &delete).await;
    let (code, message, _) = refused(answer.map(drop));
    assert_eq!(code, 403);
    assert!(message.contains("1 VirtualMachine(s) and 0"), "{message}");
    assert!(message.contains(machines), "{message}");
    let answer = environment
        .api
        .api_for(&ours)
        .delete("kubevirt-controller", &delete)
        .await;
    assert_eq!(refused(answer.map(drop)).0, 403);
    let other = "virtualmachinepools.pool.kubevirt.io";
    definition(other).delete(other, &delete).await.unwrap();
    environment
        .api
        .api_for(&theirs)
        .delete("somebodys", &delete)
        .await
        .unwrap();

    environment
        .api
        .api_for(&vm)
        .delete("kept", &delete)
        .await
        .unwrap();
    environment
        .api
        .api_for(&ours)
        .delete("kubevirt-controller", &delete)
        .await
        .unwrap();
    definition(machines)
        .delete(machines, &delete)
        .await
        .unwrap();
    environment.end().await;
}
