//! Dumps of a guest's memory, with the parts of virt-api and virt-handler played by the test.

use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use kube::Api;
use kube::ResourceExt as _;
use kube::api::{Patch, PatchParams};
use serde_json::{Value, json};

use super::cluster::{NAMESPACE, TestCluster};
use super::hotplug::{report_with, volume, wait_for_attachments, wait_for_phase, with_guest};

/// The claim of the dumps, which `with_guest` makes.
const CLAIM: &str = "one";

/// The request in the VM's status; null if there is none.
async fn request(cluster: &TestCluster) -> Value {
    let vm = json!(cluster.vms().get("a").await.unwrap());
    vm["status"]["memoryDumpRequest"].clone()
}

/// Writes a request, as virt-api does.
async fn ask(cluster: &TestCluster, request: Value) {
    // A merge patch keeps what it lacks.
    let mut whole = json!({
        "remove": null, "startTimestamp": null, "endTimestamp": null, "fileName": null,
        "message": null,
    });
    for (member, value) in request.as_object().unwrap() {
        whole[member] = value.clone();
    }
    let patch = Patch::Merge(json!({"status": {"memoryDumpRequest": whole}}));
    let vms = cluster.vms();
    vms.patch_status("a", &PatchParams::default(), &patch)
        .await
        .unwrap();
}

async fn wait_for_request(cluster: &TestCluster, phase: &str) -> Value {
    cluster
        .wait_until(&format!("the request is {phase}"), async || {
            request(cluster).await["phase"] == phase
        })
        .await;
    request(cluster).await
}

/// The names of the dumps' volumes in the template.
async fn in_template(cluster: &TestCluster) -> Vec<String> {
    let vm = json!(cluster.vms().get("a").await.unwrap());
    let volumes = vm["spec"]["template"]["spec"]["volumes"]
        .as_array()
        .cloned();
    let volumes = volumes.unwrap_or_default().into_iter();
    let dumps = volumes.filter(|volume| !volume["memoryDump"].is_null());
    dumps
        .map(|volume| volume["name"].as_str().unwrap().to_owned())
        .collect()
}

async fn noted(cluster: &TestCluster) -> Option<String> {
    let claims = Api::<PersistentVolumeClaim>::namespaced(cluster.client.clone(), NAMESPACE);
    let claim = claims.get(CLAIM).await.unwrap();
    claim.annotations().get("kubevirt.io/memory-dump").cloned()
}

/// One dump up to the report of virt-handler, and until the volume has left the guest.
async fn dump(cluster: &TestCluster, file: &str, result: Value) {
    ask(cluster, json!({"claimName": CLAIM, "phase": "Associating"})).await;
    wait_for_phase(cluster, CLAIM, "AttachedToNode").await;
    wait_for_request(cluster, "InProgress").await;
    assert_eq!(in_template(cluster).await, [CLAIM]);
    let info = json!({
        "claimName": CLAIM, "targetFileName": file, "startTimestamp": "2026-11-25T12:00:00Z",
    });
    let begun = json!({"phase": "MemoryDumpInProgress", "memoryDumpVolume": info});
    report_with(cluster, CLAIM, begun).await;
    report_with(cluster, CLAIM, result).await;
    wait_for_phase(cluster, CLAIM, "Detaching").await;
    report_with(cluster, CLAIM, json!({"phase": "UnMountedFromPod"})).await;
    cluster
        .wait_until("the volume is gone", async || {
            volume(cluster, CLAIM).await.is_null()
        })
        .await;
    wait_for_attachments(cluster, &[]).await;
}

