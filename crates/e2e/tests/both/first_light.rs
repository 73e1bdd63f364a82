//! From a manifest to a reachable guest.

use e2e::{Console, tiny_vm};
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::test_namespace;

#[tokio::test]
async fn guest_boots_and_runs_cloud_init() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("hello").user_data("#!/bin/sh\necho hello from a test\n"))
        .await;
    test.wait_vm_status("hello", "Running").await;
    let shown = test.greeting("hello").await;
    assert!(shown.contains("\nhello from a test"), "{shown}");
    assert!(shown.contains("guest hello (address 10.0.2.2)"), "{shown}");
}

#[tokio::test]
async fn guest_has_address_and_reaches_the_network() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("net")).await;
    let mut console = test.shell("net").await;
    let addresses = console.shell("ip -4 addr show eth0").await;
    assert!(addresses.contains("inet 10.0.2.2/24"), "{addresses}");
    let vmi = test.wait_vmi_phase("net", "Running").await;
    let pod = vmi["status"]["interfaces"][0]["ipAddress"]
        .as_str()
        .expect("an address")
        .to_owned();
    let (network, _) = pod.rsplit_once('.').expect("an IPv4 address");
    console.pings(&format!("{network}.1")).await;
}

#[tokio::test]
async fn console_works_for_websocket_client_and_virtctl() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("talk")).await;
    let mut console = test.shell("talk").await;
    assert_eq!(console.shell("echo $((6 * 7))").await, "42");
    drop(console);

    let mut terminal = test.virtctl_terminal(&["console", "talk", "--timeout=1"]);
    terminal.send(b"\n").await;
    terminal.expect("# ").await;
    terminal.send(b"echo $((7 * 8))\n").await;
    terminal.expect("\n56").await;
    // The escape key ends the session in a pipe, too.
    terminal.send(&[0x1d]).await;
    assert!(terminal.end().await.success());
}

#[tokio::test]
async fn vnc_stream_speaks_rfb() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("screen")).await;
    test.wait_vmi_phase("screen", "Running").await;
    let path = test.subresource("virtualmachineinstances", "screen", "vnc");
    let mut screen = Console::open(&test.client, &path)
        .await
        .expect("open the screen");
    screen.expect("RFB 003.008\n").await;
}

#[tokio::test]
async fn kubectl_get_describe_and_wait_work_for_vms() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("shown")).await;
    test.kubectl(&["wait", "vm/shown", "--for=condition=Ready", "--timeout=90s"])
        .await
        .success();
    let table = test.kubectl(&["get", "vm"]).await.success();
    assert!(
        table.contains("Running") && table.contains("True"),
        "{table}"
    );
    let table = test
        .kubectl(&["get", "vmi", "--output=wide"])
        .await
        .success();
    assert!(table.contains("Running"), "{table}");
    let text = test.kubectl(&["describe", "vm/shown"]).await.success();
    assert!(text.contains("Printable Status:"), "{text}");
    let pods = test.pod_list().await;
    test.kubectl(&["logs", &pods[0].0]).await.success();
}

#[tokio::test]
async fn virtctl_vnc_proxies_on_a_local_port() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("viewed")).await;
    test.wait_vmi_phase("viewed", "Running").await;
    let mut proxy = test.virtctl_terminal(&["vnc", "viewed", "--proxy-only"]);
    let output = proxy.expect("}").await;
    let output: serde_json::Value = serde_json::from_str(&output).expect("it prints the port");
    let port = output["port"]
        .as_u64()
        .and_then(|port| u16::try_from(port).ok());
    let port = port.expect("a port is a small number");
    let mut viewer = TcpStream::connect(("127.0.0.1", port))
        .await
        .expect("connect to the proxy");
    let mut banner = [0; 12];
    viewer
        .read_exact(&mut banner)
        .await
        .expect("read the banner");
    assert_eq!(&banner, b"RFB 003.008\n");
}

#[tokio::test]
async fn virtctl_saves_a_screenshot() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("pictured")).await;
    test.wait_vmi_phase("pictured", "Running").await;
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("screen.png");
    let path = file.to_str().expect("a path is text");
    for flags in [&["--file", path][..], &["--file", path, "--move-cursor"]] {
        let arguments = [&["vnc", "screenshot", "pictured"], flags].concat();
        test.virtctl(&arguments).await.success();
        let picture = std::fs::read(&file).expect("read the picture");
        assert!(
            picture.starts_with(b"\x89PNG\r\n"),
            "{:?}",
            picture.get(..8)
        );
        assert!(picture.len() > 500, "{}", picture.len());
    }
}

#[tokio::test]
async fn virtctl_forwards_ports_to_the_guest() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("served")).await;
    let mut console = test.shell("served").await;
    console
        .shell("{ echo from-the-guest | nc -l -p 8080 & }")
        .await;
    // 8080 in hexadecimal digits.
    console
        .shell("until grep -q :1F90 /proc/net/tcp /proc/net/tcp6; do sleep 0.1; done")
        .await;
    let mut forward = test.virtctl_terminal(&["port-forward", "vm/served", "0:8080"]);
    let output = forward.expect(" -> 8080").await;
    let address = output.trim_start_matches("Forwarding from ");
    let address = address.trim_end_matches(" -> 8080");
    let mut local = TcpStream::connect(address).await.expect("connect locally");
    let mut text = String::new();
    local
        .read_to_string(&mut text)
        .await
        .expect("read from the guest");
    assert_eq!(text, "from-the-guest\n");

    // Nothing listens on the port now: an error, and no client hangs.
    let closed = test
        .virtctl(&["port-forward", "--stdio", "vmi/served", "8080"])
        .await;
    let message = closed.failure();
    assert!(message.contains("Connection refused"), "{message}");
}

#[tokio::test]
async fn vmi_boots_from_kernel_image() {
    let test = test_namespace().await;
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/vmi-kernel-boot.yaml"
    );
    test.kubectl(&["apply", "--filename", example])
        .await
        .success();
    test.greeting("kernel-boot").await;
}
