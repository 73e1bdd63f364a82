//! What is wrong about a host is refused in one sentence that says what to do.

use stories::{Host, program, run, traces};
use tokio::process::Command;

use crate::story;

#[tokio::test]
async fn a_second_up_says_that_it_is_up_and_status_agrees() {
    let story = story().await;
    let said = story.home.start(&[]).await.good();
    assert!(said.contains("up already"), "{said}");
    assert!(said.contains("Guests run by "), "{said}");
    let said = story.home.ferrovirt("status", &[], b"").await.good();
    assert!(said.contains("Ferrovirt is up"), "{said}");
    assert!(said.contains("guests run by "), "{said}");
    let json = story
        .home
        .ferrovirt("status", &["--output=json"], b"")
        .await
        .good();
    let json: serde_json::Value = serde_json::from_str(&json).expect("read the status");
    assert_eq!(json["up"], true);
    assert_eq!(json["process"], story.home.process());
    let way = &json["guestsRunBy"]["way"];
    assert!(way == "kvm" || way == "emulation", "{json}");
}

#[tokio::test]
async fn reset_asks_first() {
    let story = story().await;
    let complaint = story
        .home
        .ferrovirt("reset", &[], b"no\n")
        .await
        .complaint();
    assert!(complaint.contains("nothing was changed"), "{complaint}");
    let said = story.home.ferrovirt("status", &[], b"").await.good();
    assert!(said.contains("Ferrovirt is up"), "{said}");
}

#[tokio::test]
async fn a_port_in_use_is_named() {
    let host = Host::new();
    let listener = std::net::TcpListener::bind(("127.0.0.1", host.port())).expect("take the port");
    let complaint = host.start(&[]).await.complaint();
    assert!(
        complaint.contains("another program listens there"),
        "{complaint}"
    );
    drop(listener);
}

#[tokio::test]
async fn without_root_it_says_so_and_does_nothing() {
    let host = Host::new();
    // Built programs may lie where only root can look.
    let copy = host.base().join("ferrovirt");
    std::fs::copy(program("ferrovirt"), &copy).expect("copy the program");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(host.base(), open).expect("let nobody in");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&copy).args(host.up_arguments(&[]));
    let complaint = run(&mut command, b"").await.complaint();
    assert!(complaint.contains("needs root"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert_eq!(traces(&host.state_dir()), [""; 0]);
}

#[tokio::test]
async fn a_full_disk_is_named() {
    let host = Host::new();
    let disk = host.base().join("full");
    std::fs::create_dir(&disk).expect("make a directory");
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&disk);
    run(&mut mount, b"").await.good();
    let state = format!("--state-dir={}", disk.join("state").display());
    let images = format!("--images={}", stories::images().display());
    let mut command = Command::new(program("ferrovirt"));
    let outcome = run(command.args(["up", "--detach", &state, &images]), b"").await;
    run(Command::new("umount").arg(&disk), b"").await.good();
    let complaint = outcome.complaint();
    assert!(complaint.contains("MiB left"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
}

#[tokio::test]
async fn a_kernel_without_overlay_is_named() {
    let host = Host::new();
    // What the kernel says of itself, less one line, for this one command.
    let script = "grep -v overlay /proc/filesystems >\"$0\" && \
                  mount --bind \"$0\" /proc/filesystems && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.arg(host.base().join("filesystems"));
    command.arg(program("ferrovirt"));
    let complaint = run(command.args(host.up_arguments(&[])), b"")
        .await
        .complaint();
    assert!(complaint.contains("modprobe overlay"), "{complaint}");
    assert_eq!(complaint.lines().count(), 1, "{complaint}");
    assert_eq!(traces(&host.state_dir()), [""; 0]);
}
