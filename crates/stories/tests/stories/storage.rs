//! Storage that fails under a guest, and is mended.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use stories::{Machine, claim, machine, wait_for};

use crate::{Story, story};

/// A program of this machine that must do what it is asked.
#[track_caller]
fn must(program: &str, arguments: &[&str], path: &Path) {
    let outcome = std::process::Command::new(program)
        .args(arguments)
        .arg(path)
        .output()
        .unwrap_or_else(|err| panic!("{program}: {err}"));
    assert!(outcome.status.success(), "{program}: {outcome:?}");
}

/// A file system in memory, gone with this.
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

/// A file that nobody may write, not even those who have it open.
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

/// Waits until the guest stands still because of its storage, and is said to. From time to time it
/// is let go on and stands still again, so no word of it holds from one look to the next.
async fn stands_still(story: &Story, name: &str, because: &str) {
    let vmis = story.vmis();
    let is_said = |vmi: &Value| {
        paused(vmi).is_some_and(|condition| {
            let message = condition["message"].as_str().unwrap_or_default();
            condition["reason"] == "PausedIOError" && message.ends_with(because)
        })
    };
    wait_for(&vmis, name, because, is_said).await;
    story.vm_is(name, "Paused").await;
    let until = tokio::time::Instant::now() + stories::DEADLINE;
    loop {
        let why = story.virtctl(&["why", name]).await;
        let words = ["paused-io-error", because];
        if !why.is_success && words.iter().all(|word| why.stdout.contains(word)) {
            return;
        }
        assert!(tokio::time::Instant::now() < until, "{why:?}");
    }
}

/// Waits until the guest goes on, which it does by itself.
async fn goes_on(story: &Story, name: &str) {
    let vmis = story.vmis();
    let goes_on = |vmi: &Value| vmi["status"]["phase"] == "Running" && paused(vmi).is_none();
    wait_for(&vmis, name, "going on", goes_on).await;
    story.vm_is(name, "Running").await;
}

/// A machine with a disk on that file system.
async fn on_mounted(story: &Story, name: &str, mounted: &Mounted) -> Machine {
    let volume = json!({
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": format!("{}-{name}", story.namespace)},
        "spec": {
            "capacity": {"storage": "64Mi"},
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "hostPath": {"path": mounted.0},
        },
    });
    story.apply_object(&volume).await;
    let mut claim = claim(name, "Filesystem");
    claim["spec"]["storageClassName"] = json!("");
    claim["spec"]["volumeName"] = volume["metadata"]["name"].clone();
    story.apply_object(&claim).await;
    machine(name).disk(&on_claim(name))
}

/// Where this host keeps the disk of a claim.
async fn disk_of(story: &Story, claim: &str) -> PathBuf {
    let claims = story.objects("", "v1", "PersistentVolumeClaim");
    let claim = claims.get(claim).await.expect("read the claim");
    let volume = claim.data["spec"]["volumeName"].as_str().expect("a volume");
    let volumes = story.home.state_dir().join("node/volumes");
    volumes.join(volume).join("data/disk.img")
}

#[tokio::test]
async fn a_guest_whose_storage_fails_stands_still_until_it_is_mended() {
    let story = story().await;
    let mounted = Mounted::mount(story.home.base().join(&story.namespace));
    let full = on_mounted(&story, "full", &mounted).await;
    story.apply(&full).await;
    for name in ["stops", "told"] {
        story.apply_object(&claim(name, "Filesystem")).await;
    }
    let reported = json!({"name": "told", "disk": {"bus": "virtio"}, "errorPolicy": "report"});
    let machine = machine("refused")
        .disk(&on_claim("stops"))
        .disk_as(&reported, &on_claim("told"));
    story.apply(&machine).await;

    let write =
        |disk: &str| format!("dd if=/dev/zero of=/dev/{disk} bs=1M count=16 conv=fsync 2>&1");
    let mut full = story.shell("full").await;
    let mut refused = story.shell("refused").await;

    // One of its disks leaves it to the guest.
    let sealed = Sealed::seal(disk_of(&story, "told").await);
    let said = refused.shell(&write("vdd")).await;
    assert!(said.contains("error"), "{said}");
    drop(sealed);

    // A disk is not made where it does not fit, but what is promised may go to others.
    mounted.resize("8m");
    let sealed = Sealed::seal(disk_of(&story, "stops").await);
    for console in [&mut full, &mut refused] {
        let command = format!("{}; echo status=$?\n", write("vdc"));
        console.send(&command).await;
    }
    // It is tried again after a while, and then less and less often.
    let refusal = "disk more: its storage fails: Operation not permitted";
    tokio::join!(
        stands_still(&story, "full", "disk more: its storage is full"),
        stands_still(&story, "refused", refusal),
    );
    mounted.resize("80m");
    drop(sealed);
    for (name, console) in [("full", &mut full), ("refused", &mut refused)] {
        goes_on(&story, name).await;
        // What it wrote meanwhile has arrived: it never knew.
        console.expect("status=0").await;
    }
    let volume = format!("{}-full", story.namespace);
    let volumes = ["delete", "persistentvolume", &volume, "--wait=false"];
    story.kubectl(&volumes).await.good();
}
