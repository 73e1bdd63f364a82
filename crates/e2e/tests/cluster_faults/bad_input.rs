//! Faults of the installation are reported with a remedy, and repaired by applying the manifest.

use std::{path::PathBuf, process::Command, time::Duration};

use e2e::{
    DEADLINE, Environment, NAMESPACE, answer, later_answer, tiny_vm, wait_for, wait_for_within,
};
use installation::Settings;
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use serving::{Authority, Validity};
use tokio::time::{Instant, interval};

use crate::TestNamespace;

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ferrovirt.yaml");
/// An image of a missing registry, which fails at once.
const NO_IMAGE: &str = "127.0.0.1:1/ferrovirt/nothing:none";
/// The deadline for retries with back-off.
const PATIENCE: Duration = Duration::from_mins(4);
/// The namespace of a second installation.
const SECOND: &str = "second-installation";

/// Restores the installation on drop.
struct Repair {
    kubeconfig: PathBuf,
}

impl Repair {
    fn of(test: &TestNamespace) -> Self {
        Self {
            kubeconfig: test.environment.kubeconfig(),
        }
    }

    fn kubectl(&self, arguments: &[&str]) -> bool {
        let done = Command::new("kubectl")
            .env("KUBECONFIG", &self.kubeconfig)
            .args(arguments)
            .output();
        let is_done = done.as_ref().is_ok_and(|output| output.status.success());
        if !is_done {
            println!("kubectl {arguments:?}: {done:?}");
        }
        is_done
    }
}

impl Drop for Repair {
    fn drop(&mut self) {
        let delete = ["delete", "namespace", SECOND];
        let no_second =
            self.kubectl(&[&delete[..], &["--ignore-not-found", "--timeout=110s"]].concat());
        let apply = ["apply", "--server-side", "--force-conflicts", "--filename"];
        let is_mended = self.kubectl(&[&apply[..], &[MANIFEST]].concat()) && no_second;
        assert!(
            is_mended || std::thread::panicking(),
            "the installation is not as it was"
        );
    }
}

/// Waits until all workloads of the installation match the manifest and run.
async fn is_whole(test: &TestNamespace) {
    for what in [
        "deployment/virt-api",
        "deployment/virt-controller",
        "daemonset/virt-handler",
    ] {
        rolled_out(test, what).await;
    }
}

async fn rolled_out(test: &TestNamespace, what: &str) {
    let status = ["rollout", "status", "--timeout=110s", what];
    in_installation(test, &status).await;
}

async fn in_installation(test: &TestNamespace, arguments: &[&str]) {
    let namespace = ["--namespace", NAMESPACE];
    let all = [&namespace[..], arguments].concat();
    test.environment.kubectl(&all, b"").await.success();
}

/// Waits until all controller pods have this launcher image, terminating ones included: one of them may
/// still lead.
async fn controllers_know(test: &TestNamespace, is_so: impl Fn(&str) -> bool) {
    rolled_out(test, "deployment/virt-controller").await;
    let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let pods: Api<DynamicObject> = Api::namespaced_with(test.client.clone(), NAMESPACE, &pods);
    let params = ListParams::default().labels("kubevirt.io=virt-controller");
    until("all of one mind", || async {
        let list = pods.list(&params).await.map_err(|err| err.to_string())?;
        let mut others = list
            .items
            .iter()
            .filter(|pod| !is_so(&pod.data["spec"].to_string()));
        let other = others.next().map(|pod| format!("{:?}", pod.metadata.name));
        other.map_or(Ok(()), Err)
    })
    .await;
}

/// Polls until there is a result.
async fn until<T, F>(what: &str, mut look: impl FnMut() -> F) -> T
where
    F: Future<Output = Result<T, String>>,
{
    let end = Instant::now() + DEADLINE;
    let mut ticks = interval(Duration::from_millis(500));
    loop {
        ticks.tick().await;
        match look().await {
            Ok(found) => return found,
            Err(seen) => assert!(Instant::now() < end, "not {what}: {seen}"),
        }
    }
}

/// Waits for an event with this reason and text, and returns its note.
async fn wait_event(test: &TestNamespace, namespace: &str, reason: &str, text: &str) -> String {
    let events = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Event"));
    let events: Api<DynamicObject> = Api::namespaced_with(test.client.clone(), namespace, &events);
    let params = ListParams::default().fields(&format!("reason={reason}"));
    until(&format!("an event {reason}"), || async {
        let list = events.list(&params).await.map_err(|err| err.to_string())?;
        let messages = list.items.into_iter();
        let messages = messages.filter_map(|one| one.data["message"].as_str().map(str::to_owned));
        let all: Vec<String> = messages.collect();
        let found = all.iter().find(|message| message.contains(text));
        found.cloned().ok_or_else(|| format!("{all:?}"))
    })
    .await
}

