//! What every request to the API server gets: a time limit, and a line about it for `-v 6`.
//!
//! **Invariant**: neither headers nor bodies are printed, since they hold secrets.

use std::{
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use http::{Request, Response};
use kube::client::Body;
use tokio::time::Instant;
use tower::{BoxError, Layer, Service};

use crate::printer::Printer;

/// From this level on requests are printed, as by kubectl.
const REQUESTS: u8 = 6;

/// Settings of all requests.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Requests {
    /// For the answer to begin; streams then stay open.
    pub(crate) limit: Option<Duration>,
    pub(crate) verbosity: u8,
}

/// The flag `--request-timeout`: seconds, or a duration such as `1m30s`; none for 0.
pub(crate) fn parse_limit(text: &str) -> Result<RequestTimeout, String> {
    let seconds = text.parse().map(Duration::from_secs).ok();
    let limit = seconds.or_else(|| {
        let written = kubevirt_api::duration::Duration(text.to_owned());
        written.parse().ok()?.try_into().ok()
    });
    let limit = limit.ok_or("write seconds, or a duration such as 30s or 1m30s")?;
    Ok(RequestTimeout((!limit.is_zero()).then_some(limit)))
}

/// The value of `--request-timeout`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RequestTimeout(pub(crate) Option<Duration>);

impl<S> Layer<S> for Requests {
    type Service = Observed<S>;

    fn layer(&self, inner: S) -> Observed<S> {
        Observed {
            inner,
            settings: *self,
        }
    }
}

/// A client with these settings.
#[derive(Clone, Debug)]
pub(crate) struct Observed<S> {
    inner: S,
    settings: Requests,
}

impl<S, B> Service<Request<Body>> for Observed<S>
where
    S: Service<Request<Body>, Response = Response<B>>,
    S::Error: Into<BoxError>,
    S::Future: Send + 'static,
{
    type Response = Response<B>;
    type Error = BoxError;
    type Future = Pin<Box<dyn Future<Output = Result<Response<B>, BoxError>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        self.inner.poll_ready(context).map_err(Into::into)
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let Requests { limit, verbosity } = self.settings;
        let request_line = format!("{} {}", request.method(), request.uri());
        let answer = self.inner.call(request);
        Box::pin(async move {
            let start = Instant::now();
            let answer = match limit {
                None => answer.await.map_err(Into::into),
                Some(limit) => match tokio::time::timeout(limit, answer).await {
                    Ok(answer) => answer.map_err(Into::into),
                    Err(_elapsed) => {
                        Err(format!("no answer within {limit:?}: raise --request-timeout").into())
                    }
                },
            };
            if verbosity >= REQUESTS {
                let end = match &answer {
                    Ok(response) => response.status().to_string(),
                    Err(error) => error.to_string(),
                };
                let time = start.elapsed().as_millis();
                Printer.note(&format!("{request_line} {end} in {time} ms"));
            }
            answer
        })
    }
}

#[cfg(test)]
mod tests {
    use std::{convert::Infallible, future::pending};

    use super::*;

    #[test]
    fn limit_is_in_seconds_or_with_units() {
        let limit = |text| parse_limit(text).map(|limit| limit.0);
        assert_eq!(limit("0"), Ok(None));
        assert_eq!(limit("0s"), Ok(None));
        assert_eq!(limit("5"), Ok(Some(Duration::from_secs(5))));
        assert_eq!(limit("1m30s"), Ok(Some(Duration::from_secs(90))));
        for wrong in ["", "-5s", "soon"] {
            assert!(limit(wrong).is_err(), "{wrong}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_does_not_answer_is_given_up() {
        let silent = tower::service_fn(|_request: Request<Body>| {
            pending::<Result<Response<Body>, Infallible>>()
        });
        let requests = Requests {
            limit: Some(Duration::from_secs(5)),
            verbosity: 2,
        };
        let mut client = requests.layer(silent);
        let error = client.call(Request::new(Body::empty())).await.unwrap_err();
        assert_eq!(
            error.to_string(),
            "no answer within 5s: raise --request-timeout"
        );
    }
}
