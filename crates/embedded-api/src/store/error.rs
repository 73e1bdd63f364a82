//! Errors of the store.

use std::path::PathBuf;

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
    #[error("write: the disk that holds the database is full")]
    DiskFull,
    #[error("use database")]
    Sqlite(#[source] rusqlite::Error),
    #[error("use object")]
    Json(#[from] serde_json::Error),
    #[error("open database {}: it was created by a newer version ({found})", path.display())]
    TooNew { path: PathBuf, found: i64 },
    #[error("wait for database")]
    Cancelled(#[from] tokio::task::JoinError),
}

impl StoreError {
    /// A stable name for logs and metrics.
    pub fn reason(&self) -> Reason {
        match self {
            Self::Conflict => Reason::Conflict,
            Self::Exists => Reason::AlreadyExists,
            Self::Compacted { .. } => Reason::Compacted,
            Self::DiskFull => Reason::DiskFull,
            Self::Sqlite(_) => Reason::DatabaseFailed,
            Self::Json(_) => Reason::BadObject,
            Self::TooNew { .. } => Reason::DatabaseTooNew,
            Self::Cancelled(_) => Reason::Cancelled,
        }
    }
}

impl From<rusqlite::Error> for StoreError {
    fn from(error: rusqlite::Error) -> Self {
        match error.sqlite_error_code() {
            Some(rusqlite::ErrorCode::DiskFull) => Self::DiskFull,
            _ => Self::Sqlite(error),
        }
    }
}
