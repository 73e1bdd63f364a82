//! From a manifest to a guest that can be talked to.

use stories::{Console, machine};
use tokio::{io::AsyncReadExt, net::TcpStream};

use crate::story;

#[tokio::test]
async fn a_guest_greets_on_its_console_and_shows_its_cloud_init_line() {
    let story = story().await;
    story
        .apply(&machine("hello").user_data("#!/bin/sh\necho hello from a story\n"))
        .await;
    story.vm_is("hello", "Running").await;
    let shown = story.greeting("hello").await;
    assert!(shown.contains("\nhello from a story"), "{shown}");
    assert!(shown.contains("guest hello (address 10.0.2.2)"), "{shown}");
}

#[tokio::test]
async fn a_guest_has_an_address_and_reaches_beyond_its_pod() {
    let story = story().await;
    story.apply(&machine("net")).await;
    let mut console = story.shell("net").await;
    let addresses = console.shell("ip -4 addr show eth0").await;
    assert!(addresses.contains("inet 10.0.2.2/24"), "{addresses}");
    let vmi = story.vmi_is("net", "Running").await;
    let pod = vmi["status"]["interfaces"][0]["ipAddress"]
        .as_str()
        .expect("an address")
        .to_owned();
    let (network, _) = pod.rsplit_once('.').expect("an IPv4 address");
    let ping = console.shell(&format!("ping -c 2 -W 5 {network}.1")).await;
    assert!(ping.contains(" 0% packet loss"), "{ping}");
}

#[tokio::test]
async fn the_console_answers_a_plain_websocket_client_and_virtctl() {
    let story = story().await;
    story.apply(&machine("talk")).await;
    let mut console = story.shell("talk").await;
    assert_eq!(console.shell("echo $((6 * 7))").await, "42");
    drop(console);

    let mut terminal = story.virtctl_terminal(&["console", "talk", "--timeout=1"]);
    terminal.send(b"\n").await;
    terminal.expect("# ").await;
    terminal.send(b"echo $((7 * 8))\n").await;
    terminal.expect("\n56").await;
    // What ends the session on a terminal does so in a pipe.
    terminal.send(&[0x1d]).await;
    assert!(terminal.end().await.success());
}

#[tokio::test]
async fn the_screen_answers_with_its_protocol() {
    let story = story().await;
    story.apply(&machine("screen")).await;
    story.vmi_is("screen", "Running").await;
    let path = story.subresource("virtualmachineinstances", "screen", "vnc");
    let mut screen = Console::open(&story.client, &path)
        .await
        .expect("open the screen");
    screen.expect("RFB 003.008\n").await;
}

#[tokio::test]
async fn kubectl_shows_describes_and_waits_for_machines() {
    let story = story().await;
    story.apply(&machine("shown")).await;
    story
        .kubectl(&["wait", "vm/shown", "--for=condition=Ready", "--timeout=90s"])
        .await
        .good();
    let table = story.kubectl(&["get", "vm"]).await.good();
    assert!(
        table.contains("Running") && table.contains("True"),
        "{table}"
    );
    let table = story.kubectl(&["get", "vmi", "--output=wide"]).await.good();
    assert!(table.contains("Running"), "{table}");
    let text = story.kubectl(&["describe", "vm/shown"]).await.good();
    assert!(text.contains("Printable Status:"), "{text}");
    let pods = story.pod_list().await;
    story.kubectl(&["logs", &pods[0].0]).await.good();
}

#[tokio::test]
async fn virtctl_offers_the_screen_on_a_local_port() {
    let story = story().await;
    story.apply(&machine("viewed")).await;
    story.vmi_is("viewed", "Running").await;
    let mut proxy = story.virtctl_terminal(&["vnc", "viewed", "--proxy-only"]);
    let said = proxy.expect("}").await;
    let said: serde_json::Value = serde_json::from_str(&said).expect("it says the port");
    let port = said["port"]
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
async fn an_instance_boots_from_the_kernel_of_an_image() {
    let story = story().await;
    let example = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/../../examples/vmi-kernel-boot.yaml"
    );
    story
        .kubectl(&["apply", "--filename", example])
        .await
        .good();
    story.greeting("kernel-boot").await;
}
