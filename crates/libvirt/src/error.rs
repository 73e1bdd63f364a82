//! What can go wrong, and libvirt's own errors as they come over the wire.

use std::time::Duration;

use reasons::Reason;

use crate::xdr::Decoder;

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server answered with an error.
    #[error(transparent)]
    Remote(#[from] Box<RemoteError>),
    #[error("connection to libvirt has ended")]
    Closed,
    #[error("no answer to {procedure} within {limit:?}")]
    TimedOut {
        procedure: &'static str,
        limit: Duration,
    },
    #[error("speak libvirt's protocol")]
    Protocol(#[from] ProtocolError),
    #[error("use libvirt's socket")]
    Io(#[from] std::io::Error),
    /// The server wants a proof of identity, which this client does not have.
    #[error("libvirt asks for authentication")]
    AuthenticationRequired,
}

impl Error {
    /// Whether the connection is of no use any more.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed | Self::Io(_) | Self::Protocol(_))
    }

    /// The server's code, if it was the server who refused.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Remote(err) => Some(err.code),
            _ => None,
        }
    }

    /// A stable word for conditions, events and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Remote(_) => Reason::LibvirtRefused,
            Self::Closed | Self::Io(_) => Reason::LibvirtUnavailable,
            Self::TimedOut { .. } => Reason::LibvirtTimedOut,
            Self::Protocol(_) => Reason::LibvirtProtocol,
            Self::AuthenticationRequired => Reason::LibvirtAuthentication,
        }
    }
}

/// Bytes that are not what the protocol allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ProtocolError {
    #[error("a value ends too early")]
    Truncated,
    #[error("{count} items or bytes where at most {limit} are allowed")]
    TooMany { count: usize, limit: usize },
    #[error("a frame of {length} bytes")]
    FrameLength { length: usize },
    #[error("{0}")]
    Malformed(&'static str),
}

/// A number of libvirt's error table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ErrorCode(pub i32);

impl ErrorCode {
    pub const INTERNAL: Self = Self(1);
    pub const UNSUPPORTED: Self = Self(3);
    pub const XML: Self = Self(27);
    pub const DOMAIN_EXISTS: Self = Self(28);
    pub const OPERATION_FAILED: Self = Self(9);
    pub const RPC: Self = Self(39);
    pub const NO_DOMAIN: Self = Self(42);
    pub const OPERATION_INVALID: Self = Self(55);
    pub const CONFIG_UNSUPPORTED: Self = Self(67);
}

/// An error that the server sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", message.as_deref().unwrap_or("libvirt gave no message"))]
pub struct RemoteError {
    pub code: ErrorCode,
    /// The part of libvirt that raised it.
    pub origin: i32,
    pub message: Option<String>,
    pub level: i32,
    /// The format of the message and its arguments.
    pub parts: [Option<String>; 3],
    pub numbers: [i32; 2],
}

impl RemoteError {
    pub(crate) fn decode(body: &[u8]) -> Result<Self, ProtocolError> {
        let mut from = Decoder::new(body);
        let code = ErrorCode(from.i32()?);
        let origin = from.i32()?;
        let message = from.optional_string()?;
        let level = from.i32()?;
        if present(&mut from)? {
            from.string()?;
            from.uuid()?;
            from.i32()?;
        }
        let parts = [
            from.optional_string()?,
            from.optional_string()?,
            from.optional_string()?,
        ];
        let numbers = [from.i32()?, from.i32()?];
        if present(&mut from)? {
            from.string()?;
            from.uuid()?;
        }
        from.finish()?;
        Ok(Self {
            code,
            origin,
            message,
            level,
            parts,
            numbers,
        })
    }
}

fn present(from: &mut Decoder<'_>) -> Result<bool, ProtocolError> {
    match from.u32()? {
        0 => Ok(false),
        1 => Ok(true),
        _ => Err(ProtocolError::Malformed(
            "an optional value is neither absent nor present",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xdr::Encoder;

    #[test]
    fn a_full_error_is_read_to_its_last_byte() {
        let body = Encoder::new()
            .i32(42)
            .i32(10)
            .optional_string(Some("Domain not found"))
            .i32(2)
            .u32(0)
            .optional_string(Some("Domain not found: %1$s"))
            .optional_string(Some("no domain"))
            .optional_string(None)
            .i32(-1)
            .i32(-1)
            .u32(0)
            .finish();
        let err = RemoteError::decode(&body).unwrap();
        assert_eq!(err.code, ErrorCode::NO_DOMAIN);
        assert_eq!(err.to_string(), "Domain not found");
        assert_eq!(err.parts[1].as_deref(), Some("no domain"));
        assert!(RemoteError::decode(&body[..body.len() - 1]).is_err());
    }
}
