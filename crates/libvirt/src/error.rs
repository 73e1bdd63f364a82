//! Errors of this crate, and libvirt's own errors as they come over the wire.

use std::time::Duration;

use reasons::Reason;

use crate::xdr::Decoder;

/// A part of QEMU's message about a device whose removal was requested before.
const REPEATED_REMOVAL: &str = "is already in the process of unplug";

/// Why a call failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The server replied with an error.
    #[error(transparent)]
    Remote(#[from] Box<RemoteError>),
    #[error("connection to libvirt has ended")]
    Closed,
    #[error("no reply to {procedure} within {limit:?}")]
    TimedOut {
        procedure: &'static str,
        limit: Duration,
    },
    #[error("violation of libvirt's protocol")]
    Protocol(#[from] ProtocolError),
    #[error("libvirt socket failed")]
    Io(#[from] std::io::Error),
    /// This client cannot authenticate.
    #[error("libvirt requires authentication")]
    AuthenticationRequired,
}

impl Error {
    /// Whether the connection can no longer be used.
    pub fn is_closed(&self) -> bool {
        matches!(self, Self::Closed | Self::Io(_) | Self::Protocol(_))
    }

    /// The code of an error from the server.
    pub fn code(&self) -> Option<ErrorCode> {
        match self {
            Self::Remote(error) => Some(error.code),
            _ => None,
        }
    }

    /// Whether a removal was refused because the guest has been asked before, and has not released the device yet.
    /// libvirt has no code for this error of QEMU. QEMU asks again after 5 s of the guest's time, which stands still
    /// while the guest is paused.
    pub fn is_repeated_removal(&self) -> bool {
        let Self::Remote(error) = self else {
            return false;
        };
        let message = error.message.as_deref().unwrap_or_default();
        message.contains(REPEATED_REMOVAL)
    }

    /// A stable reason for conditions, events and metrics.
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

/// Bytes that violate the protocol.
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
    pub const NO_DOMAIN: Self = Self(42);
}

/// An error that the server sent.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", message.as_deref().unwrap_or("libvirt sent no message"))]
pub struct RemoteError {
    pub code: ErrorCode,
    /// libvirt's number of the component that raised it.
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
    fn remote_error_is_decoded_completely() {
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
        let error = RemoteError::decode(&body).unwrap();
        assert_eq!(error.code, ErrorCode::NO_DOMAIN);
        assert_eq!(error.to_string(), "Domain not found");
        assert_eq!(error.parts[1].as_deref(), Some("no domain"));
        assert!(RemoteError::decode(&body[..body.len() - 1]).is_err());
    }

    #[test]
    fn repeated_removal_is_known_by_its_message() {
        let remote = |message: &str| {
            Error::from(Box::new(RemoteError {
                code: ErrorCode(1),
                origin: 10,
                message: Some(message.to_owned()),
                level: 2,
                parts: [None, None, None],
                numbers: [-1, -1],
            }))
        };
        let command = "internal error: unable to execute QEMU command 'device_del': Device ua-lan";
        let again = remote(&format!("{command} is already in the process of unplug"));
        assert!(again.is_repeated_removal());
        assert!(!remote(&format!("{command} not found")).is_repeated_removal());
        assert!(!Error::Closed.is_repeated_removal());
    }
}