fn of_cluster(test: &TestNamespace, group: &str, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::all_with(test.client.clone(), &kind)
}

#[tokio::test]
async fn wrong_launcher_image_is_reported_and_recovered() {
    let test = TestNamespace::create_exclusive().await;
    let repair = Repair::of(&test);
    let image = format!("LAUNCHER_IMAGE={NO_IMAGE}");
    in_installation(&test, &["set", "env", "deployment/virt-controller", &image]).await;
    controllers_know(&test, |spec| spec.contains(NO_IMAGE)).await;

    test.apply(&tiny_vm("waits")).await;
    let is_reported = |vmi: &Value| {
        let mut all = vmi["status"]["conditions"].as_array().into_iter().flatten();
        all.any(|one| {
            let reason = one["reason"].as_str().unwrap_or_default();
            one["type"] == "Synchronized" && ["ErrImagePull", "ImagePullBackOff"].contains(&reason)
        })
    };
    wait_for(&test.vmis(), "waits", "reporting its image", is_reported).await;
    let expected = answer("launcher-image", NO_IMAGE, "get deployment virt-controller");
    test.why_answers("waits", expected).await;

    drop(repair);
    is_whole(&test).await;
    controllers_know(&test, |spec| !spec.contains(NO_IMAGE)).await;
    test.kubectl(&["delete", "vmi", "waits", "--timeout=90s"])
        .await
        .success();
    test.wait_vmi_phase("waits", "Running").await;
}

#[tokio::test]
async fn wrong_component_image_keeps_old_pods_and_is_reported() {
    let test = TestNamespace::create_exclusive().await;
    let repair = Repair::of(&test);
    let image = format!("virt-controller={NO_IMAGE}");
    let set = ["set", "image", "deployment/virt-controller", &image];
    in_installation(&test, &set).await;
    let nowhere = json!({"test.example/nowhere": "yes"});
    test.apply(&tiny_vm("waits").spec("nodeSelector", nowhere))
        .await;
    test.wait_vm_status("waits", "ErrorUnschedulable").await;
    let next = "kubectl -n kubevirt describe pod virt-controller-";
    let expected = answer("component-image", NO_IMAGE, next);
    test.why_answers("waits", expected).await;
    test.apply(&tiny_vm("runs")).await;
    test.wait_vmi_phase("runs", "Running").await;
    drop(repair);
    is_whole(&test).await;
}

#[tokio::test]
async fn crashing_component_is_reported() {
    let test = TestNamespace::create_exclusive().await;
    let repair = Repair::of(&test);
    let wrong = json!([{"op": "add", "path": "/spec/template/spec/containers/0/command/-",
                        "value": "--no-such-flag"}]);
    let patch = format!("--patch={wrong}");
    let change = ["patch", "deployment/virt-controller", "--type=json", &patch];
    in_installation(&test, &change).await;
    let nowhere = json!({"test.example/nowhere": "yes"});
    test.apply(&tiny_vm("waits").spec("nodeSelector", nowhere))
        .await;
    let next = "kubectl -n kubevirt logs virt-controller-";
    let expected = answer("component-failing", "pod virt-controller-", next);
    test.why_answers("waits", expected).await;
    drop(repair);
    is_whole(&test).await;
}

#[tokio::test]
async fn missing_permission_is_reported_and_vm_starts_once_restored() {
    let test = TestNamespace::create_exclusive().await;
    let repair = Repair::of(&test);
    let roles = of_cluster(&test, "rbac.authorization.k8s.io", "ClusterRole");
    let role = roles
        .get("kubevirt-controller")
        .await
        .expect("read the role");
    let mut rules = role.data["rules"].clone();
    for rule in rules.as_array_mut().into_iter().flatten() {
        let is_of_pods = rule["resources"] == json!(["pods"]);
        if let (true, Some(verbs)) = (is_of_pods, rule["verbs"].as_array_mut()) {
            verbs.retain(|verb| verb != "create");
        }
    }
    assert_ne!(rules, role.data["rules"], "a right is taken away");
    let change = Patch::Merge(json!({"rules": rules}));
    let params = PatchParams::default();
    let done = roles.patch("kubevirt-controller", &params, &change).await;
    done.expect("take a right away");
    let who = format!("--as=system:serviceaccount:{NAMESPACE}:kubevirt-controller");
    let may = ["auth", "can-i", "create", "pods", "--all-namespaces", &who];
    until("refused", || async {
        let output = test.environment.kubectl(&may, b"").await;
        let is_refused = output.stdout.trim() == "no";
        is_refused
            .then_some(())
            .ok_or(output.stdout + &output.stderr)
    })
    .await;

    test.apply(&tiny_vm("waits")).await;
    let note = wait_event(&test, NAMESPACE, "RightMissing", "may not create pods").await;
    assert!(note.contains("ClusterRole kubevirt-controller"), "{note}");
    assert!(note.contains("kubectl apply"), "{note}");
    let restore = "kubectl apply --server-side";
    let reported = answer("component-unavailable", "may not create pods", restore);
    test.why_answers("waits", reported).await;
    let role = "describe clusterrole kubevirt-controller";
    let forbidden = later_answer(
        "controller-forbidden",
        "the permission to create pods",
        role,
    );
    test.why_answers("waits", forbidden).await;

    drop(repair);
    // The back-off is about a minute by now.
    let runs = |vmi: &Value| vmi["status"]["phase"] == "Running";
    wait_for_within(PATIENCE, &test.vmis(), "waits", "Running", runs).await;
    // Replace the pods: their logs have expected errors, which the final log check must not see.
    let clear = ["delete", "pods", "--selector=kubevirt.io=virt-controller"];
    in_installation(&test, &clear).await;
    is_whole(&test).await;
}

