//! Pairs the error and data streams of a SPDY client.

use std::collections::HashMap;

use bytes::Bytes;
use tokio::sync::mpsc;

use super::{MAX_CONNECTIONS, Malformed, port};

/// Sends data to a connection of the pod.
pub(super) type Input = mpsc::Sender<Bytes>;

/// The SPDY streams of a client.
#[derive(Debug, Default)]
pub(super) struct OpenStreams {
    /// Error streams whose data stream is not open yet, by request ID.
    errors: HashMap<String, u32>,
    pub(super) inputs: HashMap<u32, Input>,
}

/// The kind of a new stream.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Opened {
    Error,
    Data { error: u32, port: u16 },
    Refused,
}

impl OpenStreams {
    pub(super) fn stream(
        &mut self,
        id: u32,
        headers: &[(String, String)],
    ) -> Result<Opened, Malformed> {
        let header = |name: &str| {
            let mut all = headers.iter();
            let found = all.find(|(key, _)| key.eq_ignore_ascii_case(name));
            found.map(|(_, value)| value.as_str())
        };
        self.inputs.retain(|_, input| !input.is_closed());
        let number = header("requestid").unwrap_or_default();
        match header("streamtype") {
            Some("error") if self.errors.len() < MAX_CONNECTIONS => {
                self.errors.insert(number.to_owned(), id);
                Ok(Opened::Error)
            }
            Some("data") if self.inputs.len() < MAX_CONNECTIONS => {
                let error = self.errors.remove(number);
                let error = error.ok_or(Malformed("data stream without error stream"))?;
                match port(header("port").unwrap_or_default()) {
                    Ok(port) => Ok(Opened::Data { error, port }),
                    Err(_) => Ok(Opened::Refused),
                }
            }
            Some("error" | "data") => Ok(Opened::Refused),
            _ => Err(Malformed("unknown stream type")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(
        open: &mut OpenStreams,
        id: u32,
        kind: &str,
        port: &str,
    ) -> Result<Opened, Malformed> {
        let pairs = [("streamType", kind), ("port", port), ("requestID", "7")];
        let headers = pairs.map(|(name, value)| (name.to_owned(), value.to_owned()));
        open.stream(id, &headers)
    }

    #[test]
    fn error_and_data_streams_are_paired() {
        let mut open = OpenStreams::default();
        assert_eq!(stream(&mut open, 1, "error", "80"), Ok(Opened::Error));
        let data = Opened::Data { error: 1, port: 80 };
        assert_eq!(stream(&mut open, 3, "data", "80"), Ok(data));
        stream(&mut open, 5, "data", "80").expect_err("without one for errors");
        stream(&mut open, 7, "neither", "80").expect_err("neither");
        assert_eq!(stream(&mut open, 9, "error", "80"), Ok(Opened::Error));
        assert_eq!(stream(&mut open, 11, "data", "0"), Ok(Opened::Refused));
    }

    #[test]
    fn streams_per_client_are_bounded() {
        let mut open = OpenStreams::default();
        for number in 0..MAX_CONNECTIONS {
            open.errors.insert(format!("x{number}"), 1);
        }
        assert_eq!(stream(&mut open, 1, "error", "80"), Ok(Opened::Refused));
    }
}
