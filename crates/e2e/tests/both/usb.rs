//! USB devices of clients.

use e2e::{DEADLINE, tiny_vm};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
    time::timeout,
};

use crate::test_namespace;

const HELLO: u32 = 0;
const DEVICE_CONNECT: u32 = 1;
const INTERFACE_INFO: u32 = 4;
const EP_INFO: u32 = 5;
const CONTROL_PACKET: u32 = 100;
/// Endpoints and interfaces in each message about them.
const MAX: usize = 32;
/// Request, request type and the high byte of the value of a request for a descriptor.
const GET_DEVICE: [u8; 3] = [6, 0x80, 1];
const GET_CONFIGURATION: [u8; 3] = [6, 0x80, 2];

/// Sizes of packets of endpoints, and long identifiers: without these QEMU refuses the device.
const CAPABILITIES: u32 = 1 << 4 | 1 << 5;

/// A client of the USB redirection protocol with a device that has a device descriptor only.
struct Device(TcpStream);

struct Packet {
    kind: u32,
    id: u64,
    body: Vec<u8>,
}

impl Device {
    async fn send(&mut self, kind: u32, id: u64, body: &[u8]) {
        let id = id.to_le_bytes();
        // Greetings have short identifiers.
        let id = if kind == HELLO { &id[..4] } else { &id[..] };
        let length = u32::try_from(body.len()).expect("packets are small");
        let start = [kind, length].map(u32::to_le_bytes).concat();
        let packet = [&start, id, body].concat();
        self.0.write_all(&packet).await.expect("send a packet");
    }

    async fn receive(&mut self) -> Packet {
        let read = async {
            let kind = self.0.read_u32_le().await?;
            let length = self.0.read_u32_le().await?;
            let id = if kind == HELLO {
                u64::from(self.0.read_u32_le().await?)
            } else {
                self.0.read_u64_le().await?
            };
            let mut body = vec![0; usize::try_from(length).unwrap_or(usize::MAX)];
            self.0.read_exact(&mut body).await?;
            std::io::Result::Ok(Packet { kind, id, body })
        };
        let packet = timeout(DEADLINE, read).await.expect("a packet in time");
        packet.expect("read a packet")
    }

    /// Greets the guest and connects the device: full speed, with one interface.
    async fn connect(&mut self) {
        let mut version = b"usbredirect of a test".to_vec();
        version.resize(64, 0);
        version.extend(CAPABILITIES.to_le_bytes());
        self.send(HELLO, 0, &version).await;
        let mut interfaces = 1_u32.to_le_bytes().to_vec();
        interfaces.resize(4 + 4 * MAX, 0);
        // Of its vendor's own class.
        interfaces[4 + MAX] = 0xff;
        self.send(INTERFACE_INFO, 0, &interfaces).await;
        // All are absent but those for control.
        let mut endpoints = vec![255; MAX];
        (endpoints[0], endpoints[16]) = (0, 0);
        endpoints.resize(5 * MAX, 0);
        self.send(EP_INFO, 0, &endpoints).await;
        let identity = [1, 0xff, 0, 0, 0x51, 0x09, 0x66, 0x16];
        self.send(DEVICE_CONNECT, 0, &identity).await;
    }

    /// Waits for a control request of the guest.
    async fn request(&mut self, wanted: [u8; 3]) -> Packet {
        loop {
            let packet = self.receive().await;
            if packet.kind == CONTROL_PACKET
                && let [_, request, kind, _, _, value, ..] = packet.body[..]
                && [request, kind, value] == wanted
            {
                return packet;
            }
        }
    }
}

#[tokio::test]
async fn guest_talks_to_redirected_usb_device() {
    let test = test_namespace().await;
    test.apply(&tiny_vm("plugged").device("clientPassthrough", json!({})))
        .await;
    test.wait_vmi_phase("plugged", "Running").await;
    let mut redirection = test.virtctl_terminal(&["usbredir", "--no-launch", "plugged"]);
    redirection.expect("--to ").await;
    let address = redirection.expect("\n").await;
    let stream = TcpStream::connect(address.trim()).await;
    let mut device = Device(stream.expect("connect to virtctl"));
    let hello = device.receive().await;
    let version = String::from_utf8_lossy(&hello.body);
    assert!(version.contains("qemu usb-redir guest"), "{version}");
    device.connect().await;

    // The tiny guest's kernel has no USB, but its firmware has.
    let path = test.subresource("virtualmachineinstances", "plugged", "reset");
    let reset = ["replace", "--raw", &path, "--filename=-"];
    test.kubectl_with(&reset, b"{}").await.success();
    let asked = device.request(GET_DEVICE).await;
    let descriptor = [18, 1, 0x10, 0x01, 0xff, 0, 0, 64];
    let mut answer = asked.body[..10].to_vec();
    answer[8..].copy_from_slice(&[8, 0]);
    answer.extend(descriptor);
    device.send(CONTROL_PACKET, asked.id, &answer).await;
    // It asks for more only after an answer that it understands.
    device.request(GET_CONFIGURATION).await;
}