#[tokio::test]
async fn expired_certificate_authority_is_reported_and_replaced() {
    let test = TestNamespace::create_exclusive().await;
    let repair = Repair::of(&test);
    let day = SignedDuration::from_hours(24);
    let old = Timestamp::now().checked_sub(day * 3).expect("a time");
    let old = Authority::create("kubevirt-ca", Validity::starting(old, day)).expect("make it");
    let (certificate, key) = (old.identity().certificate_pem(), old.identity().key_pem());
    let secrets = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let secrets: Api<DynamicObject> =
        Api::namespaced_with(test.client.clone(), NAMESPACE, &secrets);
    let change = Patch::Merge(json!({"stringData": {
        "tls.crt": certificate, "tls.key": key, "ca-bundle": certificate,
    }}));
    let params = PatchParams::default();
    let put = secrets.patch("kubevirt-ca", &params, &change).await;
    let put = put.expect("put it there").data["data"].clone();
    let is_replaced = |secret: &Value| secret["data"]["tls.crt"] != put["tls.crt"];
    wait_for(&secrets, "kubevirt-ca", "replaced", is_replaced).await;
    wait_event(
        &test,
        NAMESPACE,
        "AuthorityExpired",
        "a new one was created",
    )
    .await;

    // The API server reaches virt-api, and virt-api the handlers, by their new certificates.
    let vm = tiny_vm("after");
    until("taken", || async {
        let tried = test.try_apply(&vm).await;
        tried.is_success.then_some(()).ok_or(tried.stderr)
    })
    .await;
    test.wait_vmi_phase("after", "Running").await;
    until("paused", || async {
        let tried = test.virtctl(&["pause", "vm", "after"]).await;
        tried.is_success.then_some(()).ok_or(tried.stderr)
    })
    .await;
    test.wait_vm_status("after", "Paused").await;
    drop(repair);
    is_whole(&test).await;
}

#[tokio::test]
async fn second_installation_is_refused() {
    let test = TestNamespace::create_exclusive().await;
    let repair = Repair::of(&test);
    let settings = Settings {
        namespace: SECOND.to_owned(),
        ..Settings::usual()
    };
    let objects = installation::objects(&settings, &[]).expect("put it together");
    let list = json!({"apiVersion": "v1", "kind": "List", "items": objects}).to_string();
    let apply = [
        "apply",
        "--server-side",
        "--force-conflicts",
        "--filename=-",
    ];
    let failure = test.environment.kubectl(&apply, list.as_bytes()).await;
    assert!(!failure.is_success, "{}", failure.stdout);
    let expected = "Ferrovirt is installed in namespace kubevirt";
    assert!(failure.stderr.contains(expected), "{}", failure.stderr);

    // The first continues, and restores the objects that no webhook protects.
    let bindings = of_cluster(&test, "rbac.authorization.k8s.io", "ClusterRoleBinding");
    for name in [
        "kubevirt-apiserver",
        "kubevirt-controller",
        "kubevirt-handler",
    ] {
        let binding = bindings.get(name).await.expect("read a binding");
        let namespace = &binding.data["subjects"][0]["namespace"];
        assert_eq!(namespace, NAMESPACE, "{name}");
    }
    wait_event(&test, NAMESPACE, "SecondInstallation", SECOND).await;
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "virt-api-mutator"),
        ("ValidatingWebhookConfiguration", "virt-api-validator"),
    ] {
        let all = of_cluster(&test, "admissionregistration.k8s.io", kind);
        let is_ours = |found: &Value| !found["webhooks"].to_string().contains(SECOND);
        wait_for(&all, name, "put right", is_ours).await;
    }
    test.apply(&tiny_vm("first")).await;
    test.wait_vmi_phase("first", "Running").await;

    // The second does nothing and reports why.
    for component in ["virt-api", "virt-controller"] {
        let note = wait_event(&test, SECOND, "NotInstalled", component).await;
        assert!(
            note.contains("delete namespace second-installation"),
            "{note}"
        );
    }
    drop(repair);
    is_whole(&test).await;
}
