//! Refusals by quota, Pod Security and admission policies appear in a condition, and end with the rule.

use e2e::{DEADLINE, Environment as _, FeatureGates, tiny_vm, wait_for};
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{TestNamespace, test_namespace};

/// Waits until the VMI reports why it has no pod, and returns the message.
async fn has_no_pod(test: &TestNamespace, name: &str, expected: &str) -> String {
    let is_refused = |vmi: &Value| {
        let text = message_of(vmi);
        text.is_some_and(|text| text.contains(expected))
    };
    let vmi = wait_for(&test.vmis(), name, "refused", is_refused).await;
    message_of(&vmi).unwrap_or_default()
}

fn message_of(vmi: &Value) -> Option<String> {
    let all = vmi["status"]["conditions"].as_array()?;
    let one = all.iter().find(|one| one["type"] == "Synchronized")?;
    let is_refusal = one["status"] == "False" && one["reason"] == "FailedCreate";
    is_refusal.then(|| one["message"].as_str().unwrap_or_default().to_owned())
}

#[tokio::test]
async fn exhausted_quota_is_reported_and_vm_starts_once_raised() {
    let test = test_namespace().await;
    test.kubectl(&["create", "quota", "none", "--hard=pods=0"])
        .await
        .success();
    // The quota applies once its status is computed.
    let is_counted = |quota: &Value| quota["status"]["hard"]["pods"] == "0";
    let quotas = test.objects("", "v1", "ResourceQuota");
    wait_for(&quotas, "none", "counted", is_counted).await;
    test.apply(&tiny_vm("waits")).await;
    let text = has_no_pod(&test, "waits", "exceeded quota").await;
    assert!(text.contains("none"), "it names the quota: {text}");
    assert_eq!(test.pod_list().await, []);
    test.kubectl(&["delete", "quota", "none"]).await.success();
    test.wait_vmi_phase("waits", "Running").await;
}

#[tokio::test]
async fn guest_runs_under_restricted_pod_security() {
    let test = test_namespace().await;
    restrict(&test).await;
    test.apply(&tiny_vm("modest")).await;
    test.greeting("modest").await;
}

#[tokio::test]
async fn pod_security_refusal_is_reported() {
    let test = TestNamespace::create_exclusive().await;
    restrict(&test).await;
    let feature_gates = FeatureGates::switch(test.environment.as_ref(), &["HostDisk"], &[]).await;
    let path = "/var/lib/test/disk.img";
    let disk = json!({"hostDisk": {"path": path, "type": "DiskOrCreate", "capacity": "16Mi"}});
    let bold = tiny_vm("bold").disk(&disk);
    // The webhook observes the gate with a delay.
    let until = Instant::now() + DEADLINE;
    loop {
        let tried = test.try_apply(&bold).await;
        if tried.is_success {
            break;
        }
        let failure = tried.failure();
        assert!(failure.contains("HostDisk"), "{failure}");
        assert!(Instant::now() < until, "{failure}");
    }
    let text = has_no_pod(&test, "bold", "PodSecurity").await;
    assert!(
        text.contains("hostPath"),
        "the message names the cause: {text}"
    );
    assert_eq!(test.pod_list().await, []);
    drop(feature_gates);
}

#[tokio::test]
async fn installation_with_vms_cannot_be_deleted() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("kept").strategy("Halted")).await;
    let manifest = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/ferrovirt.yaml");
    let tried = ["delete", "--dry-run=server", "--filename", manifest];
    let tried = test.environment.kubectl(&tried, b"").await;
    assert!(!tried.is_success);
    let refusals = tried.stderr.lines();
    let refusals = refusals
        .filter(|line| line.contains("VirtualMachine(s) and"))
        .count();
    let objects = std::fs::read_to_string(manifest).expect("read the manifest");
    let objects = objects.lines().filter(|line| *line == "---").count();
    let exempt = tried.stdout.lines().count();
    assert_eq!(refusals + exempt, objects, "{}", tried.stderr);
    // No webhook covers these kinds.
    let mut gone = tried.stdout.lines();
    let exempt = |line: &str| line.contains("admissionregistration");
    assert!(gone.all(exempt), "{}", tried.stdout);
}

async fn restrict(test: &TestNamespace) {
    let level = "pod-security.kubernetes.io/enforce=restricted";
    let label = ["label", "namespace", &test.namespace, level];
    test.kubectl(&label).await.success();
}
