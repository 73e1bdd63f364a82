//! What a cluster's own rules refuse is told in a condition, and mended when the rule goes.

use serde_json::{Value, json};
use stories::{DEADLINE, Gates, Home as _, machine, wait_for};
use tokio::time::Instant;

use crate::{Story, story};

/// Waits until the instance says that it has no pod and why; the sentence.
async fn has_no_pod(story: &Story, name: &str, expected: &str) -> String {
    let says = |vmi: &Value| {
        let text = told(vmi);
        text.is_some_and(|text| text.contains(expected))
    };
    let vmi = wait_for(&story.vmis(), name, "refused", says).await;
    told(&vmi).unwrap_or_default()
}

fn told(vmi: &Value) -> Option<String> {
    let all = vmi["status"]["conditions"].as_array()?;
    let one = all.iter().find(|one| one["type"] == "Synchronized")?;
    let is_refusal = one["status"] == "False" && one["reason"] == "FailedCreate";
    is_refusal.then(|| one["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn a_full_quota_is_told_and_the_machine_runs_when_there_is_room() {
    let story = story().await;
    story
        .kubectl(&["create", "quota", "none", "--hard=pods=0"])
        .await
        .good();
    // Nothing is refused before the cluster has counted.
    let is_counted = |quota: &Value| quota["status"]["hard"]["pods"] == "0";
    let quotas = story.objects("", "v1", "ResourceQuota");
    wait_for(&quotas, "none", "counted", is_counted).await;
    story.apply(&machine("waits")).await;
    let text = has_no_pod(&story, "waits", "exceeded quota").await;
    assert!(text.contains("none"), "it names the quota: {text}");
    assert_eq!(story.pod_list().await, []);
    story.kubectl(&["delete", "quota", "none"]).await.good();
    story.vmi_is("waits", "Running").await;
}

#[tokio::test]
async fn a_guest_runs_where_pods_must_be_restricted() {
    let story = story().await;
    restrict(&story).await;
    story.apply(&machine("modest")).await;
    story.greeting("modest").await;
}

#[tokio::test]
async fn what_pod_security_refuses_is_told() {
    let story = Story::alone().await;
    restrict(&story).await;
    let gates = Gates::switch(story.home.as_ref(), &["HostDisk"], &[]).await;
    let path = "/var/lib/story/disk.img";
    let disk = json!({"hostDisk": {"path": path, "type": "DiskOrCreate", "capacity": "16Mi"}});
    let bold = machine("bold").disk(&disk);
    // Whoever checks machines learns of the gate a moment later.
    let until = Instant::now() + DEADLINE;
    loop {
        let tried = story.try_apply(&bold).await;
        if tried.is_success {
            break;
        }
        let complaint = tried.complaint();
        assert!(complaint.contains("HostDisk"), "{complaint}");
        assert!(Instant::now() < until, "{complaint}");
    }
    let text = has_no_pod(&story, "bold", "PodSecurity").await;
    assert!(text.contains("hostPath"), "it says what for: {text}");
    assert_eq!(story.pod_list().await, []);
    drop(gates);
}

#[tokio::test]
async fn an_installation_is_not_deleted_under_machines() {
    let story = story().await;
    story.apply(&machine("kept").strategy("Halted")).await;
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ferrovirt.yaml");
    let tried = ["delete", "--dry-run=server", "--filename", manifest];
    let tried = story.home.kubectl(&tried, b"").await;
    assert!(!tried.is_success);
    let refusals = tried.stderr.lines();
    let refusals = refusals
        .filter(|line| line.contains("VirtualMachine(s) and"))
        .count();
    let objects = std::fs::read_to_string(manifest).expect("read the manifest");
    let objects = objects.lines().filter(|line| *line == "---").count();
    let exempt = tried.stdout.lines().count();
    assert_eq!(refusals + exempt, objects, "{}", tried.stderr);
    // Nobody can be asked about these.
    let mut gone = tried.stdout.lines();
    let exempt = |line: &str| line.contains("admissionregistration");
    assert!(gone.all(exempt), "{}", tried.stdout);
}

async fn restrict(story: &Story) {
    let level = "pod-security.kubernetes.io/enforce=restricted";
    let label = ["label", "namespace", &story.namespace, level];
    story.kubectl(&label).await.good();
}
