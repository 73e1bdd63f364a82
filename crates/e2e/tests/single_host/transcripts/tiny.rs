//! Commands of `virtctl` and what they print: power, consoles, ports, volumes, moves and reports of the tiny guest.

use std::{net::TcpListener, path::Path, time::Duration};

use e2e::{Host, Transcripts, VmManifest, tiny_vm, wait_for};
use serde_json::Value;
use tempfile::TempDir;

use crate::{TestNamespace, test_namespace};

/// Bytes of the uploaded disk.
const DISK: usize = 1 << 20;

/// The test, its transcripts, and files on this computer.
struct Desk<'a> {
    test: &'a TestNamespace,
    shell: Transcripts<'a, Host>,
    files: TempDir,
}

impl Desk<'_> {
    /// A file of this computer, as an argument.
    fn path(&self, name: &str) -> String {
        self.files.path().join(name).display().to_string()
    }

    /// Calls all commands of the lines; `FILES` stands for the directory.
    async fn call_all(&mut self, lines: &[&str]) {
        let directory = self.files.path().display().to_string();
        for line in lines {
            self.shell.call(&line.replace("FILES", &directory)).await;
        }
    }
}

/// A guest whose console is logged, and which may be suspended: it runs from memory.
fn guest() -> VmManifest {
    tiny_vm("tiny")
        .strategy("Halted")
        .device("logSerialConsole", true)
        .set(
            "/spec/template/spec/domain/devices/disks/0/disk",
            serde_json::json!({"bus": "virtio", "readonly": true}),
        )
}

fn condition<'a>(object: &'a Value, kind: &str) -> &'a Value {
    let conditions = object["status"]["conditions"].as_array();
    let found = conditions.and_then(|all| all.iter().find(|one| one["type"] == kind));
    found.unwrap_or(&Value::Null)
}

async fn wait_vmi(test: &TestNamespace, what: &str, holds: impl Fn(&Value) -> bool + Send) {
    wait_for(&test.vmis(), "tiny", what, holds).await;
}

#[tokio::test]
async fn virtctl_prints_its_transcripts_about_a_tiny_guest() {
    let test = test_namespace().await;
    let files = tempfile::tempdir().expect("make a directory");
    let mut shell = Transcripts::of(&test);
    shell.replace(&files.path().display().to_string(), "FILES");
    let mut desk = Desk {
        test: &test,
        shell,
        files,
    };
    write_files(desk.files.path());
    test.apply(&guest()).await;
    test.wait_vm_status("tiny", "Stopped").await;
    calls_about_the_installation(&mut desk).await;
    calls_without_a_guest(&mut desk).await;

    desk.call_all(&["start tiny"]).await;
    let mut console = test.shell("tiny").await;
    // Nothing but the answers to commands is on the console from here on.
    console.shell("dmesg -n 1").await;
    drop(console);
    let is_ready = |vmi: &Value| condition(vmi, "Ready")["status"] == "True";
    wait_vmi(&test, "ready", is_ready).await;
    test.wait_vm_status("tiny", "Running").await;
    calls_with_a_guest(&mut desk).await;
    calls_that_pause(&mut desk).await;
    calls_that_move(&mut desk).await;
    calls_about_volumes(&mut desk).await;
    calls_that_dump(&mut desk).await;
    calls_that_suspend(&mut desk).await;
    calls_that_end(&mut desk).await;
    desk.shell.check();
}

fn write_files(directory: &Path) {
    std::fs::write(directory.join("disk.img"), vec![7; DISK]).expect("write a disk");
    let key =
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA me\n";
    std::fs::write(directory.join("key.pub"), key).expect("write a key");
}

fn port_of(listener: &TcpListener) -> String {
    let address = listener.local_addr().expect("a listener has an address");
    address.port().to_string()
}

fn free_port() -> String {
    port_of(&TcpListener::bind("127.0.0.1:0").expect("find a free port"))
}

async fn calls_about_the_installation(desk: &mut Desk<'_>) {
    desk.call_all(&[
        "version",
        "permitted-devices",
        "adm log-verbosity --all",
        "adm log-verbosity --virt-api --virt-handler",
        "guestfs none",
    ])
    .await;
    let ui = "ui --no-browser";
    desk.shell.interrupt_after(ui, b"", "/console/#link=").await;
    // Another program has the port.
    let taken = TcpListener::bind("127.0.0.1:0").expect("take a port");
    let port = port_of(&taken);
    desk.shell.replace(&port, "TAKEN");
    let busy = format!("ui --no-browser --port {port}");
    desk.shell.call(&busy).await;
    let busy = format!("port-forward vm/tiny {port}:22");
    desk.shell.call(&busy).await;
    let busy = format!("vnc tiny --proxy-only --port {port}");
    // The VM is off, which is found first.
    desk.shell.call(&busy).await;
}

