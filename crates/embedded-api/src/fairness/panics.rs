//! A panic while a request is served, or in one pass of a background task, fails that alone.

use apimachinery::Status;

use crate::error::ApiError;

/// Runs the work of a request; a panic becomes a 500.
pub(crate) async fn confine<T>(
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    // The hook for panics has logged the message and the place.
    panics::confined(work).await.unwrap_or_else(|_panicked| {
        Err(Status::internal(
            "the API server panicked while it served this request: report the message in its log",
        )
        .into())
    })
}

/// Runs one pass of a background task; a panic fails it, so that it is repeated.
pub(crate) async fn confine_pass<T>(
    work: impl Future<Output = Result<T, ApiError>>,
) -> Result<T, ApiError> {
    let done = panics::confined(work).await;
    done.unwrap_or_else(|panicked| Err(Status::internal(panicked).into()))
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
        assert_eq!(confine_pass(bug(2)).await.unwrap(), 2);
        assert_eq!(confine_pass(bug(1)).await.unwrap_err().code(), 500);
    }
}
