//! The protocols of `exec` and `attach` over websockets: how messages name their channel, and how the
//! end is reported. Pure.

use axum::extract::ws::Message;
use base64::{Engine as _, engine::general_purpose::STANDARD};
use bytes::Bytes;
use serde_json::Value;

/// The newest first.
pub(super) const NAMES: [&str; 5] = [
    "v5.channel.k8s.io",
    "v4.channel.k8s.io",
    "v4.base64.channel.k8s.io",
    "channel.k8s.io",
    "base64.channel.k8s.io",
];

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Protocol {
    encoding: Encoding,
    end: End,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Encoding {
    /// The first byte is the channel.
    Binary,
    /// The first character is the channel's digit, and the rest is base64.
    Text,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum End {
    /// A `Status` object.
    Status,
    /// The message of a failure, nothing after a success.
    Message,
}

impl Protocol {
    /// Of clients that name none.
    pub(super) const UNNAMED: Self = Self {
        encoding: Encoding::Binary,
        end: End::Message,
    };

    pub(super) fn named(name: &str) -> Option<Self> {
        let (encoding, end) = match name {
            "v5.channel.k8s.io" | "v4.channel.k8s.io" => (Encoding::Binary, End::Status),
            "v4.base64.channel.k8s.io" => (Encoding::Text, End::Status),
            "channel.k8s.io" => (Encoding::Binary, End::Message),
            "base64.channel.k8s.io" => (Encoding::Text, End::Message),
            _ => return None,
        };
        Some(Self { encoding, end })
    }

    pub(super) fn message(self, channel: u8, bytes: &[u8]) -> Message {
        match self.encoding {
            Encoding::Binary => {
                let mut framed = Vec::with_capacity(bytes.len() + 1);
                framed.push(channel);
                framed.extend_from_slice(bytes);
                Message::Binary(framed.into())
            }
            Encoding::Text => {
                let mut framed = channel.to_string();
                STANDARD.encode_string(bytes, &mut framed);
                Message::Text(framed.into())
            }
        }
    }

    /// The channel of a message and its bytes; `None` for an empty or invalid message.
    pub(super) fn parse(self, message: &Bytes) -> Option<(u8, Bytes)> {
        let (first, rest) = message.split_first()?;
        match self.encoding {
            Encoding::Binary => Some((*first, message.slice(1..))),
            Encoding::Text => {
                let channel = first.checked_sub(b'0').filter(|digit| *digit < 10)?;
                Some((channel, STANDARD.decode(rest).ok()?.into()))
            }
        }
    }

    /// How the end of a session is reported; `None` if there is nothing to report.
    pub(super) fn end(self, status: &Value) -> Option<String> {
        match self.end {
            End::Status => Some(status.to_string()),
            End::Message if status["status"] == "Success" => None,
            End::Message => {
                let message = status["message"].as_str().unwrap_or_default();
                Some(message.to_owned())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn every_protocol_frames_messages_and_the_end() {
        let failure = json!({"status": "Failure", "message": "no"});
        let success = json!({"status": "Success"});
        for name in NAMES {
            let protocol = Protocol::named(name).unwrap();
            let framed = protocol.message(1, b"out");
            let bytes = match &framed {
                Message::Text(text) => Bytes::from(text.clone()),
                other => other.clone().into_data(),
            };
            assert_eq!(
                protocol.parse(&bytes),
                Some((1, Bytes::from("out"))),
                "{name}"
            );
            assert_eq!(matches!(framed, Message::Text(_)), name.contains("base64"));
            if name.starts_with('v') {
                assert_eq!(protocol.end(&success), Some(success.to_string()));
            } else {
                assert_eq!(protocol.end(&success), None);
                assert_eq!(protocol.end(&failure).as_deref(), Some("no"));
            }
        }
        assert_eq!(Protocol::named("v6.channel.k8s.io"), None);
        let text = Protocol::named("base64.channel.k8s.io").unwrap();
        for bad in ["", "x", "1*", "/aGk="] {
            assert_eq!(text.parse(&Bytes::from(bad)), None, "{bad}");
        }
        assert_eq!(
            Protocol::UNNAMED,
            Protocol::named("channel.k8s.io").unwrap()
        );
    }
}
