//! What is wrong with the installation itself is told with what to do, and mended by its manifest.

use std::{path::PathBuf, process::Command, time::Duration};

use installation::Settings;
use jiff::{SignedDuration, Timestamp};
use kube::{
    Api,
    api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams},
};
use serde_json::{Value, json};
use serving::{Authority, Validity};
use stories::{DEADLINE, Home, NAMESPACE, machine, wait_for, wait_longer};
use tokio::time::{Instant, interval};

use crate::Story;

const MANIFEST: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ferrovirt.yaml");
/// Of a registry that is not there, so that nobody waits for an answer.
const NO_IMAGE: &str = "127.0.0.1:1/ferrovirt/nothing:none";
/// For what is tried ever more rarely.
const PATIENCE: Duration = Duration::from_mins(4);
/// Where a second installation is tried.
const SECOND: &str = "second-installation";

/// The installation becomes as it was, however the story ends.
struct Repair {
    kubeconfig: PathBuf,
}

impl Repair {
    fn of(story: &Story) -> Self {
        Self {
            kubeconfig: story.home.kubeconfig(),
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

/// Waits until everything of the installation runs as its manifest says.
async fn is_whole(story: &Story) {
    for what in [
        "deployment/virt-api",
        "deployment/virt-controller",
        "daemonset/virt-handler",
    ] {
        rolled_out(story, what).await;
    }
}

async fn rolled_out(story: &Story, what: &str) {
    let status = ["rollout", "status", "--timeout=110s", what];
    in_installation(story, &status).await;
}

async fn in_installation(story: &Story, arguments: &[&str]) {
    let namespace = ["--namespace", NAMESPACE];
    let all = [&namespace[..], arguments].concat();
    story.home.kubectl(&all, b"").await.good();
}

/// Waits until all pods of the controller, those that are ending too, are told so of the launcher's image:
/// who ends may still lead.
async fn controllers_know(story: &Story, is_so: impl Fn(&str) -> bool) {
    rolled_out(story, "deployment/virt-controller").await;
    let pods = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Pod"));
    let pods: Api<DynamicObject> = Api::namespaced_with(story.client.clone(), NAMESPACE, &pods);
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

/// Asks again and again until there is an answer.
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

/// What an event with this reason says, which must have these words.
async fn told(story: &Story, namespace: &str, reason: &str, words: &str) -> String {
    let events = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Event"));
    let events: Api<DynamicObject> = Api::namespaced_with(story.client.clone(), namespace, &events);
    let params = ListParams::default().fields(&format!("reason={reason}"));
    until(&format!("told of {reason}"), || async {
        let list = events.list(&params).await.map_err(|err| err.to_string())?;
        let messages = list.items.into_iter();
        let messages = messages.filter_map(|one| one.data["message"].as_str().map(str::to_owned));
        let all: Vec<String> = messages.collect();
        let found = all.iter().find(|message| message.contains(words));
        found.cloned().ok_or_else(|| format!("{all:?}"))
    })
    .await
}

/// What `virtctl why` says, once it has these words.
async fn why(story: &Story, name: &str, words: &[&str]) {
    until("explained", || async {
        let said = story.virtctl(&["why", name]).await.stdout;
        if words.iter().all(|word| said.contains(word)) {
            Ok(())
        } else {
            Err(said)
        }
    })
    .await;
}

fn of_cluster(story: &Story, group: &str, kind: &str) -> Api<DynamicObject> {
    let kind = ApiResource::from_gvk(&GroupVersionKind::gvk(group, "v1", kind));
    Api::all_with(story.client.clone(), &kind)
}

#[tokio::test]
async fn a_wrong_image_of_launchers_is_told_and_mended() {
    let story = Story::alone().await;
    let repair = Repair::of(&story);
    let image = format!("LAUNCHER_IMAGE={NO_IMAGE}");
    in_installation(
        &story,
        &["set", "env", "deployment/virt-controller", &image],
    )
    .await;
    controllers_know(&story, |spec| spec.contains(NO_IMAGE)).await;

    story.apply(&machine("waits")).await;
    let is_told = |vmi: &Value| {
        let mut all = vmi["status"]["conditions"].as_array().into_iter().flatten();
        all.any(|one| {
            let reason = one["reason"].as_str().unwrap_or_default();
            one["type"] == "Synchronized" && ["ErrImagePull", "ImagePullBackOff"].contains(&reason)
        })
    };
    wait_for(&story.vmis(), "waits", "told about the image", is_told).await;
    why(
        &story,
        "waits",
        &["[launcher-image]", "LAUNCHER_IMAGE", NO_IMAGE],
    )
    .await;

    drop(repair);
    is_whole(&story).await;
    controllers_know(&story, |spec| !spec.contains(NO_IMAGE)).await;
    story
        .kubectl(&["delete", "vmi", "waits", "--timeout=90s"])
        .await
        .good();
    story.vmi_is("waits", "Running").await;
}

#[tokio::test]
async fn a_wrong_image_of_a_component_leaves_the_old_one_at_work_and_is_told() {
    let story = Story::alone().await;
    let repair = Repair::of(&story);
    let image = format!("virt-controller={NO_IMAGE}");
    let set = ["set", "image", "deployment/virt-controller", &image];
    in_installation(&story, &set).await;
    let nowhere = json!({"story.example/nowhere": "yes"});
    story
        .apply(&machine("waits").spec("nodeSelector", nowhere))
        .await;
    story.vm_is("waits", "ErrorUnschedulable").await;
    why(&story, "waits", &["[component-image]", NO_IMAGE]).await;
    story.apply(&machine("runs")).await;
    story.vmi_is("runs", "Running").await;
    drop(repair);
    is_whole(&story).await;
}

#[tokio::test]
async fn a_missing_right_is_told_and_the_machine_runs_when_it_is_back() {
    let story = Story::alone().await;
    let repair = Repair::of(&story);
    let roles = of_cluster(&story, "rbac.authorization.k8s.io", "ClusterRole");
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
        let said = story.home.kubectl(&may, b"").await;
        let is_refused = said.stdout.trim() == "no";
        is_refused.then_some(()).ok_or(said.stdout + &said.stderr)
    })
    .await;

    story.apply(&machine("waits")).await;
    let note = told(&story, NAMESPACE, "RightMissing", "may not create pods").await;
    assert!(note.contains("ClusterRole kubevirt-controller"), "{note}");
    assert!(note.contains("kubectl apply"), "{note}");
    why(
        &story,
        "waits",
        &[
            "may not create pods",
            "kubectl apply",
            "[component-hindered]",
        ],
    )
    .await;

    drop(repair);
    // What failed for a minute is tried again after as long.
    let runs = |vmi: &Value| vmi["status"]["phase"] == "Running";
    wait_longer(PATIENCE, &story.vmis(), "waits", "Running", runs).await;
    // Whoever reads the logs after all stories must not find what was meant to be.
    let clear = ["delete", "pods", "--selector=kubevirt.io=virt-controller"];
    in_installation(&story, &clear).await;
    is_whole(&story).await;
}

#[tokio::test]
async fn an_authority_that_has_expired_is_told_and_replaced_at_once() {
    let story = Story::alone().await;
    let repair = Repair::of(&story);
    let day = SignedDuration::from_hours(24);
    let old = Timestamp::now().checked_sub(day * 3).expect("a time");
    let old = Authority::create("kubevirt-ca", Validity::starting(old, day)).expect("make it");
    let (certificate, key) = (old.identity().certificate_pem(), old.identity().key_pem());
    let secrets = ApiResource::from_gvk(&GroupVersionKind::gvk("", "v1", "Secret"));
    let secrets: Api<DynamicObject> =
        Api::namespaced_with(story.client.clone(), NAMESPACE, &secrets);
    let change = Patch::Merge(json!({"stringData": {
        "tls.crt": certificate, "tls.key": key, "ca-bundle": certificate,
    }}));
    let params = PatchParams::default();
    let put = secrets.patch("kubevirt-ca", &params, &change).await;
    let put = put.expect("put it there").data["data"].clone();
    let is_replaced = |secret: &Value| secret["data"]["tls.crt"] != put["tls.crt"];
    wait_for(&secrets, "kubevirt-ca", "replaced", is_replaced).await;
    told(&story, NAMESPACE, "AuthorityExpired", "a new one was made").await;

    // API servers ask virt-api again, and virt-api the agents, each by its new certificate.
    let vm = machine("after");
    until("taken", || async {
        let tried = story.try_apply(&vm).await;
        tried.is_success.then_some(()).ok_or(tried.stderr)
    })
    .await;
    story.vmi_is("after", "Running").await;
    until("paused", || async {
        let tried = story.virtctl(&["pause", "vm", "after"]).await;
        tried.is_success.then_some(()).ok_or(tried.stderr)
    })
    .await;
    story.vm_is("after", "Paused").await;
    drop(repair);
    is_whole(&story).await;
}

#[tokio::test]
async fn a_second_installation_is_refused_says_so_and_changes_nothing() {
    let story = Story::alone().await;
    let repair = Repair::of(&story);
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
    let complaint = story.home.kubectl(&apply, list.as_bytes()).await;
    assert!(!complaint.is_success, "{}", complaint.stdout);
    let says = "Ferrovirt is installed in namespace kubevirt";
    assert!(complaint.stderr.contains(says), "{}", complaint.stderr);

    // The first goes on, and takes back what nobody was asked about.
    let bindings = of_cluster(&story, "rbac.authorization.k8s.io", "ClusterRoleBinding");
    for name in [
        "kubevirt-apiserver",
        "kubevirt-controller",
        "kubevirt-handler",
    ] {
        let binding = bindings.get(name).await.expect("read a binding");
        let namespace = &binding.data["subjects"][0]["namespace"];
        assert_eq!(namespace, NAMESPACE, "{name}");
    }
    told(&story, NAMESPACE, "SecondInstallation", SECOND).await;
    for (kind, name) in [
        ("MutatingWebhookConfiguration", "virt-api-mutator"),
        ("ValidatingWebhookConfiguration", "virt-api-validator"),
    ] {
        let all = of_cluster(&story, "admissionregistration.k8s.io", kind);
        let is_ours = |found: &Value| !found["webhooks"].to_string().contains(SECOND);
        wait_for(&all, name, "put right", is_ours).await;
    }
    story.apply(&machine("first")).await;
    story.vmi_is("first", "Running").await;

    // The second does nothing, and says why.
    for component in ["virt-api", "virt-controller"] {
        let note = told(&story, SECOND, "NotInstalled", component).await;
        assert!(
            note.contains("delete namespace second-installation"),
            "{note}"
        );
    }
    drop(repair);
    is_whole(&story).await;
}
