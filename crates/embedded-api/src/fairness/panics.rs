//! A panic while a request is served fails that request alone, in builds that unwind.

use std::panic::AssertUnwindSafe;

use apimachinery::Status;
use futures::FutureExt as _;

use crate::error::ApiError;

/// Runs the work of a request; a panic becomes a 500.
pub(crate) async fn confine<T>(
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    match AssertUnwindSafe(work).catch_unwind().await {
        Ok(done) => done,
        // The hook for panics has printed the message and the place.
        Err(_panic) => Err(Status::internal(
            "the API server panicked while it served this request: report the message in its log",
        )
        .into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn panic_is_an_error_of_its_request() {
        assert_eq!(confine(async { Ok(1) }).await.unwrap(), 1);
        let bug = |number: u64| async move {
            assert!(number > 1, "a bug");
            Ok(number)
        };
        assert_eq!(confine(bug(2)).await.unwrap(), 2);
        assert_eq!(confine(bug(1)).await.unwrap_err().code(), 500);
    }
}
