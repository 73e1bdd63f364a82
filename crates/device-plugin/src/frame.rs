//! Messages in a body: a byte that says "not compressed", a big-endian `u32` length, the message.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;

use crate::{Code, Status};

/// The largest message taken from the other end: thousands of devices fit in.
pub const MAX_MESSAGE: usize = 4 << 20;
const PREFIX: usize = 5;

pub(crate) fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut buffer = BytesMut::with_capacity(PREFIX + length);
    buffer.put_u8(0);
    buffer.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // Room was made for all of it.
    if let Err(error) = message.encode(&mut buffer) {
        tracing::error!(%error, "a message outgrew its own size");
    }
    buffer.freeze()
}

pub(crate) fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
}

/// Puts messages together from pieces of a body.
#[derive(Debug, Default)]
pub(crate) struct Pieces {
    held: BytesMut,
}

impl Pieces {
    pub(crate) fn add(&mut self, piece: &[u8]) {
        self.held.extend_from_slice(piece);
    }

    /// The next message, if all of it is there.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((prefix, _)) = self.held.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            let message = "compressed messages are not understood";
            return Err(Status::new(Code::Unimplemented, message));
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE {
            let message = format!("message of {length} bytes is over the limit of {MAX_MESSAGE}");
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        if self.held.len() < PREFIX + length {
            return Ok(None);
        }
        self.held.advance(PREFIX);
        Ok(Some(self.held.split_to(length).freeze()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.held.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::DeviceSpec;

    #[test]
    fn messages_come_out_whole_however_they_are_cut() {
        let spec = |path: &str| DeviceSpec {
            container_path: path.into(),
            ..DeviceSpec::default()
        };
        let sent = [spec("/dev/a"), spec(""), spec("/dev/b")];
        let bytes: Vec<u8> = sent.iter().flat_map(|one| encode(one).to_vec()).collect();
        for size in 1..bytes.len() {
            let mut pieces = Pieces::default();
            let mut got = Vec::new();
            for piece in bytes.chunks(size) {
                pieces.add(piece);
                while let Some(message) = pieces.next().unwrap() {
                    got.push(decode::<DeviceSpec>(message).unwrap());
                }
            }
            assert_eq!(got, sent, "cut at {size}");
            assert!(pieces.is_empty());
        }
    }

    #[test]
    fn what_is_too_large_or_compressed_is_refused_by_its_prefix() {
        for (prefix, code) in [
            ([0, 0xff, 0xff, 0xff, 0xff], Code::ResourceExhausted),
            ([1, 0, 0, 0, 1], Code::Unimplemented),
        ] {
            let mut pieces = Pieces::default();
            pieces.add(&prefix);
            assert_eq!(pieces.next().unwrap_err().code, code);
        }
        let garbage = Bytes::from_static(&[0x0a, 0xff, 1]);
        assert_eq!(
            decode::<DeviceSpec>(garbage).unwrap_err().code,
            Code::InvalidArgument
        );
    }
}
