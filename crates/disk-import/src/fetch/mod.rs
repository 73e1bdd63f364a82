//! Downloads a file and resumes after failures.
//!
//! **Invariants**: bytes of two versions of a file are never joined: a download goes on only if the
//! server names the version (`ETag` or `Last-Modified`) and says that it is the same; otherwise it
//! starts again from the first byte. A file ends where the server said that it ends.

mod entity;
#[cfg(test)]
mod tests;

use std::time::Duration;

use backoff::Delays;
use http::{Request, Response, StatusCode, header};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::{Bytes, Incoming};
use hyper_util::rt::TokioIo;
use tokio::time;
use tokio_util::task::TaskTracker;
use url::Url;

use crate::ImportError;
use crate::connect::Connect;
use crate::progress::log;
use crate::source::WebSource;

use entity::{Entity, Part};

const MOST_REDIRECTS: usize = 10;
const USER_AGENT: &str = concat!("ferrovirt-disk-import/", env!("CARGO_PKG_VERSION"));

/// Takes the bytes of a file in their order.
pub(crate) trait Sink {
    /// Forgets everything; the file comes again from its first byte.
    fn reset(&mut self) -> Result<(), ImportError>;
    /// The next bytes. `total` is the length of the file, if it is known.
    fn push(&mut self, bytes: &[u8], total: Option<u64>) -> Result<(), ImportError>;
}

/// How patient a download is.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Patience {
    pub(crate) connect: Duration,
    /// Until the head of a response, and between two parts of its body.
    pub(crate) silence: Duration,
    pub(crate) delays: Delays,
    /// Consecutive failures without progress.
    pub(crate) failures: u32,
    /// How often it starts again from the first byte.
    pub(crate) restarts: u32,
    /// Requests in total, for a server that sends a few bytes each time.
    pub(crate) requests: u32,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            connect: Duration::from_secs(30),
            silence: Duration::from_mins(1),
            delays: Delays::new(Duration::from_secs(1), Duration::from_secs(30)),
            failures: 8,
            restarts: 3,
            requests: 1000,
        }
    }
}

/// Whether a file without a stated end is accepted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum OpenEnd {
    /// Its checksum is verified afterwards.
    Accepted,
    Refused,
}

/// One download.
pub(crate) struct Fetch<'a, C> {
    pub(crate) connect: &'a C,
    pub(crate) source: &'a WebSource,
    pub(crate) patience: Patience,
    pub(crate) open_end: OpenEnd,
}

/// Where a download stands.
#[derive(Default)]
struct State {
    received: u64,
    entity: Option<Entity>,
}

