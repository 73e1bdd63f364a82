//! Guests that run, are paused, stop or end.

use std::time::Duration;

use e2e::{VmManifest, answer, claim, kill_in_pod, suspend_in_pod, tiny_vm};
use serde_json::json;

use super::{Situations, faults::with_fault};

/// Later than 90 s after the grace period, and before virt-controller has killed the pod.
const NOT_STOPPED: Duration = Duration::from_mins(3);
const QEMU: &str = "qemu-system-x86";

/// The UID and the name of a VM's pod.
async fn pod(test: &Situations<'_>, name: &str) -> (String, String) {
    test.wait_vmi_phase(name, "Running").await;
    let own = format!("virt-launcher-{name}-");
    let pods = test.pod_list().await;
    let found = pods.into_iter().find(|(pod, _)| pod.starts_with(&own));
    let (pod, uid) = found.expect("it has a pod");
    (uid, pod)
}

/// The processes around the guest do nothing, so that no shutdown takes place.
pub(super) async fn hang_while_they_stop(test: &Situations<'_>) {
    let vm = tiny_vm("hangs").set("/spec/template/spec/terminationGracePeriodSeconds", 20);
    test.apply(&vm).await;
    let (uid, _) = pod(test, "hangs").await;
    suspend_in_pod(&uid, &[QEMU, "virt-launcher", "libvirtd"]);
    let halt = "--patch={\"spec\":{\"runStrategy\":\"Halted\"}}";
    test.kubectl(&["patch", "vm", "hangs", "--type=merge", halt])
        .await
        .success();
    let stopping = answer("stopping", "20 s", "wait --for=delete vmi/hangs");
    test.check("hangs", stopping).await;
    test.kubectl(&["delete", "vm", "hangs", "--wait=false"])
        .await
        .success();
    let deleting = answer("deleting", "vm/hangs", "wait --for=delete vm/hangs");
    test.check("hangs", deleting).await;
    let next = "stop hangs --grace-period 0 --force";
    let ignored = answer("stop-ignored", "pod/virt-launcher-hangs-", next);
    let answered = test.why_answers_within(NOT_STOPPED, "hangs", ignored).await;
    test.record(answered);
}

/// A guest that keeps its failed VMI.
fn once(name: &str) -> VmManifest {
    tiny_vm(name).strategy("Once")
}

pub(super) async fn run_and_end(test: &Situations<'_>) {
    test.apply_object(&claim("runs", "Filesystem")).await;
    let off = tiny_vm("off").strategy("Halted");
    let manual = tiny_vm("manual").strategy("Manual");
    let probe = json!({"tcpSocket": {"port": 81}, "periodSeconds": 1, "failureThreshold": 1});
    test.apply_all([
        off,
        manual,
        once("runs")
            .spec("evictionStrategy", "External")
            .disk(&json!({"persistentVolumeClaim": {"claimName": "runs"}})),
        with_fault(
            once("probed").spec("readinessProbe", probe),
            "status-refused",
        ),
        once("starts-paused").spec("startStrategy", "Paused"),
        tiny_vm("done")
            .strategy("RerunOnFailure")
            .user_data("#!/bin/sh\npoweroff -f\n"),
        once("deaf"),
    ])
    .await;
    is_watched(test).await;
    for (name, cause, object, next) in [
        ("off", "halted", "Halted", "start off"),
        ("manual", "not-started", "Manual", "start manual"),
        ("probed", "not-ready", "readiness probe", "console probed"),
        (
            "starts-paused",
            "started-paused",
            "spec.startStrategy",
            "unpause vmi starts-paused",
        ),
        ("done", "ended-well", "RerunOnFailure", "start done"),
    ] {
        test.check(name, answer(cause, object, next)).await;
    }
    changes_while_it_runs(test).await;
    loses_its_pod(test).await;
    does_not_shut_down(test).await;
    let names = [
        "off",
        "manual",
        "runs",
        "probed",
        "starts-paused",
        "done",
        "deaf",
    ];
    test.delete_vms(&names).await;
}

/// `virtctl why --watch` prints each answer, and ends when the VM is ready.
async fn is_watched(test: &Situations<'_>) {
    let files = json!({"configMap": {"name": "late"}});
    test.apply(&tiny_vm("watched").disk(&files)).await;
    let expected = answer("config-map-missing", "configmap/late", "get configmap");
    test.check("watched", expected).await;
    let arguments = ["why", "vm/watched", "--watch", "--output=json"];
    let mut watch = test.virtctl_terminal(&arguments);
    watch.expect("config-map-missing").await;
    test.kubectl(&["create", "configmap", "late", "--from-literal=a=b"])
        .await
        .success();
    watch.expect("\n{").await;
    watch.expect("\"healthy\":true").await;
    assert!(watch.end().await.success());
    test.delete_vms(&["watched"]).await;
}

async fn changes_while_it_runs(test: &Situations<'_>) {
    let (uid, pod) = pod(test, "runs").await;
    // The node is drained.
    let eviction = json!({
        "apiVersion": "policy/v1", "kind": "Eviction",
        "metadata": {"name": pod, "namespace": test.namespace},
    });
    let path = format!("/api/v1/namespaces/{}/pods/{pod}/eviction", test.namespace);
    let evict = ["create", "--raw", &path, "--filename=-"];
    let evicted = test
        .kubectl_with(&evict, eviction.to_string().as_bytes())
        .await;
    assert!(!evicted.is_success, "{evicted:?}");
    let blocked = answer(
        "eviction-blocked",
        "status.evacuationNodeName",
        "restart runs",
    );
    test.check("runs", blocked).await;

    let longer =
        "--patch={\"spec\":{\"template\":{\"spec\":{\"terminationGracePeriodSeconds\":7}}}}";
    test.kubectl(&["patch", "vm", "runs", "--type=merge", longer])
        .await
        .success();
    let changed = answer("restart-required", "vm/runs", "restart runs");
    test.check("runs", changed).await;

    test.virtctl(&["pause", "vm", "runs"]).await.success();
    let paused = answer("paused-by-user", "vmi/runs", "unpause vmi runs");
    test.check("runs", paused).await;
    test.virtctl(&["unpause", "vm", "runs"]).await.success();

    kill_in_pod(&uid, QEMU);
    let crashed = answer("hypervisor-crashed", "signal 9", "logs virt-launcher-runs-");
    test.check("runs", crashed).await;
}

/// A webhook rejects the status that reports the loss.
async fn loses_its_pod(test: &Situations<'_>) {
    let (_, pod) = pod(test, "probed").await;
    let delete = [
        "delete",
        "pod",
        &pod,
        "--grace-period=0",
        "--force",
        "--wait=false",
    ];
    test.kubectl(&delete).await.success();
    let lost = answer("pod-lost", "none of this VMI", "get events");
    test.check("probed", lost).await;
}

/// Its pod is deleted, and the guest ignores the power button.
async fn does_not_shut_down(test: &Situations<'_>) {
    let mut console = test.shell("deaf").await;
    console.shell("killall acpid").await;
    let (_, pod) = pod(test, "deaf").await;
    test.kubectl(&["delete", "pod", &pod, "--wait=false"])
        .await
        .success();
    let forced = answer("shutdown-forced", "vmi/deaf", "vmi deaf");
    test.check("deaf", forced).await;
}
