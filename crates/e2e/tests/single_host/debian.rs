//! A Debian guest, as users have it: SSH, cloud-init, the guest agent, credentials, shared directories, metrics, vsock

mod vsock;

use std::{
    fs, net::Ipv6Addr, os::unix::fs::PermissionsExt as _, path::PathBuf, sync::Arc, time::Duration,
};

use e2e::{DEADLINE, FeatureGates, Host, Outcome, claim, images, run, wait_for, wait_for_within};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::{
    io::AsyncReadExt as _,
    net::TcpStream,
    process::Command,
    time::{Instant, timeout},
};

use crate::{TestNamespace, memory_dump::files_of, transcripts::debian::checks_transcripts};

/// Guests of other tests boot at the same time.
const BOOT: Duration = Duration::from_mins(8);
const GATES: [&str; 6] = [
    "EnableVirtioFsStorageVolumes",
    "DownwardMetrics",
    "Template",
    "ObjectGraph",
    "VSOCK",
    "ExperimentalIgnitionSupport",
];
/// Nothing in this guest follows it; it is there to be read.
const IGNITION: &str = r#"{"ignition": {"version": "3.4.0"}}"#;
const EXAMPLE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples/vm-debian.yaml");

/// The test's namespace, and files on this computer.
pub(crate) struct Desk {
    pub(crate) test: TestNamespace,
    files: TempDir,
}

impl Desk {
    async fn new() -> Self {
        assert!(
            images().join("guest-debian.oci").exists(),
            "the Debian guest is not built: run `cargo xtask guest debian`"
        );
        Self {
            test: TestNamespace::on(Arc::new(Host::new().with_ipv6().bring_up().await)).await,
            files: tempfile::tempdir().expect("make a directory"),
        }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.files.path().join(name)
    }

    /// Makes a key pair and returns its public part.
    async fn key(&self, name: &str) -> String {
        let file = self.path(name);
        let mut keygen = Command::new("ssh-keygen");
        keygen.args(["-q", "-t", "ed25519", "-N", "", "-C", name, "-f"]);
        run(keygen.arg(&file), b"").await.success();
        fs::read_to_string(file.with_extension("pub")).expect("read the public key")
    }

    async fn secret(&self, name: &str, data: Value) {
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": data,
        });
        self.test.apply_object(&secret).await;
    }

    /// `virtctl` with the flags of its SSH clients.
    async fn client(&self, key: &str, arguments: &[&str]) -> Outcome {
        let (key, hosts) = (self.path(key), self.path("known_hosts"));
        let flags = [
            format!("--identity-file={}", key.display()),
            format!("--known-hosts={}", hosts.display()),
            // The first call learns the host's key; the others check it. Nothing of this computer's user is used.
            "--local-ssh-opts=-F none".to_owned(),
            "--local-ssh-opts=-o StrictHostKeyChecking=accept-new".to_owned(),
            "--local-ssh-opts=-o BatchMode=yes".to_owned(),
            "--local-ssh-opts=-o IdentitiesOnly=yes".to_owned(),
        ];
        let flags = flags.iter().map(String::as_str);
        let all: Vec<&str> = arguments.iter().copied().chain(flags).collect();
        self.test.virtctl(&all).await
    }

    async fn ssh(&self, user: &str, key: &str, command: &str) -> Outcome {
        let target = format!("{user}@vm/debian");
        self.client(key, &["ssh", &target, "--command", command])
            .await
    }

    /// Runs a command as the user with all rights.
    pub(crate) async fn shell(&self, command: &str) -> String {
        self.ssh("debian", "first", command)
            .await
            .success()
            .trim()
            .to_owned()
    }

    pub(crate) async fn copy(&self, from: &str, to: &str) {
        self.client("first", &["scp", from, to]).await.success();
    }

    /// A report of `virtctl`.
    async fn report(&self, command: &str) -> Value {
        let text = self.test.virtctl(&[command, "debian"]).await.success();
        serde_json::from_str(&text).unwrap_or_else(|err| panic!("{command}: {err} in {text}"))
    }
}

