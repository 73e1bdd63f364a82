//! Bytes of a client after the handshake of a websocket: cut into pieces of any length, they are the same
//! messages, none above the limit; a message that a protocol of `exec` parses can be framed again. The
//! first byte is the length of the pieces.

use std::io::{self, Read, Write};

use bytes::Bytes;
use tungstenite::{
    Message, WebSocket,
    protocol::{Role, WebSocketConfig},
};

// A file of the embedded node is included: the whole crate would bring a client and the network.
#[path = "../../embedded-node/src/streams/protocol.rs"]
mod protocol;

use protocol::{NAMES, Protocol};

/// Below the limit of a megabyte that the servers set, as inputs are short.
const MAX_MESSAGE: usize = 4 << 10;

/// A client that sends its bytes in pieces of some length and takes whatever it gets.
struct Client<'a> {
    bytes: &'a [u8],
    length: usize,
}

impl Read for Client<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let length = self.length.min(buffer.len());
        self.bytes.read(&mut buffer[..length])
    }
}

impl Write for Client<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// All messages up to the first error; the end of the bytes is one.
fn read(bytes: &[u8], length: usize) -> Vec<Message> {
    let config = WebSocketConfig::default()
        .max_message_size(Some(MAX_MESSAGE))
        .max_frame_size(Some(MAX_MESSAGE));
    let client = Client { bytes, length };
    let mut socket = WebSocket::from_raw_socket(client, Role::Server, Some(config));
    std::iter::from_fn(|| socket.read().ok()).collect()
}

pub fn run(bytes: &[u8]) {
    let Some((length, bytes)) = bytes.split_first() else {
        return;
    };
    let messages = read(bytes, usize::from(*length).max(1));
    assert_eq!(messages, read(bytes, usize::MAX), "the same messages");
    for message in messages {
        let bytes = match message {
            Message::Binary(bytes) => bytes,
            Message::Text(text) => Bytes::from(text),
            _ => continue,
        };
        assert!(bytes.len() <= MAX_MESSAGE, "{} bytes", bytes.len());
        for name in NAMES {
            frames_again(Protocol::named(name).expect("a listed name"), &bytes);
        }
    }
}

fn frames_again(protocol: Protocol, bytes: &Bytes) {
    let Some((channel, content)) = protocol.parse(bytes) else {
        return;
    };
    let framed = protocol.message(channel, &content).into_data();
    assert_eq!(framed, bytes, "the same bytes");
}
