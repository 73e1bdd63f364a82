//! USB devices of clients.

use e2e::{DEADLINE, tiny_vm};
use serde_json::json;
use tokio::{io::AsyncReadExt, net::TcpStream, time::timeout};

use crate::test_namespace;

#[tokio::test]
async fn client_reaches_a_usb_port_of_the_guest() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("plugged").device("clientPassthrough", json!({})))
        .await;
    test.wait_vmi_phase("plugged", "Running").await;
    let mut redirection = test.virtctl_terminal(&["usbredir", "--no-launch", "plugged"]);
    redirection.expect("--to ").await;
    let address = redirection.expect("\n").await;
    let stream = TcpStream::connect(address.trim()).await;
    let mut port = stream.expect("connect to virtctl");
    // Of the protocol's first packet: type, length, identifier, and the version as text.
    let mut greeting = [0; 12 + 64];
    let read = timeout(DEADLINE, port.read_exact(&mut greeting)).await;
    read.expect("a greeting in time").expect("read a greeting");
    let (header, version) = greeting.split_at(12);
    assert!(header.starts_with(&0_u32.to_le_bytes()), "{header:?}");
    let version = String::from_utf8_lossy(version);
    assert!(version.contains("qemu usb-redir guest"), "{version}");
}
