//! Errors of the store.

use std::path::{Path, PathBuf};

use reasons::Reason;

/// Why an operation of the store failed.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    #[error("write: another write came first")]
    Conflict,
    #[error("create: the object exists already")]
    Exists,
    #[error("replay changes after revision {wanted}, the oldest kept is {oldest}")]
    Compacted { wanted: u64, oldest: u64 },
    #[error("replay changes after revision {wanted}, the latest is {latest}")]
    Future { wanted: u64, latest: u64 },
    #[error("write: the disk that holds the database is full")]
    DiskFull,
    #[error("write: the file system that holds the database is read-only")]
    ReadOnly,
    #[error(
        "write: the write-ahead log of the database is full: another process reads an old state of it, or \
         it cannot be moved into the database"
    )]
    LogFull,
    #[error("use database")]
    Sqlite(#[source] rusqlite::Error),
    #[error("use object")]
    Json(#[from] serde_json::Error),
    #[error("open database {}: its layout is version {found}, and this program knows versions up to \
         {known}; run the newer version of Ferrovirt that wrote it", path.display())]
    TooNew {
        path: PathBuf,
        found: i64,
        known: i64,
    },
    #[error(
        "open database {}: it is damaged ({detail}); guests keep running; stop this process, keep a \
         copy of the file, then run `ferrovirt restore FILE` with the latest good copy",
        path.display()
    )]
    Corrupt { path: PathBuf, detail: String },
    #[error("restore {}: the copy has no objects", path.display())]
    Empty { path: PathBuf },
    #[error("use file {}", path.display())]
    File {
        path: PathBuf,
        #[source]
        source: std::io::Error,
    },
    #[error("write: the server stopped before the commit")]
    Stopped,
    #[error("wait for database")]
    Cancelled(#[from] tokio::task::JoinError),
    #[error("read from database")]
    Panicked(#[from] panics::Panicked),
}

impl StoreError {
    /// A stable name for logs and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Conflict => Reason::Conflict,
            Self::Exists => Reason::AlreadyExists,
            Self::Compacted { .. } => Reason::Compacted,
            Self::Future { .. } => Reason::FutureRevision,
            Self::DiskFull => Reason::DiskFull,
            Self::Corrupt { .. } => Reason::DatabaseCorrupt,
            Self::Sqlite(_)
            | Self::ReadOnly
            | Self::LogFull
            | Self::File { .. }
            | Self::Empty { .. }
            | Self::Panicked(_) => Reason::DatabaseFailed,
            Self::Json(_) => Reason::BadObject,
            Self::TooNew { .. } => Reason::DatabaseTooNew,
            Self::Stopped | Self::Cancelled(_) => Reason::Cancelled,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::DiskFull,
            Some(rusqlite::ErrorCode::ReadOnly) => Self::ReadOnly,
            _ => Self::Sqlite(error),
        }
    }
}

/// `SQLite` ends the heading of its findings with a line break.
pub(super) fn on_one_line(finding: &str) -> String {
    finding.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// Names the file if the database was found to be damaged or no database at all.
pub(super) fn corrupt(error: StoreError, path: &Path) -> StoreError {
    use rusqlite::ErrorCode::{DatabaseCorrupt, NotADatabase};
    match error {
        StoreError::Sqlite(error)
            if matches!(
                error.sqlite_error_code(),
                Some(DatabaseCorrupt | NotADatabase)
            ) =>
        {
            StoreError::Corrupt {
                path: path.to_owned(),
                detail: on_one_line(&error.to_string()),
            }
        }
        other => other,
    }
}
