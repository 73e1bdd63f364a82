//! Storage that fails under a guest and is repaired.

use std::path::{Path, PathBuf};

use e2e::{VmManifest, answer, claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::{TestNamespace, test_namespace};

/// Runs a program that must succeed.
#[track_caller]
fn must(program: &str, arguments: &[&str], path: &Path) {
    let outcome = std::process::Command::new(program)
        .args(arguments)
        .arg(path)
        .output()
        .unwrap_or_else(|err| panic!("{program}: {err}"));
    assert!(outcome.status.success(), "{program}: {outcome:?}");
}

/// A file system in memory, unmounted on drop.
struct Mounted(PathBuf);

impl Mounted {
    fn mount(path: PathBuf) -> Self {
        std::fs::create_dir(&path).expect("make a directory");
        must("mount", &["-t", "tmpfs", "-o", "size=80m", "tmpfs"], &path);
        Self(path)
    }

    fn resize(&self, size: &str) {
        must("mount", &["-o", &format!("remount,size={size}")], &self.0);
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        must("umount", &["--lazy"], &self.0);
    }
}

/// An immutable file, which not even processes that have it open may write.
struct Sealed(PathBuf);

impl Sealed {
    fn seal(path: PathBuf) -> Self {
        must("chattr", &["+i"], &path);
        Self(path)
    }
}

impl Drop for Sealed {
    fn drop(&mut self) {
        must("chattr", &["-i"], &self.0);
    }
}

fn on_claim(claim: &str) -> Value {
    json!({"persistentVolumeClaim": {"claimName": claim}})
}

fn paused(vmi: &Value) -> Option<&Value> {
    let conditions = vmi["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "Paused")
}

/// Waits until the guest is paused by an I/O error and its status reports it. virt-launcher resumes it from
/// time to time, so the state changes between polls.
async fn waits_paused(test: &TestNamespace, name: &str, because: &str) {
    let vmis = test.vmis();
    let is_reported = |vmi: &Value| {
        paused(vmi).is_some_and(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["reason"] == "PausedIOError" && message.contains(&format!("{because}. "))
        })
    };
    wait_for(&vmis, name, because, is_reported).await;
    test.wait_vm_status(name, "Paused").await;
    let next = format!("describe vmi {name}");
    let paused = answer("paused-io-error", because, &next);
    test.why_answers(name, paused).await;
}

/// Waits until the guest resumes by itself.
async fn goes_on(test: &TestNamespace, name: &str) {
    let vmis = test.vmis();
    let goes_on = |vmi: &Value| vmi["status"]["phase"] == "Running" && paused(vmi).is_none();
    wait_for(&vmis, name, "going on", goes_on).await;
    test.wait_vm_status(name, "Running").await;
}

/// A VM with a disk on that file system.
async fn on_mounted(test: &TestNamespace, name: &str, mounted: &Mounted) -> VmManifest {
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("{}-{name}", test.namespace)},
        "spec": {
            "capacity": {"storage": "64Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "hostPath": {"path": mounted.0},
        },
    });
    test.apply_object(&volume).await;
    let mut claim = claim(name, "Filesystem");
    claim["spec"]["storageClassName"] = json!("");
    claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
    test.apply_object(&claim).await;
    tiny_vm(name).disk(&on_claim(name))
}

/// The file of a claim's disk on this host.
async fn disk_of(test: &TestNamespace, claim: &str) -> PathBuf {
    let claims = test.objects("", "v1", "PersistentVolumeClaim");
    let claim = claims.get(claim).await.expect("read the claim");
    let volume = claim.data["spec"]["volumeName"].as_str().expect("a volume");
    let volumes = test.environment.state_dir().join("node/volumes");
    volumes.join(volume).join("data/disk.img")
}

#[tokio::test]
async fn guest_pauses_on_storage_failure_and_resumes_after_repair() {
    let test = test_namespace().await;
    let mounted = Mounted::mount(test.environment.base().join(&test.namespace));
    let full = on_mounted(&test, "full", &mounted).await;
    test.apply(&full).await;
    for name in ["stops", "reported"] {
        test.apply_object(&claim(name, "Filesystem")).await;
    }
    let reported = json!({"name": "reported", "disk": {"bus": "virtio"}, "errorPolicy": "report"});
    let vm = tiny_vm("refused")
        .disk(&on_claim("stops"))
        .disk_as(&reported, &on_claim("reported"));
    test.apply(&vm).await;

    let write =
        |disk: &str| format!("dd if=/dev/zero of=/dev/{disk} bs=1M count=16 conv=fsync 2>&1");
    let mut full = test.shell("full").await;
    let mut refused = test.shell("refused").await;

    // One of its disks reports errors to the guest.
    let sealed = Sealed::seal(disk_of(&test, "reported").await);
    let output = refused.shell(&write("vdd")).await;
    assert!(output.contains("error"), "{output}");
    drop(sealed);

    // A disk that does not fit is not created, although space promised to it may go to others.
    mounted.resize("8m");
    let sealed = Sealed::seal(disk_of(&test, "stops").await);
    for console in [&mut full, &mut refused] {
        let command = format!("{}; echo status=$?\n", write("vdc"));
        console.send(&command).await;
    }
    // It is retried with increasing back-off.
    let refusal = "disk more: its storage fails: Operation not permitted";
    tokio::join!(
        waits_paused(&test, "full", "disk more: its storage is full"),
        waits_paused(&test, "refused", refusal),
    );
    mounted.resize("80m");
    drop(sealed);
    for (name, console) in [("full", &mut full), ("refused", &mut refused)] {
        goes_on(&test, name).await;
        // Its writes have completed: it did not notice the error.
        console.expect("status=0").await;
    }
    let volume = format!("{}-full", test.namespace);
    let volumes = ["delete", "persistentvolume", &volume, "--wait=false"];
    test.kubectl(&volumes).await.success();
}
