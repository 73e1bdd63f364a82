//! Dumps of a guest's memory to a claim.

use std::{
    fs::File,
    io::Read as _,
    path::{Path, PathBuf},
};

use e2e::{claim, tiny_vm, wait_for};
use serde_json::Value;

use crate::{TestNamespace, test_namespace};

/// The memory of the guest.
const MEMORY: u64 = 96 << 20;

/// Waits until the VM's request is in that phase.
async fn waits_for(test: &TestNamespace, phase: &str) -> Value {
    let is_reached = |vm: &Value| vm["status"]["memoryDumpRequest"]["phase"] == phase;
    let vm = wait_for(&test.vms(), "dumped", phase, is_reached).await;
    vm["status"]["memoryDumpRequest"].clone()
}

/// The directory of the claim's files on this host.
pub(crate) async fn files_of(test: &TestNamespace, claim: &str) -> PathBuf {
    let claims = test.objects("", "v1", "PersistentVolumeClaim");
    let claim = claims.get(claim).await.expect("read the claim");
    let volume = claim.data["spec"]["volumeName"].as_str().expect("a volume");
    let volumes = test.environment.state_dir().join("node/volumes");
    volumes.join(volume).join("data")
}

/// The names of the dumps there.
fn dumps_in(directory: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(directory).expect("list the claim's files");
    let names = entries.flatten().map(|entry| entry.file_name());
    let names = names.map(|name| name.to_string_lossy().into_owned());
    names
        .filter(|name| name.ends_with(".memory.dump"))
        .collect()
}

/// Checks that the file is an ELF core of this machine that has all of the guest's memory.
fn check_core(path: &Path) {
    let mut file = File::open(path).expect("open the dump");
    let size = file.metadata().expect("its size").len();
    assert!(size >= MEMORY, "{size} bytes");
    let mut head = [0; 20];
    file.read_exact(&mut head).expect("read the dump");
    // 64 bits, little endian; a core; x86-64.
    assert_eq!(head[..6], *b"\x7fELF\x02\x01");
    assert_eq!(head[16..20], [4, 0, 62, 0]);
}

#[tokio::test]
async fn memory_of_a_running_guest_is_dumped_to_a_claim() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("dumped")).await;
    let mut console = test.shell("dumped").await;
    test.apply_object(&claim("small", "Filesystem")).await;
    let refused = test
        .virtctl(&["memory-dump", "get", "dumped", "--claim-name=small"])
        .await;
    assert!(
        refused.stderr.contains("should be bigger then"),
        "{refused:?}"
    );

    let get = ["memory-dump", "get", "dumped"];
    let made = [&get[..], &["--claim-name=dump", "--create-claim"]].concat();
    test.virtctl(&made).await.success();
    let first = waits_for(&test, "Completed").await;
    let name = first["fileName"].as_str().expect("a file").to_owned();
    let files = files_of(&test, "dump").await;
    assert_eq!(dumps_in(&files), std::slice::from_ref(&name));
    check_core(&files.join(&name));
    for timestamp in ["startTimestamp", "endTimestamp"] {
        assert!(first[timestamp].is_string(), "{first}");
    }
    let claims = test.objects("", "v1", "PersistentVolumeClaim");
    let noted = claims.get("dump").await.expect("read the claim").metadata;
    let noted = noted.annotations.unwrap_or_default();
    assert_eq!(noted.get("kubevirt.io/memory-dump"), Some(&name));
    // The guest goes on, and does not have the volume.
    assert!(
        console
            .shell("echo still-$((1+1))")
            .await
            .contains("still-2")
    );

    test.virtctl(&get).await.success();
    let is_new = |vm: &Value| {
        let request = &vm["status"]["memoryDumpRequest"];
        request["phase"] == "Completed" && request["fileName"] != *name
    };
    wait_for(&test.vms(), "dumped", "a second dump", is_new).await;
    assert_eq!(dumps_in(&files).len(), 1);

    test.virtctl(&["memory-dump", "remove", "dumped"])
        .await
        .success();
    let is_gone = |vm: &Value| {
        let volumes = vm["spec"]["template"]["spec"]["volumes"].as_array();
        let mut volumes = volumes.into_iter().flatten();
        vm["status"]["memoryDumpRequest"].is_null()
            && !volumes.any(|volume| !volume["memoryDump"].is_null())
    };
    wait_for(&test.vms(), "dumped", "no dump", is_gone).await;
}