async fn calls_without_a_guest(desk: &mut Desk<'_>) {
    desk.call_all(&[
        "start none",
        "start tiny --dry-run",
        "start tiny --as nobody",
        "console tiny --as nobody",
        "stop none",
        "stop tiny",
        "restart tiny",
        "pause vm none",
        "pause vm tiny",
        "unpause vm tiny",
        "suspend tiny",
        "resume tiny",
        "reset tiny",
        "soft-reboot tiny",
        "console none",
        "console tiny",
        "vnc none --proxy-only",
        "vnc screenshot tiny --file FILES/none.png",
        "port-forward --stdio vm/tiny 22",
        "port-forward --stdio vm/none 22",
        "logs tiny",
        "top tiny",
        "migrate tiny",
        "migrate-cancel tiny",
        "evacuate-cancel vm none",
        "addvolume tiny --volume-name none",
        "removevolume tiny --volume-name none",
        "memory-dump get tiny --claim-name none",
        "memory-dump get none --claim-name none",
        "backup track chain --vm tiny",
        "backup create none --vm none --pvc none",
        "backup list",
        "backup wait backup missing",
        "backup wait restore missing",
        "backup restore none --backup missing --volume disk=none --overwrite",
        "backup restore none --backup missing --overwrite-vm none",
        "expand --vm none",
        "expose vm none --name none --port 22",
        "why none",
        "why tiny",
        "run tiny --image FILES/none.img",
    ])
    .await;
}

