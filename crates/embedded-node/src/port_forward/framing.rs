//! Frames data for the client in its protocol.

use super::spdy;

/// How data from the pod is framed for the client.
#[derive(Debug, Clone, Copy)]
pub(super) enum Framing {
    /// SPDY streams for data and for errors.
    Streams { data: u32, error: u32 },
    /// Channels for data and for errors.
    Channels { data: u8, error: u8 },
}

impl Framing {
    pub(super) fn data(self, bytes: &[u8]) -> Vec<u8> {
        match self {
            Self::Streams { data, .. } => spdy::data(data, bytes),
            Self::Channels { data, .. } => channel(data, bytes),
        }
    }

    pub(super) fn error(self, text: &str) -> Vec<u8> {
        match self {
            Self::Streams { error, .. } => spdy::data(error, text.as_bytes()),
            Self::Channels { error, .. } => channel(error, text.as_bytes()),
        }
    }

    /// The frames that end the streams; channels have none.
    pub(super) fn end(self) -> Vec<Vec<u8>> {
        match self {
            Self::Streams { data, error } => vec![spdy::end(data), spdy::end(error)],
            Self::Channels { .. } => Vec::new(),
        }
    }
}

pub(super) fn channel(number: u8, bytes: &[u8]) -> Vec<u8> {
    let mut framed = vec![number];
    framed.extend_from_slice(bytes);
    framed
}