/// The VM of the example with credentials, shared directories, metrics and an Ignition configuration added.
async fn vm(test: &TestNamespace, has_vsock: bool) -> Value {
    let read = [
        "create",
        "--dry-run=client",
        "--output=json",
        "--filename",
        EXAMPLE,
    ];
    let text = test.kubectl(&read).await.success();
    let mut vm: Value = serde_json::from_str(&text).expect("the example is an object");
    let template = &mut vm["spec"]["template"];
    template["metadata"]["annotations"] = json!({"kubevirt.io/ignitiondata": IGNITION});
    let spec = &mut template["spec"];
    let source = |name: &str| json!({"secret": {"secretName": name}});
    let agent = |agent: Value| json!({"qemuGuestAgent": agent});
    for (list, more) in [
        (
            "/accessCredentials",
            vec![
                json!({"sshPublicKey": {
                    "source": source("ann-keys"), "propagationMethod": agent(json!({"users": ["ann"]})),
                }}),
                json!({"userPassword": {
                    "source": source("passwords"), "propagationMethod": agent(json!({})),
                }}),
            ],
        ),
        (
            "/volumes",
            vec![
                json!({"name": "settings", "configMap": {"name": "settings"}}),
                json!({"name": "files", "persistentVolumeClaim": {"claimName": "files"}}),
                json!({"name": "metrics", "downwardMetrics": {}}),
            ],
        ),
        (
            "/domain/devices/disks",
            vec![json!({"name": "metrics", "disk": {"bus": "virtio"}})],
        ),
    ] {
        let list = spec.pointer_mut(list).and_then(Value::as_array_mut);
        list.expect("the example has the list").extend(more);
    }
    let devices = &mut spec["domain"]["devices"];
    devices["downwardMetrics"] = json!({});
    devices["clientPassthrough"] = json!({});
    if has_vsock {
        devices["autoattachVSOCK"] = json!(true);
    }
    devices["filesystems"] = json!([
        {"name": "settings", "virtiofs": {}}, {"name": "files", "virtiofs": {}},
    ]);
    vm
}

/// Starts the VM. The webhook observes the gates with a delay.
async fn start(test: &TestNamespace, has_vsock: bool) {
    let vm = vm(test, has_vsock).await.to_string();
    let until = Instant::now() + DEADLINE;
    loop {
        let apply = ["apply", "--filename=-"];
        let tried = test.kubectl_with(&apply, vm.as_bytes()).await;
        if tried.is_success {
            return;
        }
        let failure = tried.failure();
        let is_early = GATES.iter().any(|gate| failure.contains(gate));
        assert!(is_early && Instant::now() < until, "{failure}");
    }
}

fn holds(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array();
    let mut all = conditions.into_iter().flatten();
    all.any(|one| one["type"] == kind && one["status"] == "True")
}

#[tokio::test]
async fn debian_guest_has_all_that_users_log_in_for() {
    let desk = Desk::new().await;
    let test = &desk.test;
    let gates = FeatureGates::switch(test.environment.as_ref(), &GATES, &[]).await;
    let first = desk.key("first").await;
    let old = desk.key("old").await;
    desk.secret("debian-keys", json!({"key": first})).await;
    desk.secret("ann-keys", json!({"laptop": old})).await;
    desk.secret("passwords", json!({"ann": "before"})).await;
    let literal = "--from-literal=app.conf=colour=blue";
    let map = ["create", "configmap", "settings", literal];
    test.kubectl(&map).await.success();
    test.apply_object(&claim("files", "Filesystem")).await;
    let began = Instant::now();
    let has_vsock = vsock::is_on_host();
    start(test, has_vsock).await;
    let connected = |vmi: &Value| holds(vmi, "AgentConnected");
    wait_for_within(BOOT, &test.vmis(), "debian", "agent connected", connected).await;
    println!("agent connected after {:?}", began.elapsed());
    // The probe that runs a command in the guest: cloud-init has finished.
    let ready = |vmi: &Value| holds(vmi, "Ready");
    wait_for_within(BOOT, &test.vmis(), "debian", "ready", ready).await;
    println!("ready after {:?}", began.elapsed());

    checks_ssh(&desk).await;
    checks_ipv6(&desk).await;
    checks_agent(&desk).await;
    checks_shared_directories(&desk).await;
    checks_metrics(&desk).await;
    checks_ignition(&desk).await;
    if has_vsock {
        vsock::checks_vsock(&desk).await;
    }
    checks_probes(&desk).await;
    checks_credentials(&desk).await;
    Box::pin(checks_transcripts(&desk)).await;
    println!("done after {:?}", began.elapsed());
    drop(gates);
}

