//! An unsuitable host is refused with one message and a remedy.

use e2e::{Host, leftovers, program, run};
use tokio::process::Command;

use crate::test_namespace;

#[tokio::test]
async fn second_up_reports_running_host_and_status_agrees() {
    let test = test_namespace().await;
    let output = test.environment.start(&[]).await.success();
    assert!(output.contains("already up"), "{output}");
    assert!(output.contains("Guests run by "), "{output}");
    let output = test
        .environment
        .ferrovirt("status", &[], b"")
        .await
        .success();
    assert!(output.contains("Ferrovirt is up"), "{output}");
    assert!(output.contains("guests run by "), "{output}");
    let json = test
        .environment
        .ferrovirt("status", &["--output=json"], b"")
        .await
        .success();
    let json: serde_json::Value = serde_json::from_str(&json).expect("read the status");
    assert_eq!(json["up"], true);
    assert_eq!(json["process"], test.environment.process());
    let way = &json["guestsRunBy"]["way"];
    assert!(way == "kvm" || way == "emulation", "{json}");
}

#[tokio::test]
async fn reset_asks_for_confirmation() {
    let test = test_namespace().await;
    let failure = test
        .environment
        .ferrovirt("reset", &[], b"no\n")
        .await
        .failure();
    assert!(failure.contains("nothing was changed"), "{failure}");
    let output = test
        .environment
        .ferrovirt("status", &[], b"")
        .await
        .success();
    assert!(output.contains("Ferrovirt is up"), "{output}");
}

#[tokio::test]
async fn port_in_use_is_reported() {
    let host = Host::new();
    let listener = std::net::TcpListener::bind(("127.0.0.1", host.port())).expect("take the port");
    let failure = host.start(&[]).await.failure();
    assert!(
        failure.contains("another program listens there"),
        "{failure}"
    );
    drop(listener);
}

#[tokio::test]
async fn wrong_launcher_image_is_refused_by_its_name() {
    let mut host = Host::new();
    let away = "127.0.0.1:1/virt-launcher:1";
    let flags = ["--launcher-image", away];
    let failure = host.start_on_free_network(&flags).await.failure();
    for part in [away, "--launcher-image to another image"] {
        assert!(failure.contains(part), "{failure}");
    }
}

#[tokio::test]
async fn up_without_root_is_refused() {
    let host = Host::new();
    // Built programs may be in a directory only root can read.
    let copy = host.base().join("ferrovirt");
    std::fs::copy(program("ferrovirt"), &copy).expect("copy the program");
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(host.base(), open).expect("restrict the directory");
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    command.arg(&copy).args(host.up_arguments(&[]));
    let failure = run(&mut command, b"").await.failure();
    assert!(failure.contains("needs root"), "{failure}");
    assert_eq!(failure.lines().count(), 1, "{failure}");
    assert_eq!(leftovers(&host.state_dir()), [""; 0]);
}

#[tokio::test]
async fn full_disk_is_reported() {
    let host = Host::new();
    let disk = host.base().join("full");
    std::fs::create_dir(&disk).expect("make a directory");
    let mut mount = Command::new("mount");
    mount
        .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
        .arg(&disk);
    run(&mut mount, b"").await.success();
    let state = format!("--state-dir={}", disk.join("state").display());
    let images = format!("--images={}", e2e::images().display());
    let mut command = Command::new(program("ferrovirt"));
    let outcome = run(command.args(["up", "--detach", &state, &images]), b"").await;
    run(Command::new("umount").arg(&disk), b"").await.success();
    let failure = outcome.failure();
    assert!(failure.contains("MiB left"), "{failure}");
    assert_eq!(failure.lines().count(), 1, "{failure}");
}

#[tokio::test]
async fn kernel_without_overlay_is_reported() {
    let host = Host::new();
    // Hide one line of /proc/filesystems from this command.
    let script = "grep -v overlay /proc/filesystems >\"$0\" && \
                  mount --bind \"$0\" /proc/filesystems && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", script]);
    command.arg(host.base().join("filesystems"));
    command.arg(program("ferrovirt"));
    let failure = run(command.args(host.up_arguments(&[])), b"")
        .await
        .failure();
    assert!(failure.contains("modprobe overlay"), "{failure}");
    assert_eq!(failure.lines().count(), 1, "{failure}");
    assert_eq!(leftovers(&host.state_dir()), [""; 0]);
}
