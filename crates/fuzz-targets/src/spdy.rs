//! Bytes of a client for port forwarding: cut into pieces of any length, they parse to the same frames,
//! and no header exceeds the limit. The first byte is the length of the pieces.

// Files of the embedded node are included: the whole crate would bring a client and the network.
#[path = "../../embedded-node/src/port_forward/inflate.rs"]
mod inflate;
#[path = "../../embedded-node/src/port_forward/spdy.rs"]
#[expect(clippy::module_inception, reason = "the name of the included file")]
mod spdy;

#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
struct Malformed(&'static str);

const LONGEST_HEADERS: usize = 16 << 10;

/// All frames up to the first malformed one, and whether there was one.
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

pub fn run(bytes: &[u8]) {
    let Some((length, bytes)) = bytes.split_first() else {
        return;
    };
    let whole = read(std::iter::once(bytes));
    let pieces = read(bytes.chunks(usize::from(*length).max(1)));
    assert_eq!(whole, pieces, "the same frames");
    for frame in whole.0 {
        if let spdy::Frame::Open { headers, .. } = frame {
            // An invalid byte becomes three bytes of UTF-8.
            let all: usize = headers
                .iter()
                .map(|(name, value)| name.len() + value.len())
                .sum();
            assert!(all <= 3 * LONGEST_HEADERS, "{all} bytes of headers");
        }
    }
}