impl<C: Connect> Fetch<'_, C> {
    /// Sends the whole file to the sink.
    pub(crate) async fn run(&self, sink: &mut dyn Sink) -> Result<(), ImportError> {
        let tasks = TaskTracker::new();
        let patience = &self.patience;
        let (mut failures, mut restarts, mut requests) = (0, 0, 0);
        let mut state = State::default();
        loop {
            let before = state.received;
            let Err(error) = self.attempt(&tasks, &mut state, sink).await else {
                return Ok(());
            };
            let changed = matches!(error, ImportError::Changed);
            requests += 1;
            if requests >= patience.requests || !(changed || error.may_resume()) {
                return Err(error);
            }
            let resumable = state.entity.as_ref().is_some_and(Entity::is_resumable);
            if state.received > 0 && (changed || !resumable) {
                restarts += 1;
                if restarts > patience.restarts {
                    return Err(error);
                }
                sink.reset()?;
                state = State::default();
            }
            failures = if state.received > before {
                1
            } else {
                failures + 1
            };
            if failures > patience.failures {
                return Err(error);
            }
            let delay = patience.delays.after(failures);
            log(format_args!(
                "{}; trying again in {} s from byte {}",
                error_chain::error_chain(&error),
                delay.as_secs(),
                state.received,
            ));
            time::sleep(delay).await;
        }
    }

    async fn attempt(
        &self,
        tasks: &TaskTracker,
        state: &mut State,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let (host, response) = self.open(tasks, state).await?;
        let status = response.status();
        match status {
            StatusCode::OK => {
                if state.received > 0 {
                    // The server does not resume, or has another version.
                    sink.reset()?;
                    *state = State::default();
                }
                let entity = Entity::whole(&response);
                if entity.total.is_none()
                    && !is_chunked(&response)
                    && self.open_end == OpenEnd::Refused
                {
                    return Err(ImportError::NoLength);
                }
                state.entity = Some(entity);
            }
            StatusCode::PARTIAL_CONTENT if state.received > 0 => {
                let same = state.entity.as_mut().is_some_and(|entity| {
                    Part::of(&response).is_some_and(|part| entity.continues(&part, state.received))
                });
                if !same {
                    return Err(ImportError::Changed);
                }
            }
            StatusCode::RANGE_NOT_SATISFIABLE | StatusCode::PRECONDITION_FAILED
                if state.received > 0 =>
            {
                return Err(ImportError::Changed);
            }
            _ => return Err(self.refused(host, status)),
        }
        self.body(response, state, sink).await
    }

    /// What distinguishes this version of the file from others. Its content is not read.
    pub(crate) async fn version(&self) -> Result<String, ImportError> {
        let tasks = TaskTracker::new();
        let (host, response) = self.open(&tasks, &State::default()).await?;
        if response.status() != StatusCode::OK {
            return Err(self.refused(host, response.status()));
        }
        let entity = Entity::whole(&response);
        let validator = entity.validator.as_ref();
        let validator = validator.and_then(|validator| validator.to_str().ok());
        let validator = validator.ok_or(ImportError::NoVersion)?;
        let total = entity.total.unwrap_or_default();
        Ok(format!("{validator} {total}"))
    }

    /// The error of a response without the file.
    fn refused(&self, host: String, status: StatusCode) -> ImportError {
        let code = status.as_u16();
        match status {
            StatusCode::NOT_FOUND | StatusCode::GONE => {
                ImportError::NotFound { host, status: code }
            }
            StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN => {
                ImportError::Refused { host, status: code }
            }
            StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_EARLY | StatusCode::TOO_MANY_REQUESTS => {
                ImportError::Status { host, status: code }
            }
            _ if status.is_server_error() => ImportError::Status { host, status: code },
            _ => ImportError::Address {
                address: self.source.url.host_str().unwrap_or_default().to_owned(),
                problem: format!("the server answers {code}"),
            },
        }
    }

    /// Requests the rest of the file, following redirects.
    async fn open(
        &self,
        tasks: &TaskTracker,
        state: &State,
    ) -> Result<(String, Response<Incoming>), ImportError> {
        let mut url = self.source.url.clone();
        for _ in 0..=MOST_REDIRECTS {
            let response = self.request(tasks, &url, state).await?;
            let location = response.headers().get(header::LOCATION);
            match (response.status(), location) {
                (
                    StatusCode::MOVED_PERMANENTLY
                    | StatusCode::FOUND
                    | StatusCode::SEE_OTHER
                    | StatusCode::TEMPORARY_REDIRECT
                    | StatusCode::PERMANENT_REDIRECT,
                    Some(location),
                ) => url = WebSource::redirect(&url, location)?,
                _ => return Ok((host(&url), response)),
            }
        }
        Err(ImportError::Redirects(MOST_REDIRECTS))
    }

    async fn request(
        &self,
        tasks: &TaskTracker,
        url: &Url,
        state: &State,
    ) -> Result<Response<Incoming>, ImportError> {
        let failed = |source| ImportError::Connect {
            host: host(url),
            source,
        };
        let connecting = time::timeout(self.patience.connect, self.connect.connect(url));
        let stream = connecting.await.map_err(|late| failed(late.into()))?;
        let stream = TokioIo::new(stream.map_err(failed)?);
        let interrupted = |source: hyper::Error| ImportError::Interrupted {
            received: state.received,
            source: Some(Box::new(source)),
        };
        let handshake = hyper::client::conn::http1::handshake(stream);
        let (mut sender, connection) = handshake.await.map_err(interrupted)?;
        // It ends with its response; errors appear in the body.
        tasks.spawn(async move { drop(connection.await) });
        let sent = sender.send_request(self.head(url, state)?);
        let response = time::timeout(self.patience.silence, sent);
        let response = response.await.map_err(|_| self.stalled(state))?;
        response.map_err(interrupted)
    }

    fn head(&self, url: &Url, state: &State) -> Result<Request<Empty<Bytes>>, ImportError> {
        let path = match url.query() {
            Some(query) => format!("{}?{query}", url.path()),
            None => url.path().to_owned(),
        };
        let authority = match url.port() {
            Some(port) => format!("{}:{port}", host(url)),
            None => host(url),
        };
        let mut request = Request::get(path)
            .header(header::HOST, &authority)
            .header(header::USER_AGENT, USER_AGENT)
            .header(header::ACCEPT, "*/*")
            .header(header::ACCEPT_ENCODING, "identity");
        if url.origin() == self.source.url.origin() {
            for (name, value) in &self.source.headers {
                request = request.header(name, value);
            }
            if let Some(account) = &self.source.account {
                let value = account
                    .authorization()
                    .ok_or_else(|| ImportError::Address {
                        address: host(url),
                        problem: "the key of its account signs no token".to_owned(),
                    })?;
                request = request.header(header::AUTHORIZATION, value);
            }
            if let Some(signer) = &self.source.signer {
                let signed = signer.headers(url, &authority);
                let signed = signed.ok_or_else(|| ImportError::Address {
                    address: host(url),
                    problem: "its accessKeyId is not plain text".to_owned(),
                })?;
                for (name, value) in signed {
                    request = request.header(name, value);
                }
            }
        }
        let validator = state.entity.as_ref().and_then(|one| one.validator.clone());
        if let Some(validator) = validator.filter(|_| state.received > 0) {
            request = request
                .header(header::RANGE, format!("bytes={}-", state.received))
                .header(header::IF_RANGE, validator);
        }
        request
            .body(Empty::new())
            .map_err(|error| ImportError::Address {
                address: host(url),
                problem: error.to_string(),
            })
    }

    async fn body(
        &self,
        response: Response<Incoming>,
        state: &mut State,
        sink: &mut dyn Sink,
    ) -> Result<(), ImportError> {
        let total = state.entity.as_ref().and_then(|entity| entity.total);
        let mut body = response.into_body();
        loop {
            let frame = time::timeout(self.patience.silence, body.frame());
            let Some(frame) = frame.await.map_err(|_| self.stalled(state))? else {
                break;
            };
            let frame = frame.map_err(|source| ImportError::Interrupted {
                received: state.received,
                source: Some(Box::new(source)),
            })?;
            let Ok(bytes) = frame.into_data() else {
                continue;
            };
            state.received += bytes.len() as u64;
            if let Some(announced) = total.filter(|total| *total < state.received) {
                let received = state.received;
                state.entity = None;
                return Err(ImportError::Length {
                    announced,
                    received,
                });
            }
            sink.push(&bytes, total)?;
        }
        match total {
            Some(announced) if announced != state.received => Err(ImportError::Length {
                announced,
                received: state.received,
            }),
            _ => Ok(()),
        }
    }

    fn stalled(&self, state: &State) -> ImportError {
        ImportError::Stalled {
            received: state.received,
            seconds: self.patience.silence.as_secs(),
        }
    }
}

fn host(url: &Url) -> String {
    url.host_str().unwrap_or_default().to_owned()
}

/// A chunked response has an end of its own.
fn is_chunked(response: &Response<Incoming>) -> bool {
    response.headers().contains_key(header::TRANSFER_ENCODING)
}
