//! gRPC framing: a compression flag byte, a big-endian `u32` length, the message.

use bytes::{Buf as _, BufMut as _, Bytes, BytesMut};
use prost::Message;

use crate::{Code, Status};

/// The largest accepted message, enough for thousands of devices.
pub const MAX_MESSAGE: usize = 4 << 20;
const PREFIX: usize = 5;

/// A framed message.
pub fn encode(message: &impl Message) -> Bytes {
    let length = message.encoded_len();
    let mut buffer = BytesMut::with_capacity(PREFIX + length);
    buffer.put_u8(0);
    buffer.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    // The capacity is sufficient.
    if let Err(error) = message.encode(&mut buffer) {
        tracing::error!(%error, "cannot encode a message");
    }
    buffer.freeze()
}

/// Decodes a message without its frame.
pub fn decode<M: Message + Default>(message: Bytes) -> Result<M, Status> {
    M::decode(message).map_err(|error| Status::new(Code::InvalidArgument, error.to_string()))
}

/// Reassembles messages from the chunks of a body.
#[derive(Debug, Default)]
pub(crate) struct FrameBuffer {
    buffer: BytesMut,
}

impl FrameBuffer {
    pub(crate) fn add(&mut self, chunk: &[u8]) {
        self.buffer.extend_from_slice(chunk);
    }

    /// The next message, once it is complete.
    pub(crate) fn next(&mut self) -> Result<Option<Bytes>, Status> {
        let Some((prefix, _)) = self.buffer.split_first_chunk::<PREFIX>() else {
            return Ok(None);
        };
        let [compressed, length @ ..] = *prefix;
        if compressed != 0 {
            let message = "compressed messages are not supported";
            return Err(Status::new(Code::Unimplemented, message));
        }
        let length = usize::try_from(u32::from_be_bytes(length)).unwrap_or(usize::MAX);
        if length > MAX_MESSAGE {
            let message = format!("message of {length} bytes exceeds the limit of {MAX_MESSAGE}");
            return Err(Status::new(Code::ResourceExhausted, message));
        }
        if self.buffer.len() < PREFIX + length {
            return Ok(None);
        }
        self.buffer.advance(PREFIX);
        Ok(Some(self.buffer.split_to(length).freeze()))
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Clone, PartialEq, Message)]
    struct Line {
        #[prost(string, tag = "1")]
        text: String,
    }

    #[test]
    fn messages_are_reassembled_from_chunks_of_any_size() {
        let line = |text: &str| Line { text: text.into() };
        let sent = [line("a"), line(""), line("b")];
        let bytes: Vec<u8> = sent.iter().flat_map(|one| encode(one).to_vec()).collect();
        for size in 1..bytes.len() {
            let mut frames = FrameBuffer::default();
            let mut got = Vec::new();
            for chunk in bytes.chunks(size) {
                frames.add(chunk);
                while let Some(message) = frames.next().unwrap() {
                    got.push(decode::<Line>(message).unwrap());
                }
            }
            assert_eq!(got, sent, "chunks of {size}");
            assert!(frames.is_empty());
        }
    }

    #[test]
    fn oversized_or_compressed_message_is_refused_by_its_prefix() {
        for (prefix, code) in [
            ([0, 0xff, 0xff, 0xff, 0xff], Code::ResourceExhausted),
            ([1, 0, 0, 0, 1], Code::Unimplemented),
        ] {
            let mut frames = FrameBuffer::default();
            frames.add(&prefix);
            assert_eq!(frames.next().unwrap_err().code, code);
        }
        let garbage = Bytes::from_static(&[0x0a, 0xff, 1]);
        assert_eq!(
            decode::<Line>(garbage).unwrap_err().code,
            Code::InvalidArgument
        );
    }
}
