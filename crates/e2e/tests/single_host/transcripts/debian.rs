//! Commands of `virtctl` that need SSH or the guest agent, and what they print about the Debian guest.

use e2e::{Host, Transcripts};
use serde_json::json;
use tokio::net::TcpStream;

use crate::debian::Desk;

const TEMPLATE: &str = concat!(
    env!("CARGO_MANIFEST_DIR"),
    "/../../examples/template-web.yaml"
);
/// Of another computer.
const WRONG_KEY: &str =
    "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA";

/// Calls the commands. The guest's first user may log in with the key `first`; the user ann has credentials in Secrets.
pub(crate) async fn checks_transcripts(desk: &Desk) {
    let mut shell = Transcripts::of(&desk.test);
    let directory = desk.path("").display().to_string();
    shell.replace(directory.trim_end_matches('/'), "FILES");
    calls_of_the_agent(&mut shell).await;
    calls_by_ssh(desk, &mut shell).await;
    calls_about_credentials(&mut shell).await;
    calls_about_templates(desk, &mut shell).await;
    shell.call("objectgraph debian --exclude-optional").await;
    shell.call("objectgraph none").await;
    let redirection = "usbredir --no-launch debian";
    shell.interrupt_after(redirection, b"", "\n").await;
    shell.call("usbredir --no-launch none").await;
    shell.call("usbredir 951:1666 debian").await;
    shell.check();
}

async fn calls_of_the_agent(shell: &mut Transcripts<'_, Host>) {
    // The rest of the reports depends on the image.
    shell.call_for("guestosinfo debian", "hostname").await;
    shell.call_for("guestosinfo debian -o yaml", "id: ").await;
    shell.call_for("fslist debian", "mountPoint").await;
    shell.call_for("userlist debian", "items").await;
    for command in ["guestosinfo", "fslist", "userlist"] {
        shell.call(&format!("{command} none")).await;
    }
}

/// The flags of the SSH client for one of the files of known hosts; nothing of this computer's user is used.
fn client(desk: &Desk, hosts: &str, checking: &str) -> Vec<String> {
    vec![
        format!("--identity-file={}", desk.path("first").display()),
        format!("--known-hosts={}", desk.path(hosts).display()),
        "--local-ssh-opts=-F none".to_owned(),
        format!("--local-ssh-opts=-o StrictHostKeyChecking={checking}"),
        "--local-ssh-opts=-o BatchMode=yes".to_owned(),
        "--local-ssh-opts=-o IdentitiesOnly=yes".to_owned(),
    ]
}