/// Two dumps, the second of which fails, and the release of the claim.
async fn dump_twice_and_release(cluster: &TestCluster) {
    let uid = cluster.vmis().get("a").await.unwrap().uid();
    dump(cluster, "first", json!({"phase": "MemoryDumpCompleted"})).await;
    let done = wait_for_request(cluster, "Completed").await;
    assert_eq!(done["fileName"], "first");
    assert_eq!(done["startTimestamp"], "2026-11-25T12:00:00Z");
    assert!(done["endTimestamp"].is_string(), "{done}");
    assert_eq!(noted(cluster).await.as_deref(), Some("first"));
    // The volume stays with the VM, and not with its guest.
    assert_eq!(in_template(cluster).await, [CLAIM]);

    let failed = json!({"phase": "MemoryDumpFailed", "message": "no space"});
    dump(cluster, "second", failed).await;
    let done = wait_for_request(cluster, "Failed").await;
    assert_eq!(done["message"], "no space");
    assert_eq!(done["fileName"], Value::Null);
    assert_eq!(noted(cluster).await.as_deref(), Some("Memory dump failed"));

    let removal = json!({"claimName": CLAIM, "phase": "Dissociating", "remove": true});
    ask(cluster, removal).await;
    cluster
        .wait_until("the request is gone", async || {
            request(cluster).await.is_null()
        })
        .await;
    assert_eq!(in_template(cluster).await, Vec::<String>::new());
    let vmi = cluster.vmis().get("a").await.unwrap();
    assert_eq!(vmi.uid(), uid);
}

#[tokio::test(start_paused = true)]
async fn dump_is_followed_to_its_end_and_the_claim_is_released() {
    let cluster = with_guest().await;
    dump_twice_and_release(&cluster).await;
    assert_eq!(cluster.events_of("MemoryDumpFailed").await, 1);
    let vm = json!(cluster.vms().get("a").await.unwrap());
    let conditions = vm["status"]["conditions"].as_array().cloned();
    let mut conditions = conditions.unwrap_or_default().into_iter();
    assert!(
        !conditions.any(|one| one["type"] == "RestartRequired"),
        "{vm}"
    );
    cluster.end().await;
}

/// A dump that is under way when its claim is released ends first.
#[tokio::test(start_paused = true)]
async fn claim_is_released_while_the_dump_is_made() {
    let cluster = with_guest().await;
    ask(
        &cluster,
        json!({"claimName": CLAIM, "phase": "Associating"}),
    )
    .await;
    wait_for_phase(&cluster, CLAIM, "AttachedToNode").await;
    report_with(&cluster, CLAIM, json!({"phase": "MemoryDumpInProgress"})).await;
    let removal = json!({"claimName": CLAIM, "phase": "Dissociating", "remove": true});
    ask(&cluster, removal).await;
    wait_for_phase(&cluster, CLAIM, "Detaching").await;
    // The pod of the claim stays as long as the guest's pod has it.
    wait_for_attachments(&cluster, &[&[CLAIM]]).await;
    assert_eq!(in_template(&cluster).await, [CLAIM]);
    report_with(&cluster, CLAIM, json!({"phase": "UnMountedFromPod"})).await;
    cluster
        .wait_until("the request is gone", async || {
            request(&cluster).await.is_null()
        })
        .await;
    assert_eq!(in_template(&cluster).await, Vec::<String>::new());
    cluster.end().await;
}

/// A template takes 256 volumes.
#[tokio::test(start_paused = true)]
async fn dump_whose_volume_is_refused_fails() {
    let cluster = with_guest().await;
    let guest = test_cluster::guest();
    let mut volumes = guest["volumes"].as_array().unwrap().clone();
    for number in volumes.len()..256 {
        volumes.push(json!({"name": format!("v{number}"), "emptyDisk": {"capacity": "1Mi"}}));
    }
    let patch = json!({"spec": {"template": {"spec": {"volumes": volumes}}}});
    cluster.patch_vm("a", patch).await;
    ask(
        &cluster,
        json!({"claimName": CLAIM, "phase": "Associating"}),
    )
    .await;
    let failed = wait_for_request(&cluster, "Failed").await;
    let message = failed["message"].as_str().unwrap();
    let expected = "the volume of the dump was refused: ";
    assert!(message.starts_with(expected), "{message}");
    assert_eq!(in_template(&cluster).await, Vec::<String>::new());
    cluster.end().await;
}

#[tokio::test(start_paused = true)]
async fn dumps_survive_a_crash_of_the_controllers_at_every_failpoint() {
    let own = [
        "virt-controller/vm/change-for-dump",
        "virt-controller/vm/follow-dump",
    ];
    let names = ::failpoints::NAMES.lines();
    for name in names.filter(|name| own.contains(name)) {
        let mut cluster = with_guest().await;
        cluster.crash_after(name);
        dump_twice_and_release(&cluster).await;
        assert!(
            !cluster.is_crash_pending(),
            "failpoint {name} was not reached"
        );
        cluster.end().await;
    }
}