/// Commands and files by SSH, and what cloud-init has made of the seed.
async fn checks_ssh(desk: &Desk) {
    let seen = desk
        .shell("hostname; sudo id -un; cloud-init status; getent passwd ann")
        .await;
    let lines: Vec<&str> = seen.lines().collect();
    assert_eq!(lines[..3], ["debian", "root", "status: done"], "{seen}");
    assert!(lines[3].ends_with("/home/ann:/bin/bash"), "{seen}");
    // The exit code is that of the command.
    let failed = desk.ssh("debian", "first", "exit 3").await;
    assert!(!failed.is_success, "{failed:?}");

    let sent: Vec<u8> = (0..200_000_u32).flat_map(u32::to_le_bytes).collect();
    let (there, back) = (desk.path("there"), desk.path("back"));
    fs::write(&there, &sent).expect("write a file");
    let remote = "debian@vm/debian:/tmp/file";
    desk.copy(&there.to_string_lossy(), remote).await;
    desk.copy(remote, &back.to_string_lossy()).await;
    assert!(fs::read(&back).expect("read the copy") == sent);
}

/// The guest has an address of IPv6 and a route, and is reached from outside by that of its pod.
async fn checks_ipv6(desk: &Desk) {
    let vmi = desk.test.wait_vmi_phase("debian", "Running").await;
    let addresses = vmi["status"]["interfaces"][0]["ipAddresses"].as_array();
    let mut all = addresses.into_iter().flatten().filter_map(Value::as_str);
    let own = all.find_map(|address| address.parse::<Ipv6Addr>().ok());
    let own = own.unwrap_or_else(|| panic!("no IPv6 address in {addresses:?}"));
    let routes = desk.shell("ip -6 route show default").await;
    assert!(routes.contains(" via fe80::1 "), "{routes}");
    let mut stream = TcpStream::connect((own, 22))
        .await
        .expect("reach the guest's SSH server");
    let mut greeting = [0; 4];
    let read = timeout(DEADLINE, stream.read_exact(&mut greeting)).await;
    read.expect("a greeting in time").expect("read a greeting");
    assert_eq!(&greeting, b"SSH-");
}

/// Reports of the guest agent.
async fn checks_agent(desk: &Desk) {
    let vmis = desk.test.vmis();
    let is_reported = |vmi: &Value| {
        let (os, interface) = (
            &vmi["status"]["guestOSInfo"],
            &vmi["status"]["interfaces"][0],
        );
        os["id"] == "debian"
            && os["versionId"] == "13"
            && interface["infoSource"]
                .as_str()
                .is_some_and(|source| source.contains("guest-agent"))
    };
    wait_for(&vmis, "debian", "reported by its agent", is_reported).await;
    let info = desk.report("guestosinfo").await;
    assert_eq!(info["hostname"], "debian", "{info:#}");
    assert_eq!(info["os"]["id"], "debian", "{info:#}");
    assert!(info["guestAgentVersion"].is_string(), "{info:#}");
    let list = desk.report("fslist").await;
    let all = list["items"].as_array().expect("a list of file systems");
    let root = all.iter().find(|one| one["mountPoint"] == "/");
    let root = root.unwrap_or_else(|| panic!("no root in {list:#}"));
    assert_eq!(root["fileSystemType"], "ext4", "{list:#}");
    assert_eq!(root["disk"][0]["busType"], "virtio", "{list:#}");
    // Debian 13 has no record of its logged-in users that the agent knows.
    let users = desk.report("userlist").await;
    assert_eq!(users["items"], json!([]), "{users:#}");
}

/// A config map that is read, and a claim on which the guest and this host see each other's files.
async fn checks_shared_directories(desk: &Desk) {
    let files = files_of(&desk.test, "files").await;
    let from_host = files.join("from-host");
    fs::write(&from_host, "hello guest\n").expect("write to the claim");
    let readable = fs::Permissions::from_mode(0o644);
    fs::set_permissions(&from_host, readable).expect("let the server read it");
    let seen = desk
        .shell(
            "sudo mkdir /mnt/settings /mnt/files && \
             sudo mount -t virtiofs settings /mnt/settings && \
             sudo mount -t virtiofs files /mnt/files && \
             cat /mnt/settings/app.conf && echo && cat /mnt/files/from-host && \
             echo hello host | sudo tee /mnt/files/from-guest && sync",
        )
        .await;
    assert_eq!(seen, "colour=blue\nhello guest\nhello host");
    let written = fs::read_to_string(files.join("from-guest")).expect("the guest's file");
    assert_eq!(written, "hello host\n");
}