/// There is one client, that of this computer; `--local-ssh` is a flag of older versions that changes nothing.
async fn calls_by_ssh(desk: &Desk, shell: &mut Transcripts<'_, Host>) {
    let known = client(desk, "hosts", "accept-new");
    let known: Vec<&str> = known.iter().map(String::as_str).collect();
    let strict = client(desk, "hosts", "yes");
    let strict: Vec<&str> = strict.iter().map(String::as_str).collect();
    let target = "debian@vm/debian";
    let ssh = ["ssh", target, "--command", "id -un"];
    // The guest's key is learnt, and is the known one from then on.
    shell.call_words(&[&ssh[..], &known].concat()).await;
    shell.call_words(&[&ssh[..], &strict].concat()).await;
    let local = ["--local-ssh=true"];
    shell
        .call_words(&[&ssh[..], &local, &strict].concat())
        .await;
    let fails = ["ssh", target, "--command", "exit 3"];
    shell.call_words(&[&fails[..], &strict].concat()).await;
    let hosts = std::fs::read_to_string(desk.path("hosts")).expect("read the known hosts");
    let name = format!("vm.debian.{} ", desk.test.namespace);
    assert!(hosts.starts_with(&name), "{hosts}");

    // A host that is not known, and one with another key than the known one: the first lines of the client are its own.
    std::fs::write(desk.path("wrong"), format!("{name}{WRONG_KEY}\n")).expect("write a key");
    for (hosts, problem) in [
        ("empty", "Host key verification failed"),
        ("wrong", "REMOTE HOST IDENTIFICATION HAS CHANGED"),
    ] {
        let flags = client(desk, hosts, "yes");
        let flags: Vec<&str> = flags.iter().map(String::as_str).collect();
        let words = [&ssh[..], &flags].concat();
        let refused = desk.test.virtctl(&words).await;
        assert_eq!(refused.code, Some(255), "{refused:?}");
        assert!(refused.stderr.contains(problem), "{hosts}: {refused:?}");
    }

    std::fs::write(desk.path("sent"), "a line of text\n").expect("write a file");
    let deep = desk.path("tree").join("deep");
    std::fs::create_dir_all(&deep).expect("make directories");
    std::fs::write(deep.join("file"), "deep inside\n").expect("write a file");
    let (tree, copy) = (desk.path("tree"), desk.path("copy"));
    let (tree, copy) = (tree.display().to_string(), copy.display().to_string());
    let (sent, back) = (desk.path("sent"), desk.path("received"));
    let (sent, back) = (sent.display().to_string(), back.display().to_string());
    let remote = "debian@vm/debian:/tmp/transcript";
    for (from, to, more) in [
        (sent.as_str(), remote, "--preserve"),
        (remote, back.as_str(), "--local-ssh=true"),
        (tree.as_str(), "debian@vm/debian:/tmp/tree", "--recursive"),
        ("debian@vm/debian:/tmp/tree", copy.as_str(), "-r"),
    ] {
        let words = ["scp", from, to, more];
        shell.call_words(&[&words[..], &strict].concat()).await;
    }
    let received = std::fs::read_to_string(desk.path("received")).expect("read the copy");
    assert_eq!(received, "a line of text\n");
    let copied = desk.path("copy").join("deep").join("file");
    let copied = std::fs::read_to_string(copied).expect("read the copy of the directory");
    assert_eq!(copied, "deep inside\n");
    shell.call("scp a b").await;
    // What these print depends on the version of the client. The file of the first copy stays.
    let absent = ["scp", "debian@vm/debian:/tmp/none", back.as_str()];
    let none = ["ssh", "debian@vm/none", "--command", "id"];
    for (words, problem) in [(&absent[..], "No such file"), (&none[..], "not found")] {
        let failure = desk
            .test
            .virtctl(&[words, &strict].concat())
            .await
            .failure();
        assert!(failure.contains(problem), "{words:?}: {failure}");
    }
    let kept = std::fs::read_to_string(desk.path("received")).expect("read the copy");
    assert_eq!(kept, "a line of text\n");

    // The way that the client goes, without it.
    let mut forward = desk
        .test
        .virtctl_terminal(&["port-forward", "vm/debian", "0:22"]);
    let output = forward.expect(" -> 22").await;
    let address = output.trim_start_matches("Forwarding from ");
    let address = address.trim_end_matches(" -> 22");
    let mut local = TcpStream::connect(address).await.expect("connect locally");
    let mut greeting = [0; 4];
    tokio::io::AsyncReadExt::read_exact(&mut local, &mut greeting)
        .await
        .expect("read the greeting");
    assert_eq!(&greeting, b"SSH-");
}

async fn calls_about_credentials(shell: &mut Transcripts<'_, Host>) {
    for line in [
        "credentials set-password debian --user ann --password secret",
        "credentials set-password debian --user ann --password secret --force",
        "credentials set-password none --user ann --password secret",
        "credentials add-ssh-key debian --user ann --value key-of-a-test",
        "credentials add-ssh-key debian --user ann --value key-of-a-test --force",
        "credentials add-ssh-key debian --user ann --value key-of-a-test --force",
        "credentials add-ssh-key debian --user nobody --value key-of-a-test",
        "credentials remove-ssh-key debian --user ann --value key-of-a-test --force",
        "credentials remove-ssh-key debian --user ann --value key-of-a-test --force",
    ] {
        shell.call(line).await;
    }
}

/// Templates are objects of the cluster that need no guest; their feature gate is on for this host.
async fn calls_about_templates(desk: &Desk, shell: &mut Transcripts<'_, Host>) {
    let apply = ["apply", "--filename", TEMPLATE];
    desk.test.kubectl(&apply).await.success();
    desk.test
        .apply_object(&json!({
            "apiVersion": "kubevirt.io/v1", "kind": "VirtualMachine", "metadata": {"name": "off"},
            "spec": {"runStrategy": "Halted", "template": {"spec": {"domain": {
                "memory": {"guest": "64Mi"}, "devices": {},
            }}}},
        }))
        .await;
    for line in [
        "template process web --print-params",
        "template process web -p NAME=shop,CORES=2",
        "template process web -p NAME=shop,CORES=2 --create",
        "template process web -p NAME=shop,CORES=many --create",
        "template process none",
        "template create --vm-name off --name golden",
        "template convert none",
    ] {
        shell.call(line).await;
    }
}