async fn calls_with_a_guest(desk: &mut Desk<'_>) {
    desk.call_all(&[
        "start tiny",
        "why tiny",
        "why vmi/tiny",
        "expose vm tiny --name tiny-ssh --port 22",
        "expose vm tiny --name tiny-ssh --port 22",
        "vnc screenshot tiny --file FILES/tiny.png",
        "vnc screenshot tiny --file FILES/missing/tiny.png",
        "port-forward --stdio vm/tiny 9",
    ])
    .await;
    // The log of the console is written later than the console.
    let is_logged = async {
        while !desk
            .test
            .virtctl(&["logs", "tiny"])
            .await
            .stdout
            .contains("Welcome")
        {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let is_logged = tokio::time::timeout(Duration::from_mins(5), is_logged).await;
    is_logged.expect("the log has the greeting");
    let shell = &mut desk.shell;
    shell.call_for("expand --vm tiny", "guest: ").await;
    shell.call_for("logs tiny", "Welcome").await;
    shell.call_for("top tiny", "CPU").await;
    // One line: a shell that is not reading yet gets what follows it from the terminal, which echoes it once more.
    let typed = b"echo $((7 * 8))\n";
    shell.interrupt_after("console tiny", typed, "\n56").await;
    let port = free_port();
    shell.replace(&port, "FREE");
    let proxy = format!("vnc tiny --proxy-only --port {port}");
    shell.interrupt_after(&proxy, b"", "}").await;
    let forward = "port-forward vm/tiny 0:22";
    shell.interrupt_after(forward, b"", "-> 22").await;
    let forward = "port-forward vmi/tiny udp/0:53";
    shell.interrupt_after(forward, b"", "(udp)").await;
    let picture = std::fs::read(desk.path("tiny.png")).expect("read the picture");
    assert!(picture.starts_with(b"\x89PNG\r\n"));

    desk.call_all(&[
        "run made --image ferrovirt/guest-tiny:devel --ssh-key FILES/key.pub --no-wait",
        "run made --image ferrovirt/guest-tiny:devel --ssh-key FILES/key.pub --no-wait",
    ])
    .await;
    desk.test.delete_vms(&["made"]).await;
}

async fn calls_that_pause(desk: &mut Desk<'_>) {
    let is_paused = |vmi: &Value| condition(vmi, "Paused")["status"] == "True";
    desk.call_all(&["pause vm tiny --dry-run", "pause vm tiny"])
        .await;
    wait_vmi(desk.test, "paused", is_paused).await;
    desk.call_all(&["pause vmi tiny", "unpause vm tiny"]).await;
    wait_vmi(desk.test, "going on", move |vmi| !is_paused(vmi)).await;
    desk.call_all(&["unpause vmi tiny"]).await;
}

async fn calls_that_move(desk: &mut Desk<'_>) {
    let test = desk.test;
    let may_move = |vmi: &Value| condition(vmi, "LiveMigratable")["status"] == "True";
    wait_vmi(test, "able to move", may_move).await;
    desk.call_all(&[
        "evacuate-cancel vm tiny",
        "evacuate-cancel node none",
        "migrate tiny --dry-run",
    ])
    .await;
    calls_that_cancel(desk).await;
    wait_vmi(test, "able to move again", may_move).await;
    desk.call_all(&["migrate tiny"]).await;
    let has_moved = |vmi: &Value| {
        let state = &vmi["status"]["migrationState"];
        state["completed"] == true && state["failed"] != true && has_one_pod(vmi)
    };
    wait_vmi(test, "in its new pod", has_moved).await;
}

fn has_one_pod(vmi: &Value) -> bool {
    let active = vmi["status"]["activePods"].as_object();
    active.is_some_and(|active| active.len() == 1)
}

/// The memory of the guest takes longer than the cancellation: a policy lets a MiB of it pass in a second.
async fn calls_that_cancel(desk: &mut Desk<'_>) {
    let test = desk.test;
    let policy = format!("{}-tiny", test.namespace);
    test.apply_object(&serde_json::json!({
        "apiVersion": "migrations.kubevirt.io/v1alpha1", "kind": "MigrationPolicy",
        "metadata": {"name": policy},
        "spec": {
            "bandwidthPerMigration": "1Mi",
            "completionTimeoutPerGiB": 100_000,
            "selectors": {
                "namespaceSelector": {"kubernetes.io/metadata.name": test.namespace},
                "virtualMachineInstanceSelector": {"kubevirt.io/vm": "tiny"},
            },
        },
    }))
    .await;
    desk.call_all(&[
        "migrate tiny",
        "migrate-cancel tiny --dry-run",
        "migrate-cancel tiny",
    ])
    .await;
    let is_over = async {
        let list = ["get", "virtualmachineinstancemigrations", "--output=name"];
        while !test.kubectl(&list).await.success().trim().is_empty() {
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    };
    let is_over = tokio::time::timeout(Duration::from_mins(5), is_over).await;
    is_over.expect("the migration is cancelled");
    wait_vmi(test, "in its own pod", has_one_pod).await;
    let delete = ["delete", "migrationpolicy", &policy];
    test.kubectl(&delete).await.success();
}

async fn calls_about_volumes(desk: &mut Desk<'_>) {
    let test = desk.test;
    desk.call_all(&[
        "image-upload dv disk --image-path FILES/none.img --size 24Mi",
        "image-upload dv disk --image-path FILES/disk.img --size 24Mi --force-bind",
        "image-upload dv disk --image-path FILES/disk.img --no-create",
        "addvolume tiny --volume-name disk --bus virtio",
    ])
    .await;
    let volume = |vmi: &Value| {
        let all = vmi["status"]["volumeStatus"].as_array().cloned();
        let mut all = all.unwrap_or_default().into_iter();
        all.find(|one| one["name"] == "disk")
    };
    let is_ready = |vmi: &Value| volume(vmi).is_some_and(|one| one["phase"] == "Ready");
    wait_vmi(test, "using the disk", is_ready).await;
    desk.call_all(&[
        "addvolume tiny --volume-name disk --bus virtio",
        "removevolume tiny --volume-name disk",
    ])
    .await;
    wait_vmi(test, "without the disk", |vmi| volume(vmi).is_none()).await;

    desk.call_all(&[
        "vmexport create copy --pvc disk",
        "vmexport create copy --pvc disk",
        "vmexport download copy --format raw --output FILES/copy.img",
        "vmexport delete copy",
        "vmexport download copy --output FILES/copy.gz",
    ])
    .await;
    let copy = std::fs::read(desk.path("copy.img")).expect("read the copy");
    let head = copy.get(..DISK).expect("all of the disk");
    assert!(head.iter().all(|byte| *byte == 7), "the copy differs");
}

async fn calls_that_dump(desk: &mut Desk<'_>) {
    desk.call_all(&[
        "memory-dump get tiny --claim-name dump --create-claim",
        "memory-dump download tiny --output FILES/tiny.dump.gz",
        "memory-dump remove tiny",
    ])
    .await;
    let is_released = |vm: &Value| vm["status"]["memoryDumpRequest"].is_null();
    wait_for(&desk.test.vms(), "tiny", "without a dump", is_released).await;
}

async fn calls_that_suspend(desk: &mut Desk<'_>) {
    let test = desk.test;
    let reason = |vm: &Value| condition(vm, "Suspended")["reason"].clone();
    // The claim of the dump leaves the pod.
    let is_alone = |vmi: &Value| {
        let volumes = vmi["status"]["volumeStatus"].as_array();
        let mut all = volumes.into_iter().flatten();
        !all.any(|one| one["name"] == "dump" || one["name"] == "disk")
    };
    wait_vmi(test, "without volumes", is_alone).await;
    desk.call_all(&["suspend tiny"]).await;
    let is_suspended = |vm: &Value| reason(vm) == "Suspended";
    wait_for(&test.vms(), "tiny", "suspended", is_suspended).await;
    test.wait_gone(&test.vmis(), "tiny").await;
    test.wait_vm_status("tiny", "Stopped").await;
    desk.call_all(&["suspend tiny", "why tiny", "resume tiny"])
        .await;
    let goes_on = |vm: &Value| reason(vm).is_null();
    wait_for(&test.vms(), "tiny", "going on", goes_on).await;
    test.wait_vm_status("tiny", "Running").await;
}

async fn calls_that_end(desk: &mut Desk<'_>) {
    let test = desk.test;
    let before = test.wait_vmi_phase("tiny", "Running").await;
    desk.call_all(&[
        "reset tiny",
        "restart tiny --grace-period 0",
        "restart tiny --grace-period 0 --force",
    ])
    .await;
    test.wait_new_vmi("tiny", &before).await;
    test.wait_vm_status("tiny", "Running").await;
    desk.call_all(&[
        "soft-reboot tiny",
        "stop tiny --force",
        "stop tiny --grace-period 0 --force",
    ])
    .await;
    test.wait_gone(&test.vmis(), "tiny").await;
}