/// Metrics of the node, from the port and from the disk.
async fn checks_metrics(desk: &Desk) {
    let asked = desk
        .shell(
            "sudo sh -c 'exec 3<>/dev/virtio-ports/org.github.vhostmd.1; \
             printf \"GET /metrics/XML\\n\\n\" >&3; \
             while read -r line; do echo \"$line\"; [ \"$line\" = \"</metrics>\" ] && break; done <&3'",
        )
        .await;
    let on_disk = desk
        .shell(
            "sudo sh -c 'for disk in /dev/vd?; do \
             [ \"$(head -c 4 $disk | tr -d \"\\0\")\" = mvbd ] && tr -d \"\\0\" <$disk; done; true'",
        )
        .await;
    for page in [asked, on_disk] {
        assert!(page.contains("<name>HostName</name>"), "{page}");
        assert!(page.contains("<name>TotalCPUTime</name>"), "{page}");
    }
}

/// The Ignition configuration, where its program looks for it in the guest.
async fn checks_ignition(desk: &Desk) {
    let file = "/sys/firmware/qemu_fw_cfg/by_name/opt/com.coreos/config/raw";
    let read = format!("sudo modprobe qemu_fw_cfg && sudo cat {file}");
    assert_eq!(desk.shell(&read).await, IGNITION);
}

/// The probes of the pod, asked by hand: an agent that answers, and a command that succeeds or fails.
async fn checks_probes(desk: &Desk) {
    let test = &desk.test;
    let pods = test.pod_list().await;
    let domain = format!("{}_debian", test.namespace);
    for (question, expected) in [
        (&["--guestAgentPing"][..], true),
        (&["--command", "test", "--", "-d", "/"], true),
        (&["--command", "test", "--", "-f", "/"], false),
    ] {
        let probe = [
            "exec",
            &pods[0].0,
            "--container=compute",
            "--",
            "virt-probe",
        ];
        let which = ["--domainName", &domain, "--timeoutSeconds", "10"];
        let all = [&probe[..], &which, question].concat();
        // A busy host may make the agent answer too late.
        let began = Instant::now();
        loop {
            let outcome = test.kubectl(&all).await;
            if outcome.is_success == expected {
                break;
            }
            assert!(began.elapsed() < DEADLINE, "{question:?}: {outcome:?}");
        }
    }
    // The same by the VM's own probe: it follows a file that the guest removes.
    desk.shell("sudo mv /run/cloud-init/result.json /run/kept")
        .await;
    let unready = |vmi: &Value| !holds(vmi, "Ready");
    wait_for(&test.vmis(), "debian", "not ready", unready).await;
    desk.shell("sudo mv /run/kept /run/cloud-init/result.json")
        .await;
    let ready = |vmi: &Value| holds(vmi, "Ready");
    wait_for(&test.vmis(), "debian", "ready again", ready).await;
}

/// A key and a password that the agent sets, and both again after their secrets have changed.
async fn checks_credentials(desk: &Desk) {
    let test = &desk.test;
    let set = |vmi: &Value| holds(vmi, "AccessCredentialsSynchronized");
    wait_for(&test.vmis(), "debian", "credentials set", set).await;
    let seen = desk.ssh("ann", "old", "id -un").await.success();
    assert_eq!(seen.trim(), "ann");
    let password = desk.shell("sudo grep ^ann: /etc/shadow").await;
    let new = desk.key("new").await;
    // The password first: the key shows then that both have arrived.
    desk.secret("passwords", json!({"ann": "after"})).await;
    desk.secret("ann-keys", json!({"laptop": new})).await;
    // A changed label makes the node look at the pod's secrets now.
    let pods = test.pod_list().await;
    let label = ["label", "pod", &pods[0].0, "look=again"];
    test.kubectl(&label).await.success();
    desk.shell(&format!(
        "until sudo grep -q ' new$' /home/ann/.ssh/authorized_keys && \
         [ \"$(sudo grep ^ann: /etc/shadow)\" != '{password}' ]; do sleep 1; done"
    ))
    .await;
    let seen = desk.ssh("ann", "new", "id -un").await.success();
    assert_eq!(seen.trim(), "ann");
    let refused = desk.ssh("ann", "old", "id -un").await.failure();
    assert!(refused.contains("Permission denied"), "{refused}");

    let mut console = test.console("debian").await;
    console.send("\n").await;
    console.expect("login: ").await;
    console.send("ann\n").await;
    console.expect("Password: ").await;
    console.send("after\n").await;
    console.expect("ann@debian").await;
    assert_eq!(console.shell("id -un").await, "ann");
}
