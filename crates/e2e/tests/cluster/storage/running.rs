//! What a running guest gets, loses and gives away.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Instant,
};

use e2e::{DEADLINE, FeatureGates, claim, tiny_vm, wait_for};
use serde_json::{Value, json};

use crate::TestNamespace;

const GATE: &str = "IncrementalBackup";
/// What the guest writes to its disk.
const MARK: &str = "kept-for-later-0123456789";

/// The directory of a bound claim, on its node.
async fn files_of(test: &TestNamespace, claim: &str) -> PathBuf {
    let claims = test.objects("", "v1", "PersistentVolumeClaim");
    let claim = claims.get(claim).await.expect("read the claim");
    let volume = claim.data["spec"]["volumeName"].as_str().expect("a volume");
    let found = test.environment.volume_files(volume);
    found.expect("a node has the volume")
}

/// The files and directories there whose names satisfy a condition.
fn entries(directory: &Path, is_wanted: impl Fn(&str) -> bool) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).expect("list the claim's files");
    let paths = all.flatten().map(|entry| entry.path());
    let name = |path: &PathBuf| {
        path.file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned()
    };
    paths.filter(|path| is_wanted(&name(path))).collect()
}

/// Waits until the volume of the VMI has that phase, or is gone.
async fn wait_volume(test: &TestNamespace, volume: &str, phase: Option<&str>) {
    let what = format!("volume {volume} in phase {phase:?}");
    let is_reached = |vmi: &Value| {
        let all = vmi["status"]["volumeStatus"].as_array();
        let mut all = all.into_iter().flatten();
        let found = all.find(|one| one["name"] == volume);
        found.and_then(|found| found["phase"].as_str()) == phase
    };
    wait_for(&test.vmis(), "desk", &what, is_reached).await;
}

async fn hotplug(test: &TestNamespace, console: &mut e2e::Console) {
    test.apply_object(&claim("extra", "Filesystem")).await;
    let volume = "--volume-name=extra";
    let add = ["addvolume", "desk", volume, "--bus=virtio"];
    test.virtctl(&add).await.success();
    wait_volume(test, "extra", Some("Ready")).await;
    let wait = "i=0; while [ ! -b /dev/vdd ] && [ $i -lt 100 ]; do usleep 100000; i=$((i+1)); done; \
                echo plugged | dd of=/dev/vdd bs=512 count=1 conv=sync,fsync 2>/dev/null; \
                dd if=/dev/vdd bs=512 count=1 2>/dev/null | head -n 1";
    let read = console.shell(wait).await;
    assert!(read.contains("plugged"), "{read}");
    let remove = ["removevolume", "desk", volume];
    test.virtctl(&remove).await.success();
    wait_volume(test, "extra", None).await;
    let gone = console.shell("ls /dev/vdd 2>&1").await;
    assert!(gone.contains("No such file"), "{gone}");
}

async fn dump_memory(test: &TestNamespace) {
    let get = ["memory-dump", "get", "desk"];
    let more = ["--claim-name=dump", "--create-claim"];
    test.virtctl(&[&get[..], &more].concat()).await.success();
    let is_complete = |vm: &Value| vm["status"]["memoryDumpRequest"]["phase"] == "Completed";
    let vm = wait_for(&test.vms(), "desk", "dumped", is_complete).await;
    let name = vm["status"]["memoryDumpRequest"]["fileName"].as_str();
    let name = name.expect("a file").to_owned();
    let files = files_of(test, "dump").await;
    let dumps = entries(&files, |file| file == name);
    let [dump] = &dumps[..] else {
        panic!("{name}: {dumps:?}")
    };
    let core = fs::read(dump).expect("read the dump");
    // 64 bits, little endian.
    assert!(core.starts_with(b"\x7fELF\x02\x01"));
    test.virtctl(&["memory-dump", "remove", "desk"])
        .await
        .success();
    let is_gone = |vm: &Value| vm["status"]["memoryDumpRequest"].is_null();
    wait_for(&test.vms(), "desk", "without a dump", is_gone).await;
}

/// Creates the object: the webhook observes the gate with a delay.
async fn create_gated(test: &TestNamespace, object: &Value) {
    let (until, text) = (Instant::now() + DEADLINE, object.to_string());
    loop {
        let tried = ["apply", "--filename=-"];
        let tried = test.kubectl_with(&tried, text.as_bytes()).await;
        if tried.is_success {
            return;
        }
        let failure = tried.failure();
        assert!(failure.contains(GATE), "{failure}");
        assert!(Instant::now() < until, "{failure}");
    }
}

async fn back_up(test: &TestNamespace) {
    test.apply_object(&claim("backups", "Filesystem")).await;
    let backup = json!({
        "apiVersion": "backup.kubevirt.io/v1alpha1", "kind": "VirtualMachineBackup",
        "metadata": {"name": "nightly"},
        "spec": {
            "source": {"apiGroup": "kubevirt.io", "kind": "VirtualMachine", "name": "desk"},
            "pvcName": "backups",
        },
    });
    create_gated(test, &backup).await;
    let backups = test.objects("backup.kubevirt.io", "v1alpha1", "VirtualMachineBackup");
    let is_complete = |object: &Value| {
        let conditions = object["status"]["conditions"].as_array();
        let mut all = conditions.into_iter().flatten();
        all.any(|one| one["type"] == "Complete" && one["status"] == "True")
    };
    let done = wait_for(&backups, "nightly", "complete", is_complete).await;
    assert_eq!(done["status"]["type"], "Full", "{done:#}");
    let files = files_of(test, "backups").await;
    let copies = entries(&files, |name| name.starts_with("nightly-"));
    let [copy] = &copies[..] else {
        panic!("{copies:?}")
    };
    let disk = fs::read(copy.join("data.qcow2")).expect("read the copy");
    let mark = MARK.as_bytes();
    assert!(disk.windows(mark.len()).any(|part| part == mark));
}

#[tokio::test]
async fn running_guest_gets_and_loses_a_disk_is_dumped_and_backed_up() {
    // The gate is of the whole cluster.
    let test = TestNamespace::create_exclusive().await;
    let gates = FeatureGates::switch(test.environment.as_ref(), &[GATE], &[]).await;
    test.apply_object(&claim("data", "Filesystem")).await;
    let disk = json!({"name": "data", "disk": {"bus": "virtio"}});
    let volume = json!({"persistentVolumeClaim": {"claimName": "data"}});
    test.apply(&tiny_vm("desk").disk_as(&disk, &volume)).await;
    let mut console = test.shell("desk").await;
    let write = format!("echo {MARK} | dd of=/dev/vdc bs=512 seek=99 conv=sync,fsync 2>/dev/null");
    console.shell(&write).await;
    hotplug(&test, &mut console).await;
    dump_memory(&test).await;
    back_up(&test).await;
    assert!(console.shell("echo on-$((1+1))").await.contains("on-2"));
    drop(gates);
}
