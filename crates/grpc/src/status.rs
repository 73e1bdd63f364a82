//! gRPC status of a failed call.

use http::{HeaderMap, HeaderValue, Response};

/// Names of gRPC's headers and trailers.
const CODE: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

/// The codes in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    Cancelled,
    Unknown,
    InvalidArgument,
    DeadlineExceeded,
    ResourceExhausted,
    FailedPrecondition,
    Unimplemented,
    Unavailable,
}

impl Code {
    const ALL: [Self; 8] = [
        Self::Cancelled,
        Self::Unknown,
        Self::InvalidArgument,
        Self::DeadlineExceeded,
        Self::ResourceExhausted,
        Self::FailedPrecondition,
        Self::Unimplemented,
        Self::Unavailable,
    ];

    fn number(self) -> u16 {
        match self {
            Self::Cancelled => 1,
            Self::Unknown => 2,
            Self::InvalidArgument => 3,
            Self::DeadlineExceeded => 4,
            Self::ResourceExhausted => 8,
            Self::FailedPrecondition => 9,
            Self::Unimplemented => 12,
            Self::Unavailable => 14,
        }
    }

    fn parse(number: &str) -> Self {
        let matches = |code: &Self| code.number().to_string() == number;
        Self::ALL.into_iter().find(matches).unwrap_or(Self::Unknown)
    }
}

/// A failed call: by the other end, or in transit.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Status {
    pub code: Code,
    pub message: String,
}

impl Status {
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// The status for a connection that failed.
    pub fn unavailable(error: &dyn std::error::Error) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }

    /// The trailers of a response; characters other than printable ASCII are replaced by `?`.
    pub(crate) fn trailers(result: Result<(), &Self>) -> HeaderMap {
        let mut map = HeaderMap::new();
        let code = result.err().map_or(0, |status| status.code.number());
        map.insert(CODE, HeaderValue::from(code));
        if let Err(status) = result {
            let plain = |char: char| char.is_ascii_graphic() || char == ' ';
            let text = status
                .message
                .replace(|char| !plain(char) || char == '%', "?");
            if let Ok(text) = HeaderValue::from_str(&text) {
                map.insert(MESSAGE, text);
            }
        }
        map
    }

    /// Reads the result of a call from its trailers, or from the headers of a response without a body.
    pub(crate) fn read(trailers: &HeaderMap) -> Option<Result<(), Self>> {
        let code = trailers.get(CODE)?.to_str().unwrap_or_default();
        if code == "0" {
            return Some(Ok(()));
        }
        let message = trailers
            .get(MESSAGE)
            .and_then(|text| text.to_str().ok())
            .unwrap_or("the call failed without a message");
        Some(Err(Self::new(Code::parse(code), message)))
    }

    /// The status for an HTTP error outside of gRPC.
    pub(crate) fn of_http<B>(response: &Response<B>) -> Option<Self> {
        let status = response.status();
        (!status.is_success()).then(|| {
            Self::new(
                Code::Unavailable,
                format!("the other end responded with HTTP {status}"),
            )
        })
    }
}
