//! From a manifest to a guest that can be talked to.

use stories::{Console, machine, story};

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

    // What is sent after the separator ends the session, as on a terminal.
    let input = b"\necho $((7 * 8)); sleep 1\n";
    let mut typed = input.to_vec();
    typed.push(0x1d);
    let outcome = story
        .virtctl_with(&["console", "talk", "--timeout=1"], &typed)
        .await;
    assert!(outcome.is_success, "{outcome:?}");
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
