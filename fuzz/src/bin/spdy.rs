//! What a client sends for port forwarding: however it is cut into pieces, the same frames are read of
//! it, and no header is longer than the bound. The first byte is the length of the pieces.
#![no_main]
#![allow(dead_code, reason = "the node writes frames as well")]

use libfuzzer_sys::fuzz_target;

// Taken out of the node, which would bring an API's client and a network with it.
#[path = "../../../crates/embedded-node/src/port_forward/inflate.rs"]
mod inflate;
#[path = "../../../crates/embedded-node/src/port_forward/spdy.rs"]
mod spdy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Malformed(&'static str);

const LONGEST_HEADERS: usize = 16 << 10;

/// All frames up to the first that contradicts itself, and whether there was one.
fn read<'a>(pieces: impl Iterator<Item = &'a [u8]>) -> (Vec<spdy::Frame>, bool) {
    let mut reader = spdy::Reader::new();
    let mut frames = Vec::new();
    for piece in pieces {
        reader.feed(piece);
        loop {
            match reader.next() {
                Ok(Some(frame)) => frames.push(frame),
                Ok(None) => break,
                Err(_malformed) => return (frames, true),
            }
        }
    }
    (frames, false)
}

fuzz_target!(|bytes: &[u8]| {
    let Some((length, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = read(std::iter::once(bytes));
    let pieces = read(bytes.chunks(usize::from(*length).max(1)));
    assert_eq!(whole, pieces, "the same frames");
    for frame in whole.0 {
        if let spdy::Frame::Open { headers, .. } = frame {
            // A byte that is no text is read as three.
            let all: usize = headers
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum();
            assert!(all <= 3 * LONGEST_HEADERS, "{all} bytes of headers");
        }
    }
});
