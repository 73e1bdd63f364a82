//! How a call failed.

use http::{HeaderMap, HeaderValue, Response};

/// Names of gRPC's members in headers and trailers.
const CODE: &str = "grpc-status";
const MESSAGE: &str = "grpc-message";

/// The codes that occur here.
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

    fn of(number: &str) -> Self {
        let same = |code: &Self| code.number().to_string() == number;
        Self::ALL.into_iter().find(same).unwrap_or(Self::Unknown)
    }
}

/// A call that failed, at either end or between.
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

    pub(crate) fn unavailable(error: &dyn std::error::Error) -> Self {
        Self::new(Code::Unavailable, error.to_string())
    }

    /// As the trailers of an answer. Only printable ASCII may stand in them as it is.
    pub(crate) fn trailers(ended: Result<(), &Self>) -> HeaderMap {
        let mut map = HeaderMap::new();
        let code = ended.err().map_or(0, |status| status.code.number());
        map.insert(CODE, HeaderValue::from(code));
        if let Err(status) = ended {
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

    /// What trailers, or the headers of an answer without a body, say of the call's end.
    pub(crate) fn read(trailers: &HeaderMap) -> Option<Result<(), Self>> {
        let code = trailers.get(CODE)?.to_str().unwrap_or_default();
        if code == "0" {
            return Some(Ok(()));
        }
        let message = trailers
            .get(MESSAGE)
            .and_then(|text| text.to_str().ok())
            .unwrap_or("the call failed without a word");
        Some(Err(Self::new(Code::of(code), message)))
    }

    /// Of an answer that is not gRPC at all.
    pub(crate) fn of_http<B>(response: &Response<B>) -> Option<Self> {
        let status = response.status();
        (!status.is_success()).then(|| {
            Self::new(
                Code::Unavailable,
                format!("the other end answered HTTP {status}"),
            )
        })
    }
}
