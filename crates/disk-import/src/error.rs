//! Why an import failed: a reason, and whether a retry can help.

use std::io;

use disk_image::{ProbeError, Refusal};
use reasons::Reason;

/// Why an import failed.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ImportError {
    #[error("the address {address:?} cannot be used: {problem}")]
    Address { address: String, problem: String },
    #[error("connect to {host}")]
    Connect {
        host: String,
        #[source]
        source: io::Error,
    },
    #[error("the server {host} answers {status}: the address leads to no file")]
    NotFound { host: String, status: u16 },
    #[error("the server {host} answers {status}: check the secret and the headers of the source")]
    Refused { host: String, status: u16 },
    #[error("the server {host} answers {status}")]
    Status { host: String, status: u16 },
    #[error("more than {0} redirects")]
    Redirects(usize),
    #[error("the server sent nothing for {seconds} s after {received} bytes")]
    Stalled { received: u64, seconds: u64 },
    #[error("the response ended after {received} bytes")]
    Interrupted {
        received: u64,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error("the upload was cut after {received} bytes: send the file again")]
    Cut {
        received: u64,
        #[source]
        source: Option<Box<dyn std::error::Error + Send + Sync>>,
    },
    #[error("the server announced {announced} bytes and sent {received}")]
    Length { announced: u64, received: u64 },
    #[error("the file changed on the server while it was read")]
    Changed,
    #[error(
        "the server does not say how long the file is, so a part could be taken for the whole: \
         give its checksum"
    )]
    NoLength,
    #[error(
        "the server does not name the version of the file (ETag or Last-Modified), so a change could \
         not be noticed"
    )]
    NoVersion,
    #[error("the file is a web page and not a disk image: use the address of the file itself")]
    WebPage,
    #[error("the file is empty")]
    Empty,
    #[error("the checksum of the file is {found}, expected {expected}")]
    Checksum { found: String, expected: String },
    #[error("decompress the {format} file")]
    Compression {
        format: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("read the header of the image")]
    Header(#[from] ProbeError),
    #[error("the image is refused: {0}")]
    Forbidden(#[from] Refusal),
    #[error("the image is refused: {0}")]
    Reference(&'static str),
    #[error("the image is damaged: {0}")]
    Damaged(String),
    #[error("the disk of {found} bytes is larger than the volume, which has room for {room}")]
    TooLarge { found: u64, room: u64 },
    #[error("the image is larger than the {room} bytes of the volume")]
    TooLong { room: u64 },
    #[error("there is no disk in the image: {0}")]
    NoDisk(String),
    #[error("the volume has no disk: it holds no file disk.img")]
    NoDiskOnVolume,
    #[error("the backup cannot be restored: {0}")]
    Backup(String),
    #[error("file {file} of directory {directory} changed while it was restored")]
    BackupChanged { directory: String, file: String },
    #[error("no space left to write {what}")]
    NoSpace { what: &'static str },
    #[error("{what}")]
    Io {
        what: &'static str,
        #[source]
        source: io::Error,
    },
    #[error("the conversion ended with {status}: {output}")]
    Conversion { status: String, output: String },
}

impl ImportError {
    /// The reason for conditions and events.
    pub(crate) fn reason(&self) -> Reason {
        match self {
            Self::Address { .. }
            | Self::NoLength
            | Self::NoVersion
            | Self::WebPage
            | Self::Redirects(_) => Reason::ImportSourceNotUsable,
            Self::NotFound { .. } => Reason::ImportSourceNotFound,
            Self::Refused { .. } => Reason::ImportSourceRefused,
            Self::Connect { .. }
            | Self::Status { .. }
            | Self::Stalled { .. }
            | Self::Interrupted { .. }
            | Self::Cut { .. }
            | Self::Length { .. } => Reason::ImportSourceUnreachable,
            Self::Changed | Self::BackupChanged { .. } => Reason::ImportSourceChanged,
            Self::Checksum { .. } => Reason::ImportChecksumMismatch,
            Self::Empty
            | Self::Compression { .. }
            | Self::Header(_)
            | Self::Damaged(_)
            | Self::NoDisk(_)
            | Self::NoDiskOnVolume => Reason::DiskImageInvalid,
            Self::Forbidden(_) | Self::Reference(_) => Reason::DiskImageForbidden,
            Self::TooLarge { .. } | Self::TooLong { .. } => Reason::DiskDoesNotFit,
            Self::Backup(_) => Reason::BackupNotUsable,
            Self::NoSpace { .. } | Self::Io { .. } | Self::Conversion { .. } => {
                Reason::ImportFailed
            }
        }
    }

    /// Whether the same import can succeed later.
    pub(crate) fn is_transient(&self) -> bool {
        match self {
            Self::Connect { .. }
            | Self::NotFound { .. }
            | Self::Refused { .. }
            | Self::Status { .. }
            | Self::Stalled { .. }
            | Self::Interrupted { .. }
            | Self::Cut { .. }
            | Self::Length { .. }
            | Self::Changed
            | Self::BackupChanged { .. }
            | Self::NoSpace { .. }
            | Self::Io { .. }
            | Self::Conversion { .. } => true,
            Self::Address { .. }
            | Self::Redirects(_)
            | Self::NoLength
            | Self::NoVersion
            | Self::WebPage
            | Self::Empty
            | Self::Checksum { .. }
            | Self::Compression { .. }
            | Self::Header(_)
            | Self::Forbidden(_)
            | Self::Reference(_)
            | Self::Damaged(_)
            | Self::TooLarge { .. }
            | Self::TooLong { .. }
            | Self::NoDisk(_)
            | Self::Backup(_)
            | Self::NoDiskOnVolume => false,
        }
    }

    /// Whether the same download may go on at once, after a delay.
    pub(crate) fn may_resume(&self) -> bool {
        matches!(
            self,
            Self::Connect { .. }
                | Self::Status { .. }
                | Self::Stalled { .. }
                | Self::Interrupted { .. }
                | Self::Length { .. }
        )
    }
}

/// Names what was done when an I/O error occurred; a full file system is an error of its own.
pub(crate) fn io_failed(what: &'static str) -> impl Fn(io::Error) -> ImportError {
    move |source| match source.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => ImportError::NoSpace { what },
        _ => ImportError::Io { what, source },
    }
}
